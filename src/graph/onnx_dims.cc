// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx_dims.h"

#include <cctype>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

namespace hmm::graph {
namespace {

constexpr int kDepthMax = 64;
constexpr std::size_t kTextMax = 4096;
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();  // has no negative

// Division is exact until floor or ceiling, as in the symbolic tools that write such dimensions.
struct Ratio {
  std::int64_t num = 0;
  std::int64_t den = 1;  // > 0
};

std::int64_t FloorDiv(std::int64_t a, std::int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

// Recursive descent. After a failure the value is meaningless and the parse goes on to its end only
// as far as the text is well formed.
class Parser {
 public:
  Parser(std::string_view text, const DimBindings& bindings) : text_(text), bindings_(bindings) {}

  bool Parse(Ratio& out) {
    out = Sum();
    Skip();
    return well_formed_ && at_ == text_.size();
  }
  bool overflow() const { return overflow_; }
  const std::set<std::string>& unbound() const { return unbound_; }
  const std::set<std::string>& symbols() const { return symbols_; }

 private:
  void Skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool Take(std::string_view token) {
    Skip();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  Ratio Make(std::int64_t num, std::int64_t den) {
    if (den == 0 || num == kMin) {
      overflow_ = true;
      return {};
    }
    if (den < 0) num = -num, den = -den;
    const std::int64_t common = std::gcd(num, den);
    return {num / common, den / common};
  }
  std::int64_t Times(std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    if (!__builtin_mul_overflow(a, b, &result) && result != kMin) return result;
    overflow_ = true;
    return 0;
  }
  Ratio Plus(Ratio a, Ratio b, std::int64_t sign) {
    std::int64_t sum = 0;
    overflow_ |=
        __builtin_add_overflow(Times(a.num, b.den), Times(Times(sign, b.num), a.den), &sum);
    return Make(sum, Times(a.den, b.den));
  }
  static Ratio Floor(Ratio a) { return {FloorDiv(a.num, a.den), 1}; }
  static Ratio Ceiling(Ratio a) { return {-FloorDiv(-a.num, a.den), 1}; }
  bool Less(Ratio a, Ratio b) { return Times(a.num, b.den) < Times(b.num, a.den); }

  Ratio Sum() {
    if (++depth_ > kDepthMax) well_formed_ = false;
    Ratio value = well_formed_ ? Product() : Ratio{};
    while (well_formed_) {
      if (Take("+")) {
        value = Plus(value, Product(), 1);
      } else if (Take("-")) {
        value = Plus(value, Product(), -1);
      } else {
        break;
      }
    }
    --depth_;
    return value;
  }

  Ratio Product() {
    Ratio value = Unary();
    while (well_formed_) {
      if (Take("**")) {
        well_formed_ = false;
      } else if (Take("*")) {
        const Ratio by = Unary();
        value = Make(Times(value.num, by.num), Times(value.den, by.den));
      } else if (Take("//")) {
        const Ratio by = Unary();
        value = Floor(Make(Times(value.num, by.den), Times(value.den, by.num)));
      } else if (Take("/")) {
        const Ratio by = Unary();
        value = Make(Times(value.num, by.den), Times(value.den, by.num));
      } else if (Take("%")) {
        const Ratio by = Unary();
        const Ratio whole = Floor(Make(Times(value.num, by.den), Times(value.den, by.num)));
        value = Plus(value, Make(Times(whole.num, by.num), by.den), -1);
      } else {
        break;
      }
    }
    return value;
  }

  Ratio Unary() {
    std::int64_t sign = 1;
    while (Take("-")) sign = -sign;
    Ratio value = Atom();
    value.num = Times(value.num, sign);
    return value;
  }

  Ratio Atom() {
    Skip();
    if (Take("(")) {
      const Ratio value = Sum();
      well_formed_ = well_formed_ && Take(")");
      return value;
    }
    const auto digit = [&] {
      return at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0;
    };
    if (digit()) {
      Ratio value;
      for (; digit(); ++at_) {
        const std::int64_t low = text_[at_] - '0';
        value.num = Times(value.num, 10);
        if (value.num > std::numeric_limits<std::int64_t>::max() - low) {
          overflow_ = true;
          value.num = 0;
        }
        value.num += low;
      }
      return value;
    }
    const std::string name = Name();
    if (name.empty()) {
      well_formed_ = false;
      return {};
    }
    return Take("(") ? Call(name) : Symbol(name);
  }

  std::string Name() {
    const std::size_t begin = at_;
    const auto part = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == ':';
    };
    while (at_ < text_.size() && part(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  Ratio Call(const std::string& name) {
    std::vector<Ratio> values;
    do {
      values.push_back(Sum());
    } while (well_formed_ && Take(","));
    well_formed_ = well_formed_ && Take(")");
    const bool one = values.size() == 1;
    if (one && name == "floor") return Floor(values[0]);
    if (one && (name == "ceiling" || name == "ceil")) return Ceiling(values[0]);
    const bool max = name == "Max" || name == "max";
    if (!max && name != "Min" && name != "min") well_formed_ = false;
    Ratio best = values[0];
    for (const Ratio value : values) {
      if (max ? Less(best, value) : Less(value, best)) best = value;
    }
    return best;
  }

  Ratio Symbol(const std::string& name) {
    symbols_.insert(name);
    const auto found = bindings_.find(name);
    if (found != bindings_.end()) return {found->second, 1};
    unbound_.insert(name);
    return {1, 1};  // no value that could divide by 0; the result is not used
  }

  std::string_view text_;
  const DimBindings& bindings_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool well_formed_ = true;
  bool overflow_ = false;
  std::set<std::string> unbound_, symbols_;
};

}  // namespace

DimValue EvaluateDim(std::string_view text, const DimBindings& bindings) {
  DimValue result;
  const auto whole = bindings.find(std::string(text));
  if (whole != bindings.end()) {
    result.value = whole->second;
  } else {
    Parser parser(text.substr(0, kTextMax), bindings);
    Ratio ratio;
    if (text.size() > kTextMax || !parser.Parse(ratio)) {
      result.unbound.insert(std::string(text));
    } else if (!parser.unbound().empty()) {
      result.unbound = parser.unbound();
    } else if (parser.overflow()) {
      result.problem = "divides by 0 or leaves 64 bits";
    } else if (ratio.den != 1) {
      result.problem = "is no whole number";
    } else {
      result.value = ratio.num;
    }
  }
  if (result.value.has_value() && *result.value < 0) {
    result.problem = "is " + std::to_string(*result.value) + ", negative";
    result.value.reset();
  }
  return result;
}

std::set<std::string> DimSymbols(std::string_view text) {
  const DimBindings none;
  Parser parser(text.substr(0, kTextMax), none);
  Ratio ignored;
  if (text.size() > kTextMax || !parser.Parse(ignored)) return {std::string(text)};
  return parser.symbols();
}

}  // namespace hmm::graph
