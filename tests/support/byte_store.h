// SPDX-License-Identifier: Apache-2.0
//
// How a test reaches the bytes of a tier that clients cannot map. A fake tier that is not mappable
// implements this besides Tier; FakeCopier finds it by dynamic_cast. Same thread as the tier.
#pragma once

#include <cstddef>

#include "tier/tier.h"

namespace hmm::testing {

class ByteStore {
 public:
  virtual ~ByteStore() = default;
  // First byte of `extent`, extent.length bytes long; stable while the extent is allocated. (Not
  // named Bytes: that would hide the type in every class that implements it.)
  virtual std::byte* BytesAt(const tier::Extent& extent) = 0;
};

}  // namespace hmm::testing
