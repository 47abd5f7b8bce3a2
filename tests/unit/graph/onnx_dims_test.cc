// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx_dims.h"

#include "support/catch.h"

namespace hmm::graph {

TEST_CASE("dimension expressions") {
  const DimBindings bindings = {{"n", 5}, {"m", 3}, {"a.b_1", 7}, {"odd name", 9}};
  const auto value = [&](const char* text) {
    INFO(text);
    const DimValue result = EvaluateDim(text, bindings);
    REQUIRE(result.value.has_value());
    return *result.value;
  };
  CHECK(value("n") == 5);
  CHECK(value("odd name") == 9);
  CHECK(value("16*n") == 80);
  CHECK(value("n*(m - 1)") == 10);
  CHECK(value("n + m*2 - 1") == 10);
  CHECK(value("(n+1)/2") == 3);
  CHECK(value("n // 2") == 2);
  CHECK(value("(m - n) // 2 + 2") == 1);
  CHECK(value("n % 3") == 2);
  CHECK(value("floor(n/2 - 1/2) + 1") == 3);
  CHECK(value("ceiling(n/2)") == 3);
  CHECK(value("Max(n, m, 4)") == 5);
  CHECK(value("Min(n, m)") == 3);
  CHECK(value("-(-n)") == 5);
  CHECK(value("a.b_1") == 7);
}

TEST_CASE("dimension expressions that have no value say why") {
  const DimBindings bindings = {{"n", 5}};
  CHECK(EvaluateDim("n*q + r", bindings).unbound == std::set<std::string>{"q", "r"});
  CHECK(EvaluateDim("q r", bindings).unbound == std::set<std::string>{"q r"});
  CHECK(EvaluateDim("", bindings).unbound == std::set<std::string>{""});
  CHECK(EvaluateDim("n - 6", bindings).problem == "is -1, negative");
  CHECK(EvaluateDim("n/2", bindings).problem == "is no whole number");
  CHECK(EvaluateDim("n/0", bindings).problem == "divides by 0 or leaves 64 bits");
  CHECK(EvaluateDim("9223372036854775807*n", bindings).problem == "divides by 0 or leaves 64 bits");
  CHECK(EvaluateDim("99999999999999999999", bindings).problem == "divides by 0 or leaves 64 bits");
  const std::string deep(100'000, '(');
  CHECK(EvaluateDim(deep, bindings).unbound.size() == 1);
  CHECK(
      EvaluateDim(std::string(2000, '(') + "n" + std::string(2000, ')'), bindings).unbound.size() ==
      1);
  CHECK(DimSymbols("floor(a/2) + b*3") == std::set<std::string>{"a", "b"});
}

}  // namespace hmm::graph
