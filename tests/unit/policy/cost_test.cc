// SPDX-License-Identifier: Apache-2.0
#include "policy/cost.h"

#include "support/catch.h"

namespace hmm::policy {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

CostFactors Typical() {
  CostFactors factors;
  factors.accesses = 10;
  factors.age = seconds(100);
  factors.bring_back = milliseconds(1);
  factors.recompute = milliseconds(10);
  factors.kind = TensorKind::kKvCache;
  factors.bytes = 1000;
  return factors;
}

TEST_CASE("the product of the factors, per byte") {
  // A tenth of a use a second, ten seconds ahead: 1 - 1/e. A millisecond for 1000 bytes.
  const EvictionCost cost = CostOfEviction(Typical());
  CHECK(cost.uses_per_s == Approx(0.1));
  CHECK(cost.use_probability == Approx(0.6321205588));
  CHECK(cost.weight == 1);
  CHECK(cost.us_per_byte == Approx(0.6321205588));
}

TEST_CASE("the cheaper of bringing back and recomputing counts") {
  CostFactors factors = Typical();
  factors.recompute = std::chrono::microseconds(100);
  CHECK(CostOfEviction(factors).us_per_byte == Approx(0.06321205588));
  factors.bring_back.reset();
  CHECK(CostOfEviction(factors).us_per_byte == Approx(0.06321205588));
  factors.recompute.reset();
  CHECK(CostOfEviction(factors).us_per_byte == 0);
}

TEST_CASE("uses long ago count half as much each minute") {
  CostFactors factors = Typical();
  factors.idle = seconds(60);
  CHECK(CostOfEviction(factors).uses_per_s == Approx(0.05));
  factors.idle = std::chrono::hours(10);
  CHECK(CostOfEviction(factors).use_probability == Approx(0).margin(1e-12));
}

TEST_CASE("kind and priority weigh") {
  CostFactors factors = Typical();
  factors.kind = TensorKind::kWeight;
  factors.priority = 2;
  CHECK(CostOfEviction(factors).weight == 16);
  factors.priority = 4'000'000'000;  // nobody's; bounded all the same
  CHECK(CostOfEviction(factors).weight == 4 * 128);
}

TEST_CASE("a new tensor, no bytes, no uses") {
  CostFactors factors = Typical();
  factors.age = Duration{};
  CHECK(CostOfEviction(factors).uses_per_s == Approx(10));
  factors.bytes = 0;
  CHECK(CostOfEviction(factors).us_per_byte == 0);
  CHECK(CostOfEviction(CostFactors{}).use_probability == 0);
}

}  // namespace
}  // namespace hmm::policy
