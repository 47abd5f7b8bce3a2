// SPDX-License-Identifier: Apache-2.0
//
// How many copies have been handed to copiers and have not ended, by tier: what a daemon whose
// medium hangs can say of it without the threads that hang. Any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace hmm::copy {

class UnderWay {
 public:
  void Begin(const std::string& tier) {
    const std::lock_guard lock(mutex_);
    ++copies_[tier];
  }
  // REQUIRES: a Begin of this tier.
  void End(std::string_view tier) {
    const std::lock_guard lock(mutex_);
    const auto found = copies_.find(tier);
    if (--found->second == 0) copies_.erase(found);
  }
  // Tiers without any are not in it.
  std::map<std::string, std::size_t, std::less<>> Copies() const {
    const std::lock_guard lock(mutex_);
    return copies_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::size_t, std::less<>> copies_;
};

}  // namespace hmm::copy
