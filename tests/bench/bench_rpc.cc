// SPDX-License-Identifier: Apache-2.0
//
// Allocate and Acquire of one resident tensor against an empty unary call of the same server
// (Describe of nothing: authenticated, answered at once), and Acquire of 256 in one call against
// one at a time. All by the library's own stub, so that both sides of a pair differ in the verb
// alone.
#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "bench/bench_support.h"
#include "client/lib/attachment.h"

namespace hmm::bench {
namespace {

using client_internal::Attachment;

constexpr int kRounds = 9;
constexpr int kCalls = 400;
constexpr int kClients = 16;
constexpr std::chrono::milliseconds kSlice{300};

TimePoint Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(30); }

// One client: a session and a connection of its own.
class Caller {
 public:
  explicit Caller(const std::string& dir) {
    for (int tries = 0; tries < 3000 && attachment_ == nullptr; ++tries) {
      auto made = Attachment::Attach({dir, ""}, Soon());
      if (made.ok()) attachment_ = *std::move(made);
      if (!made.ok()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (attachment_ == nullptr) std::exit(1);
    for (std::size_t i = 0; i < 256; ++i) resident_.push_back(Allocate());
    v1::SealRequest request;
    for (const std::uint64_t handle : made_) {
      request.add_items()->set_handle(handle);
      attachment_->GiveBack(handle);
    }
    made_.clear();
    v1::SealResponse response;
    Must(attachment_->rpc().Call(request, response, Soon()));
  }

  void Empty() {
    v1::DescribeResponse response;
    Must(attachment_->rpc().Call(v1::DescribeRequest(), response, Soon()));
  }
  std::uint64_t Allocate() {
    v1::AllocateRequest request;
    Stamp(*request.mutable_call());
    request.add_tensors()->set_bytes(4096);
    v1::AllocateResponse response;
    Must(attachment_->rpc().Call(request, response, Soon()));
    made_.push_back(response.results(0).handle());
    return made_.back();
  }
  void Acquire(std::size_t count) {
    v1::AcquireRequest request;
    Stamp(*request.mutable_call());
    for (std::size_t i = 0; i < count; ++i) {
      request.add_handles(resident_[next_++ % resident_.size()]);
    }
    v1::AcquireResponse response;
    Must(attachment_->rpc().Call(request, response, Soon()));
    for (const std::uint64_t handle : request.handles()) attachment_->GiveBack(handle);
  }
  // What Allocate made is freed; not part of what is timed.
  void Clear() {
    if (made_.empty()) return;
    v1::FreeRequest request;
    for (const std::uint64_t handle : made_) {
      attachment_->GiveBack(handle);
      request.add_handles(handle);
      if (request.handles_size() < 4096 && handle != made_.back()) continue;
      v1::FreeResponse response;
      Must(attachment_->rpc().Call(request, response, Soon()));
      request.Clear();
    }
    made_.clear();
  }

 private:
  void Stamp(v1::CallHeader& header) {
    header.set_call_id(++last_call_);
    header.set_oldest_live_call_id(last_call_);
  }
  std::shared_ptr<Attachment> attachment_;
  std::uint64_t last_call_ = 0;
  std::size_t next_ = 0;
  std::vector<std::uint64_t> resident_;
  std::vector<std::uint64_t> made_;
};

using Verb = std::function<void(Caller&)>;

// The server's CPU seconds a call.
double CpuOf(OwnDaemon& daemon, Caller& caller, const Verb& verb) {
  const double before = daemon.CpuSeconds();
  for (int i = 0; i < kCalls; ++i) verb(caller);
  const double cpu = (daemon.CpuSeconds() - before) / kCalls;
  caller.Clear();
  return cpu;
}

// Medians of the latencies of two verbs, called in turn: what else the machine does meets both.
std::pair<double, double> P50Of(Caller& caller, const Verb& one, const Verb& other) {
  std::vector<double> first;
  std::vector<double> second;
  for (int i = 0; i < kCalls; ++i) {
    first.push_back(Seconds([&] { one(caller); }));
    second.push_back(Seconds([&] { other(caller); }));
  }
  caller.Clear();
  return {Median(first), Median(second)};
}

double CallsPerSecond(std::vector<std::unique_ptr<Caller>>& callers, const Verb& verb) {
  std::atomic<std::uint64_t> calls{0};
  const auto end = std::chrono::steady_clock::now() + kSlice;
  std::vector<std::thread> threads;
  const double took = Seconds([&] {
    for (auto& caller : callers) {
      threads.emplace_back([&, own = caller.get()] {
        while (std::chrono::steady_clock::now() < end) {
          verb(*own);
          calls.fetch_add(1, std::memory_order_relaxed);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  for (auto& caller : callers) caller->Clear();
  return static_cast<double>(calls.load()) / took;
}

void CompareToEmpty(OwnDaemon& daemon, std::vector<std::unique_ptr<Caller>>& callers,
                    const std::string& name, const Verb& verb) {
  const Verb empty = [](Caller& caller) { caller.Empty(); };
  Pairs p50;
  Pairs cpu;
  Pairs rate;
  for (int round = 0; round < kRounds; ++round) {
    const auto [our, theirs] = P50Of(*callers[0], verb, empty);
    p50.Add(our, theirs);
    const double limit = CpuOf(daemon, *callers[0], empty);
    cpu.Add(CpuOf(daemon, *callers[0], verb), limit);
  }
  for (int round = 0; round < 5; ++round) {
    const double theirs = CallsPerSecond(callers, empty);
    rate.Add(CallsPerSecond(callers, verb), theirs);
  }
  Row((name + "/p50").c_str(), p50, 1e6, "us", Bar::kAtMost, 1.25);
  Row((name + "/server_cpu").c_str(), cpu, 1e6, "us", Bar::kAtMost, 1.5);
  Row((name + "/rate_16_clients").c_str(), rate, 1, "calls/s", Bar::kAtLeast, 0.7);
}

int Run() {
  OwnDaemon daemon(R"(
[[tier]]
name = "hbm0"
kind = "hbm"
emulated = true
capacity = "512MiB"
)");
  std::vector<std::unique_ptr<Caller>> callers;
  for (int i = 0; i < kClients; ++i) callers.push_back(std::make_unique<Caller>(daemon.dir()));
  CompareToEmpty(daemon, callers, "rpc/allocate", [](Caller& caller) { caller.Allocate(); });
  CompareToEmpty(daemon, callers, "rpc/acquire", [](Caller& caller) { caller.Acquire(1); });

  // As users call it.
  auto client = Must(Client::Connect({.dir = daemon.dir()}));
  std::vector<Tensor> tensors;
  std::vector<Client::SealItem> items;
  for (auto& held :
       Must(client->AllocateBatch(std::vector<AllocateOptions>(256, {.bytes = 4096})))) {
    tensors.push_back(Must(std::move(held)).tensor);
    items.push_back({tensors.back(), Pin(), ""});
  }
  for (const absl::Status& sealed : Must(client->SealBatch(std::move(items)))) Must(sealed);
  Pairs batch;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> many;
    std::vector<double> one;
    for (int i = 0; i < kCalls; ++i) {
      many.push_back(Seconds([&] { Must(client->AcquireBatch(tensors).status()); }));
      one.push_back(Seconds(
          [&] { Must(client->Acquire(tensors[static_cast<std::size_t>(i) % 256]).status()); }));
    }
    batch.Add(256 / Median(many), 1 / Median(one));
  }
  Row("rpc/acquire_256_in_one_batch", batch, 1, "tensors/s", Bar::kAtLeast, 150);
  return 0;
}

}  // namespace
}  // namespace hmm::bench

int main() { return hmm::bench::Run(); }
