// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/lru_forecast.h"

#include <algorithm>
#include <deque>
#include <random>

#include "client/ctl/trace_reader.h"
#include "support/catch.h"

namespace hmm::ctl {
namespace {

TraceRequest Request(std::vector<std::uint64_t> blocks) {
  TraceRequest request;
  for (const std::uint64_t block : blocks) request.runs.push_back({block, 1});
  return request;
}

TEST_CASE("only the leading run hits") {
  const std::vector<TraceRequest> requests = {Request({1, 2, 3}), Request({1, 9, 3})};
  const LruForecast forecast = ForecastLru(requests, std::vector<std::size_t>{10});
  CHECK(forecast.accesses == 6);
  CHECK(forecast.unique_blocks == 4);
  CHECK(forecast.hits == std::vector<std::uint64_t>{1});
  CHECK(forecast.misses == 5);
  CHECK(forecast.dropped == 0);
}

TEST_CASE("blocks sink from tier to tier and come back up") {
  // After {1,2,3} touched from the last: order 1 2 3. Tiers of one block each: 1 | 2, and 3
  // dropped.
  const std::vector<TraceRequest> requests = {Request({1, 2, 3}), Request({1, 2, 3})};
  const LruForecast forecast = ForecastLru(requests, std::vector<std::size_t>{1, 1});
  CHECK(forecast.hits == std::vector<std::uint64_t>{1, 1});
  CHECK(forecast.misses == 4);
  CHECK(forecast.dropped == 4);
}

TEST_CASE("no tiers, and a tier of nothing") {
  const std::vector<TraceRequest> requests = {Request({1}), Request({1})};
  CHECK(ForecastLru(requests, std::vector<std::size_t>{}).misses == 2);
  CHECK(ForecastLru(requests, std::vector<std::size_t>{0}).misses == 2);
  CHECK(ForecastLru(requests, std::vector<std::size_t>{0, 5}).hits ==
        std::vector<std::uint64_t>{0, 1});
}

// The first 1,000 requests of the chat trace; the numbers come from an independent program.
TEST_CASE("the known answer for the chat trace") {
  const absl::StatusOr<Trace> trace =
      ReadTrace(HMM_TEST_DATA "/traces/mooncake_conversation.jsonl.gz");
  REQUIRE(trace.ok());
  const auto first = absl::MakeConstSpan(trace->requests).subspan(0, 1000);
  const LruForecast forecast = ForecastLru(first, std::vector<std::size_t>{1000, 4000, 16000});
  CHECK(forecast.requests == 1000);
  CHECK(forecast.accesses == 27305);
  CHECK(forecast.unique_blocks == 21514);
  CHECK(forecast.hits == std::vector<std::uint64_t>{1038, 1592, 3161});
  CHECK(forecast.misses == 27305 - 5791);
  CHECK(ForecastLru(first, std::vector<std::size_t>{8000}).hits[0] == 4303);
  CHECK(ForecastLru(first, std::vector<std::size_t>{500}).hits[0] == 999);
}

// The oracle: one deque in order of use, searched from the front; a block's tier is where it
// stands.
std::vector<std::uint64_t> SlowHits(const std::vector<TraceRequest>& requests,
                                    const std::vector<std::size_t>& capacities) {
  std::deque<std::uint64_t> order;
  std::size_t total = 0;
  for (const std::size_t capacity : capacities) total += capacity;
  std::vector<std::uint64_t> hits(capacities.size());
  for (const TraceRequest& request : requests) {
    const std::vector<std::uint64_t> blocks = request.Blocks();
    for (const std::uint64_t block : blocks) {
      const auto it = std::find(order.begin(), order.end(), block);
      if (it == order.end()) break;
      auto place = static_cast<std::size_t>(it - order.begin());
      std::size_t tier = 0;
      while (place >= capacities[tier]) place -= capacities[tier++];
      ++hits[tier];
    }
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
      std::erase(order, *block);
      order.push_front(*block);
      if (order.size() > total) order.pop_back();
    }
  }
  return hits;
}

TEST_CASE("equals the slow way on random traces") {
  std::mt19937_64 random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<TraceRequest> requests;
    for (int i = 0; i < 60; ++i) {
      std::vector<std::uint64_t> blocks;
      const std::uint64_t chain = random() % 6;
      const std::uint64_t length = random() % 9;
      for (std::uint64_t block = 0; block < length; ++block) blocks.push_back(chain * 4 + block);
      requests.push_back(Request(blocks));
    }
    const std::vector<std::size_t> capacities = {random() % 5, 1 + random() % 5, random() % 12};
    CHECK(ForecastLru(requests, capacities).hits == SlowHits(requests, capacities));
  }
}

}  // namespace
}  // namespace hmm::ctl
