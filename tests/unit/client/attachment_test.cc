// SPDX-License-Identifier: Apache-2.0
//
// Pins, hang-up and fork against a daemon's session socket that the test plays itself. No RPC is
// made, but for those that must find nobody.
#include "client/lib/attachment.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "base/status.h"
#include "support/catch.h"
#include "support/fake_session_server.h"
#include "support/wait_until.h"

namespace hmm::client_internal {
namespace {

using testing::FakeSessionServer;
using testing::WaitUntil;
using AttachmentPtr = std::shared_ptr<Attachment>;

constexpr SegmentId kHbm = 0x00001;
constexpr SegmentId kDdr = 0x10001;
constexpr std::uint64_t kHandle = Handle{3, 9}.Pack();  // slot 3, generation 9

TimePoint Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(30); }

AttachmentPtr Attach(const FakeSessionServer& server) {
  absl::StatusOr<AttachmentPtr> attachment = Attachment::Attach({server.dir(), ""}, Soon());
  REQUIRE(attachment.ok());
  return *std::move(attachment);
}

// A server with one resident tensor of 4 KiB in ddr0, and a client attached to it.
struct Fixture {
  FakeSessionServer server;
  AttachmentPtr attachment;
  Tensor tensor;

  Fixture() {
    server.AddSegment(kHbm);
    server.AddSegment(kDdr);
    server.Publish(3, 9, TensorState::kResident, kDdr, 8192, 4096);
    std::memset(server.segment_data(kDdr) + 8192, 0x5a, 4096);
    attachment = Attach(server);
    tensor = Attachment::MakeTensor(attachment, kHandle, 4096);
  }
};

TEST_CASE("a resident tensor is pinned in place, its segment pulled once") {
  Fixture f;
  {
    const std::optional<Pin> pin = f.tensor.TryPin();
    REQUIRE(pin.has_value());
    CHECK(pin->size() == 4096);
    CHECK(pin->tier() == "ddr0");
    CHECK(pin->data()[0] == std::byte{0x5a});
    CHECK(pin->data()[4095] == std::byte{0x5a});
    CHECK(f.server.pins(3) == 1);
    CHECK(f.tensor.TryPin().has_value());
    CHECK(f.server.requests() == 1);
  }
  CHECK(f.server.pins(3) == 0);
}

TEST_CASE("what is not resident, or another's, is not pinned") {
  Fixture f;
  for (const TensorState state : {TensorState::kGone, TensorState::kCreating, TensorState::kMoving,
                                  TensorState::kAbsent, TensorState::kDoomed}) {
    f.server.Publish(3, 9, state, kDdr, 8192, 4096);
    CHECK_FALSE(f.tensor.TryPin().has_value());
  }
  f.server.Publish(3, 10, TensorState::kResident, kDdr, 8192, 4096);
  CHECK_FALSE(f.tensor.TryPin().has_value());
  CHECK(f.server.pins(3) == 0);
  CHECK_FALSE(Tensor().TryPin().has_value());
  const std::uint64_t beyond = Handle{FakeSessionServer::kTensors, 9}.Pack();
  CHECK_FALSE(Attachment::MakeTensor(f.attachment, beyond, 1).TryPin().has_value());
}

TEST_CASE("the location is read anew after each pin") {
  Fixture f;
  const std::byte* before = f.tensor.TryPin()->data();
  f.server.Publish(3, 9, TensorState::kResident, kHbm, 0, 4096);
  const std::optional<Pin> after = f.tensor.TryPin();
  REQUIRE(after.has_value());
  CHECK(after->tier() == "hbm0");
  CHECK(after->data() != before);
}

TEST_CASE("a location outside its segment, or in none, is not handed out") {
  Fixture f;
  f.server.Publish(3, 9, TensorState::kResident, kDdr, FakeSessionServer::kSegmentBytes - 1, 2);
  CHECK_FALSE(f.tensor.TryPin().has_value());
  f.server.Publish(3, 9, TensorState::kResident, 0x10077, 0, 16);
  CHECK_FALSE(f.tensor.TryPin().has_value());
  CHECK(f.server.pins(3) == 0);
}

TEST_CASE("a segment shorter than its reply says is not mapped") {
  FakeSessionServer server;
  server.AddSegment(kDdr, FakeSessionServer::kSegmentBytes + 4096);
  server.Publish(3, 9, TensorState::kResident, kDdr, FakeSessionServer::kSegmentBytes, 16);
  const AttachmentPtr attachment = Attach(server);
  CHECK_FALSE(Attachment::MakeTensor(attachment, kHandle, 16).TryPin().has_value());
  CHECK(server.pins(3) == 0);
}

TEST_CASE("a pin from the daemon whose segment cannot be mapped is given back") {
  Fixture f;
  f.server.PinForClient(3);
  const auto good = f.attachment->Adopt(kHandle, {kDdr, 8192, 4096}, Soon());
  REQUIRE(good.ok());
  CHECK(f.server.pins(3) == 1);
  f.server.PinForClient(3);
  const auto bad = f.attachment->Adopt(kHandle, {0x10077, 0, 16}, Soon());
  CHECK(bad.status().code() == absl::StatusCode::kNotFound);
  f.server.PinForClient(3);
  CHECK_FALSE(f.attachment->Adopt(kHandle, {kDdr, 0, 1 << 30}, Soon()).ok());
  CHECK(f.server.pins(3) == 1);
}

TEST_CASE("a pin moves, is given back once, and once only") {
  Fixture f;
  Pin pin = *f.tensor.TryPin();
  Pin other = std::move(pin);
  CHECK_FALSE(pin.valid());
  CHECK(f.server.pins(3) == 1);
  pin = *f.tensor.TryPin();
  CHECK(f.server.pins(3) == 2);
  pin = std::move(other);
  CHECK(f.server.pins(3) == 1);
  CHECK(pin.Release().ok());
  CHECK(f.server.pins(3) == 0);
  CHECK_FALSE(pin.valid());
  const absl::Status again = pin.Release();
  CHECK(again.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(ReasonOf(again) == Reason::kNotPinned);
  CHECK(f.server.pins(3) == 0);
}

TEST_CASE("32,767 pins of one tensor are the most") {
  Fixture f;
  std::vector<Pin> pins;
  for (std::uint32_t i = 0; i < share::kPinMax; ++i) {
    std::optional<Pin> pin = f.tensor.TryPin();
    REQUIRE(pin.has_value());
    pins.push_back(*std::move(pin));
  }
  CHECK_FALSE(f.tensor.TryPin().has_value());
  pins.pop_back();
  CHECK(f.tensor.TryPin().has_value());
}

TEST_CASE("threads that pin at once leave no pin behind and pull each segment once") {
  Fixture f;
  std::vector<std::thread> threads;
  std::atomic<int> misses{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        const std::optional<Pin> pin = f.tensor.TryPin();
        if (!pin.has_value() || pin->data()[i % 4096] != std::byte{0x5a}) ++misses;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(misses == 0);
  CHECK(f.server.pins(3) == 0);
  CHECK(f.server.requests() == 1);
}

// Whether the page at this address of ours is mapped.
bool IsMapped(const std::byte* at) {
  const auto page = reinterpret_cast<std::uintptr_t>(at) & ~std::uintptr_t{4095};
  return ::msync(reinterpret_cast<void*>(page), 1, MS_ASYNC) == 0;
}

TEST_CASE("a hang-up makes everything lost; bytes under a pin stay until it goes") {
  Fixture f;
  std::optional<Pin> pin = f.tensor.TryPin();
  const std::byte* const bytes = pin->data();
  CHECK_FALSE(f.tensor.lost());
  f.server.HangUp();
  CHECK(WaitUntil([&] { return f.tensor.lost(); }));
  CHECK_FALSE(f.tensor.TryPin().has_value());
  CHECK(pin->data()[100] == std::byte{0x5a});
  CHECK(pin->tier() == "ddr0");
  // The last pin unmaps, though tensor and attachment are still there.
  pin.reset();
  CHECK(WaitUntil([&] { return !IsMapped(bytes); }));
  CHECK_FALSE(f.tensor.TryPin().has_value());
}

TEST_CASE("a pin outlives tensor, attachment and daemon, and is the last to go") {
  std::optional<Pin> pin;
  {
    Fixture f;
    pin = f.tensor.TryPin();
    f.tensor = Tensor();
    f.attachment.reset();
    CHECK(f.server.pins(3) == 1);
  }
  const std::byte* const bytes = pin->data();
  CHECK(bytes[100] == std::byte{0x5a});
  CHECK(pin->tier() == "ddr0");
  std::thread([&] { pin.reset(); }).join();  // not the thread that took it
  CHECK(WaitUntil([&] { return !IsMapped(bytes); }));
}

TEST_CASE("a closed attachment is lost to its tensors, and the daemon sees the hang-up") {
  Fixture f;
  f.attachment->Close();
  CHECK(f.tensor.lost());
  CHECK_FALSE(f.tensor.TryPin().has_value());
  f.server.PinForClient(3);
  CHECK(ReasonOf(f.attachment->Adopt(kHandle, {kDdr, 8192, 4096}, Soon()).status()) ==
        Reason::kLost);
  CHECK(f.server.pins(3) == 0);
}

// Pinning against the moment of loss: whoever gets a pin can read, whoever does not holds nothing.
TEST_CASE("threads that pin while the daemon goes read or get nothing") {
  for (int round = 0; round < 20; ++round) {
    Fixture f;
    std::atomic<int> wrong{0};
    std::atomic<int> reading{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (;;) {
          const std::optional<Pin> pin = f.tensor.TryPin();
          if (!pin.has_value()) return;
          ++reading;
          if (pin->data()[reading % 4096] != std::byte{0x5a}) ++wrong;
        }
      });
    }
    CHECK(WaitUntil([&] { return reading > 50; }));
    f.server.HangUp();
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
    CHECK(f.server.pins(3) == 0);
  }
}

TEST_CASE("a failed call without a hang-up is not a lost daemon") {
  Fixture f;
  CHECK_FALSE(f.attachment->ConfirmLost());
  f.server.HangUp();
  CHECK(f.attachment->ConfirmLost());
}

TEST_CASE("a release that finds nobody is tried until the attachment is lost") {
  Fixture f;
  const auto ids = f.attachment->calls().Begin();
  REQUIRE(ids.ok());
  f.attachment->EndPinningCall(ids->call_id, /*ok=*/false);
  CHECK(f.attachment->calls().owes());
  f.server.HangUp();
  CHECK(f.attachment->calls().WaitUntilNoneOwed(Soon()));
}

// What the child finds, as its exit status; it must not return into the test.
template <typename Body>
int InChild(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST_CASE("a fork child finds everything poisoned and undoes nothing") {
  auto f = std::make_unique<Fixture>();
  auto pin = std::make_unique<Pin>(*f->tensor.TryPin());
  const int found = InChild([&] {
    if (!f->attachment->forked()) return 1;
    if (f->tensor.TryPin().has_value()) return 2;
    if (ReasonOf(pin->Release()) != Reason::kForked) return 3;
    pin.reset();
    f->attachment.reset();  // the last reference in this process
    return 0;
  });
  CHECK(found == 0);
  CHECK_FALSE(f->attachment->forked());
  CHECK(f->server.pins(3) == 1);
  CHECK(pin->data()[7] == std::byte{0x5a});
  CHECK(f->tensor.TryPin().has_value());
  pin.reset();
  CHECK(f->server.pins(3) == 0);
}

TEST_CASE("a child cannot reach the parent's pins by mistake: they are not mapped there") {
  Fixture f;
  const Pin pin = *f.tensor.TryPin();
  const volatile std::byte* data = pin.data();
  CHECK(InChild([&] {
          // The kernel's word, whatever a sanitizer makes of signals.
          ::signal(SIGSEGV, SIG_DFL);
          return data[0] == std::byte{0x5a} ? 1 : 2;
        }) == 1000 + SIGSEGV);
}

}  // namespace
}  // namespace hmm::client_internal
