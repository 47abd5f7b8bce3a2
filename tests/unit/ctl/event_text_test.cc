// SPDX-License-Identifier: Apache-2.0
// Events, explanations and health as text and as JSON.
#include "client/ctl/event_text.h"

#include <nlohmann/json.hpp>

#include "client/ctl/health_text.h"
#include "client/ctl/steer_text.h"
#include "support/catch.h"

namespace hmm::ctl {
namespace {

using Catch::Contains;
using nlohmann::json;

// One event of each type.
v1::WatchResponse OneOfEach() {
  v1::WatchResponse response;
  std::uint64_t sequence = 10;
  const auto add = [&]() -> v1::Event& {
    v1::Event* event = response.add_events();
    event->set_sequence(++sequence);
    event->set_time_us(1'796'071'445'123'456);
    return *event;
  };
  v1::TensorEvent* tensor = add().mutable_tensor();
  tensor->set_tenant("pod-a");
  tensor->set_handle(42);
  tensor->set_key("a b");
  tensor->set_bytes(2048);
  tensor->set_to(v1::TENSOR_STATE_CREATING);
  tensor->set_tier("hbm0");
  v1::MoveEvent* move = add().mutable_move();
  move->set_handle(42);
  move->mutable_move()->set_from("hbm0");
  move->mutable_move()->set_to("ddr0");
  move->mutable_move()->set_bytes(2048);
  move->mutable_move()->set_cause(v1::MOVE_CAUSE_WATERMARK);
  move->mutable_move()->set_outcome(v1::MOVE_OUTCOME_FAILED);
  move->mutable_move()->set_took_us(77);
  move->mutable_move()->set_error("IO");
  v1::WatermarkEvent* mark = add().mutable_watermark();
  mark->set_tier("hbm0");
  mark->set_mark(v1::WatermarkEvent::MARK_ABOVE_HIGH);
  mark->set_mark_bytes(1024);
  v1::SessionEvent* session = add().mutable_session();
  session->set_session(3);
  session->set_change(v1::SessionEvent::CHANGE_EXPELLED);
  session->set_command("engine");
  session->set_why("overcommits");
  v1::TierHealthEvent* health = add().mutable_tier_health();
  health->set_from_state("online");
  health->mutable_health()->set_tier("flash0");
  health->mutable_health()->set_state("offline");
  health->mutable_health()->set_reason("IO");
  v1::AdminEvent* admin = add().mutable_admin();
  admin->set_action("Evict");
  admin->set_arguments("hbm0");
  admin->set_reason("NOT_FOUND");
  v1::Event& sample = add();
  sample.set_sequence(0);
  for (const char* name : {"hbm0", "ddr0"}) {
    v1::OccupancyEvent::Sample* tier = sample.mutable_occupancy()->add_tiers();
    tier->set_tier(name);
    tier->set_capacity_bytes(4096);
    tier->set_used_bytes(1024);
  }
  add();  // of a newer daemon
  return response;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

TEST_CASE("each event is a line; the header comes once") {
  const std::vector<std::string> lines = Lines(EventsTable(OneOfEach(), {}, true));
  REQUIRE(lines.size() == 10);
  CHECK_THAT(lines[0], Catch::StartsWith("TIME"));
  CHECK_THAT(lines[1], Contains("tensor") && Contains("pod-a") && Contains("42/a\\x20b") &&
                           Contains("new->creating") && Contains("2KiB"));
  CHECK_THAT(lines[2],
             Contains("hbm0->ddr0") && Contains("failed") && Contains("watermark,77us,IO"));
  CHECK_THAT(lines[3], Contains("above_high") && Contains("mark=1KiB"));
  CHECK_THAT(lines[4], Contains("expelled") && Contains("engine") && Contains("overcommits"));
  CHECK_THAT(lines[5], Contains("flash0") && Contains("online->offline"));
  CHECK_THAT(lines[6], Contains("Evict") && Contains("failed: NOT_FOUND"));
  CHECK_THAT(lines[7], Contains("occupancy") && Contains("hbm0") && Contains("25%"));
  CHECK_THAT(lines[8], Contains("ddr0"));
  CHECK_THAT(lines[9], Contains("unknown"));
  CHECK(Lines(EventsTable(OneOfEach(), {}, false)).size() == 9);
  // The first answer of a watch has none.
  CHECK(Lines(EventsTable({}, {}, true)).size() == 1);
  CHECK(EventsTable({}, {.tabs = true}, true).empty());
  CHECK_THAT(EventsTable(OneOfEach(), {.tabs = true, .exact = true}, true),
             Catch::StartsWith("1796071445123456\t11\ttensor\thbm0\tpod-a\t"));
}

TEST_CASE("-p of events is exact in the last column too") {
  v1::WatchResponse events = OneOfEach();
  events.mutable_events(1)->mutable_move()->mutable_move()->set_took_us(45'140);
  events.mutable_events(2)->mutable_watermark()->set_mark_bytes(107'374'182);
  v1::OccupancyEvent* sample = events.mutable_events(6)->mutable_occupancy();
  sample->mutable_tiers(0)->set_pinned_bytes(1'048'577);
  sample->mutable_tiers(0)->set_moving_bytes(2'048);
  const std::vector<std::string> lines =
      Lines(EventsTable(events, {.tabs = true, .exact = true}, true));
  REQUIRE(lines.size() == 9);
  CHECK_THAT(lines[1], Catch::EndsWith("\twatermark,45.140,IO"));
  CHECK_THAT(lines[2], Catch::EndsWith("\tmark=107374182"));
  CHECK_THAT(lines[6], Catch::EndsWith("\tpinned=1048577,moving=2048,tensors=0"));
}

TEST_CASE("JSON of events: one object a line") {
  const std::vector<std::string> lines = Lines(EventsJson(OneOfEach()));
  REQUIRE(lines.size() == 8);
  std::vector<std::string> types;
  for (const std::string& line : lines) types.push_back(json::parse(line)["type"]);
  CHECK(types == std::vector<std::string>{"tensor", "move", "watermark", "session", "tier_health",
                                          "admin", "occupancy", "unknown"});
  CHECK(json::parse(lines[0])["from"].is_null());
  CHECK(json::parse(lines[0])["to"] == "creating");
  CHECK(json::parse(lines[1])["move"]["cause"] == "watermark");
  CHECK(json::parse(lines[3])["change"] == "expelled");
  CHECK(json::parse(lines[6])["tiers"][1]["used_bytes"] == 1024);
}

TEST_CASE("an explanation has the factors and the moves") {
  v1::ExplainResponse why;
  why.mutable_tensor()->set_handle(42);
  why.mutable_tensor()->set_tier_name("hbm0");
  why.set_policy("lru");
  why.set_next("stays: the tier is below its mark");
  why.set_rank(3);
  why.set_of_tensors(10);
  why.mutable_cost()->set_use_probability(0.25);
  why.mutable_cost()->set_below("ddr0");
  why.mutable_cost()->set_bring_back_us(150);
  v1::MoveRecord* move = why.add_moves();
  move->set_from("ddr0");
  move->set_to("hbm0");
  move->set_cause(v1::MOVE_CAUSE_DEMAND);
  move->set_outcome(v1::MOVE_OUTCOME_MOVED);
  const std::string text = ExplainTable(why, {});
  CHECK_THAT(text, Contains("next: stays: the tier is below its mark") &&
                       Contains("order: 3 of 10 go first (lru)") && Contains("0.25") &&
                       Contains("150us") && Contains("assumed") && Contains("demand"));
  const json parsed = json::parse(ExplainJson(why));
  CHECK(parsed["cost"]["bring_back_us"] == 150);
  CHECK(parsed["moves"][0]["outcome"] == "moved");
  CHECK_FALSE(ExplainTable({}, {}).empty());
}

TEST_CASE("health: well only if it serves and every tier is online") {
  v1::GetHealthResponse health;
  health.set_serving(true);
  v1::TierHealth* tier = health.add_tiers();
  tier->set_tier("ddr0");
  tier->set_state("online");
  CHECK(IsWell(health));
  CHECK_THAT(HealthTable(health, {}), Catch::StartsWith("serving\n\nTIER"));
  CHECK(json::parse(HealthJson(health))["tiers"][0]["last_probe_ms"].is_null());
  tier->set_state("degraded");
  CHECK_FALSE(IsWell(health));
  tier->set_state("online");
  health.set_serving(false);
  CHECK_FALSE(IsWell(health));
  CHECK(json::parse(HealthJson(health))["well"] == false);
  CHECK(Lines(HealthTable(health, {.tabs = true})).size() == 1);
}

TEST_CASE("what was steered is said") {
  v1::AdminSwapResponse swap;
  swap.set_tensors(2);
  swap.set_moved_bytes(4096);
  CHECK(SwapLine("ddr0", swap) ==
        "ddr0: 2 tensors moved here (4KiB), 0 were here already, 0 pinned were skipped\n");
  swap.set_left_tensors(3);
  CHECK_THAT(SwapLine("ddr0", swap),
             Contains("2 tensors moved here") && Contains("3 more came or were here and left"));
  CHECK(json::parse(SwapJson("ddr0", swap))["left_tensors"] == 3);
  swap.set_failed_tensors(1);
  swap.mutable_first_error()->set_reason("FULL");
  CHECK_THAT(SwapLine("ddr0", swap), Contains("1 failed; the first: FULL"));
  CHECK(json::parse(SwapJson("ddr0", swap))["first_error"]["reason"] == "FULL");
  v1::AdminPrefetchResponse prefetch;
  CHECK_THAT(PrefetchLine("", prefetch), Contains("the fastest tier: 0 tensors"));
  CHECK(json::parse(PrefetchJson("", prefetch))["first_error"].is_null());
  v1::ResizeTierResponse resize;
  resize.set_old_bytes(1024);
  resize.set_new_bytes(2048);
  CHECK(ResizeLine("ddr0", resize) == "ddr0: 1KiB -> 2KiB\n");
  CHECK(json::parse(ResizeJson("ddr0", resize))["new_bytes"] == 2048);
  resize.set_tensors(3);
  resize.set_freed_bytes(3072);
  CHECK(ResizeLine("ddr0", resize) == "ddr0: 1KiB -> 2KiB, 3 tensors (3KiB) moved out\n");
  resize.set_dropped_tensors(1);
  CHECK(ResizeLine("ddr0", resize) ==
        "ddr0: 1KiB -> 2KiB, 3 tensors (3KiB) left it: 2 moved out, 1 dropped\n");
  resize.set_dropped_tensors(3);
  CHECK(ResizeLine("ddr0", resize) == "ddr0: 1KiB -> 2KiB, 3 tensors (3KiB) dropped\n");
  CHECK(json::parse(ResizeJson("ddr0", resize))["dropped_tensors"] == 3);
  CHECK(CompactLine({}) == "0B given back, 0 tensors (0B) moved for it\n");
  CHECK(json::parse(CompactJson({}))["pinned_chunks"] == 0);
  v1::SetLogLevelResponse level;
  level.set_previous("info");
  CHECK(LogLevelLine("debug", level) == "log level debug, it was info\n");
  CHECK(json::parse(LogLevelJson("debug", level))["previous"] == "info");
}

}  // namespace
}  // namespace hmm::ctl
