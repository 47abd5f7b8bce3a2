// SPDX-License-Identifier: Apache-2.0
#include "copy/routing_copier.h"

#include <utility>

#include "base/check.h"

namespace hmm::copy {
namespace {

class RoutingCopier final : public Copier {
 public:
  RoutingCopier(std::unique_ptr<Copier> memory, std::unique_ptr<Copier> file)
      : memory_(std::move(memory)), file_(std::move(file)) {}

  void Submit(const CopyJob& job, CopyDone done) override {
    HMM_CHECK(job.from != nullptr && job.to != nullptr);
    const bool memory = job.from->mappable() && job.to->mappable();
    (memory ? memory_ : file_)->Submit(job, std::move(done));
  }

 private:
  std::unique_ptr<Copier> memory_;
  std::unique_ptr<Copier> file_;
};

}  // namespace

std::unique_ptr<Copier> CreateRoutingCopier(std::unique_ptr<Copier> memory,
                                            std::unique_ptr<Copier> file) {
  return std::make_unique<RoutingCopier>(std::move(memory), std::move(file));
}

}  // namespace hmm::copy
