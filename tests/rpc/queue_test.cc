// SPDX-License-Identifier: Apache-2.0
//
// The executor on a completion queue, and errors as gRPC carries them.
#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "base/status.h"
#include "daemon/cq_executor.h"
#include "daemon/rpc_status.h"
#include "google/rpc/errors.pb.h"
#include "support/catch.h"

namespace hmm::daemon {
namespace {

// An executor with its thread.
struct Running {
  CqExecutor executor{std::make_unique<grpc::CompletionQueue>()};
  std::thread thread{[this] { executor.Run(); }};
  ~Running() { Stop(); }
  void Stop() {
    executor.Shutdown();
    if (thread.joinable()) thread.join();
  }
};

}  // namespace

TEST_CASE("tasks of one thread run in the order posted, on the executor's thread") {
  Running running;
  std::vector<int> order;
  std::promise<std::thread::id> done;
  for (int i = 0; i < 10000; ++i) running.executor.Post([&, i] { order.push_back(i); });
  running.executor.Post([&] { done.set_value(std::this_thread::get_id()); });
  CHECK(done.get_future().get() == running.thread.get_id());
  REQUIRE(order.size() == 10000);
  CHECK(std::is_sorted(order.begin(), order.end()));
}

TEST_CASE("a task never runs inside Post, and may post") {
  Running running;
  std::promise<bool> inside;
  running.executor.Post([&] {
    auto posting = std::make_shared<bool>(true);
    running.executor.Post([&, posting] { inside.set_value(*posting); });
    *posting = false;
  });
  CHECK(!inside.get_future().get());
}

TEST_CASE("several threads post at once") {
  Running running;
  std::atomic<int> ran = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) running.executor.Post([&] { ++ran; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::promise<void> done;
  running.executor.Post([&] { done.set_value(); });
  done.get_future().wait();
  CHECK(ran == 8000);
}

TEST_CASE("a timer waits for its time") {
  Running running;
  std::promise<std::chrono::steady_clock::time_point> fired;
  const auto before = std::chrono::steady_clock::now();
  running.executor.PostAfter(std::chrono::milliseconds(20),
                             [&] { fired.set_value(std::chrono::steady_clock::now()); });
  // gRPC's timers count whole milliseconds.
  CHECK(fired.get_future().get() - before >= std::chrono::milliseconds(19));
}

TEST_CASE("after shutdown tasks are destroyed unrun") {
  auto witness = std::make_shared<int>(0);
  {
    Running running;
    running.executor.PostAfter(std::chrono::hours(1), [witness] { ++*witness; });
    running.Stop();
    running.executor.Post([witness] { ++*witness; });
    running.executor.PostAfter(std::chrono::milliseconds(0), [witness] { ++*witness; });
    CHECK(witness.use_count() == 1);
  }
  CHECK(*witness == 0);
}

TEST_CASE("an executor that never ran gives up its tasks") {
  auto witness = std::make_shared<int>(0);
  {
    CqExecutor executor(std::make_unique<grpc::CompletionQueue>());
    executor.Post([witness] { ++*witness; });
    executor.PostAfter(std::chrono::milliseconds(1), [witness] { ++*witness; });
  }
  CHECK(*witness == 0);
  CHECK(witness.use_count() == 1);
}

TEST_CASE("RunFor comes back, and false once it is over") {
  CqExecutor executor(std::make_unique<grpc::CompletionQueue>());
  int ran = 0;
  executor.Post([&] { ++ran; });
  CHECK(executor.RunFor(std::chrono::milliseconds(1)));
  CHECK(ran == 1);
  executor.Shutdown();
  CHECK(!executor.RunFor(std::chrono::milliseconds(1)));
}

TEST_CASE("an error carries code, reason, epoch and delay, and stays small") {
  const absl::Status full =
      WithRetry(Error(absl::StatusCode::kResourceExhausted, Reason::kFull, "no room"),
                std::chrono::milliseconds(1500));
  const grpc::Status status = ToGrpcStatus(full, 7);
  CHECK(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(status.error_message() == "no room");
  google::rpc::Status details;
  REQUIRE(details.ParseFromString(status.error_details()));
  REQUIRE(details.details_size() == 2);
  CHECK(details.details(0).type_url() == "type.googleapis.com/google.rpc.ErrorInfo");
  CHECK(details.details(1).type_url() == "type.googleapis.com/google.rpc.RetryInfo");
  google::rpc::RetryInfo retry;
  REQUIRE(details.details(1).UnpackTo(&retry));
  CHECK(retry.retry_delay().seconds() == 1);
  CHECK(retry.retry_delay().nanos() == 500'000'000);

  const grpc::Status large = ToGrpcStatus(
      Error(absl::StatusCode::kInternal, Reason::kInternal, std::string(100'000, '\xff')), 7);
  CHECK(large.error_message().size() + large.error_details().size() < 4096);
  CHECK(large.error_message().ends_with("..."));
  CHECK(ToGrpcStatus(absl::OkStatus(), 7).ok());
}

TEST_CASE("messages are printable, whatever a key was") {
  CHECK(PrintableMessage("plain", 64) == "plain");
  CHECK(PrintableMessage("a\nb\xff", 64) == "a\\x0ab\\xff");
  CHECK(PrintableMessage(std::string(100, 'x'), 20) == std::string(17, 'x') + "...");
}

}  // namespace hmm::daemon
