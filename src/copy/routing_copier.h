// SPDX-License-Identifier: Apache-2.0
//
// Two copiers as one: jobs between tiers of memory go to the first, those that read or write a file
// to the second. Submit is called on the executor's thread.
#pragma once

#include <memory>

#include "copy/copier.h"

namespace hmm::copy {

std::unique_ptr<Copier> CreateRoutingCopier(std::unique_ptr<Copier> memory,
                                            std::unique_ptr<Copier> file);

}  // namespace hmm::copy
