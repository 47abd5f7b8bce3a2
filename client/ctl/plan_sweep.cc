// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/plan_sweep.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hmm::ctl {
namespace {

constexpr double kWidth = 720, kHeight = 400;
constexpr double kLeft = 70, kRight = 24, kTop = 48, kBottom = 76;
constexpr double kGib = static_cast<double>(kGiB);

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // XML has no way to write other control characters.
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

// 1, 2 or 5 times a power of ten, so that some five steps reach `top`.
double NiceStep(double top) {
  const double rough = top / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

class Chart {
 public:
  explicit Chart(const SweepReport& report) : report_(report) {
    for (const plan::SweepPoint& point : report.points) {
      left_ = std::min(left_, static_cast<double>(point.budget));
      right_ = std::max(right_, static_cast<double>(point.budget));
      if (point.verdict != plan::Verdict::kInfeasible) top_ = std::max(top_, Percent(point));
    }
    if (!(right_ > left_)) right_ = left_ + 1;
  }

  std::string Draw(const std::string& title, const std::string& note) {
    absl::StrAppendFormat(&out_,
                          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
                          "viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" font-size=\"12\">\n"
                          "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                          kWidth, kHeight, kWidth, kHeight);
    Text(kLeft, 24, "start", title, "font-size=\"15\" font-weight=\"bold\"");
    Axes();
    Curve();
    Text(kLeft, kHeight - 10, "start", note, "fill=\"#666\" font-size=\"10\"");
    return out_ + "</svg>\n";
  }

 private:
  static double Percent(const plan::SweepPoint& point) { return 100 * point.stall_share; }
  double X(double bytes) const {
    return kLeft + (bytes - left_) / (right_ - left_) * (kWidth - kLeft - kRight);
  }
  double Y(double percent) const {
    return kHeight - kBottom - percent / top_ * (kHeight - kTop - kBottom);
  }

  void Text(double x, double y, const char* anchor, const std::string& text,
            const char* more = "") {
    absl::StrAppendFormat(&out_, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" %s>%s</text>\n", x,
                          y, anchor, more, Escaped(text));
  }
  void Line(double x1, double y1, double x2, double y2, const char* color) {
    absl::StrAppendFormat(&out_,
                          "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n",
                          x1, y1, x2, y2, color);
  }

  void Axes() {
    const double step = NiceStep(top_);
    for (int i = 0; i * step <= top_ * 1.0001; ++i) {
      const double y = Y(i * step);
      Line(kLeft, y, kWidth - kRight, y, "#ddd");
      Text(kLeft - 6, y + 4, "end", absl::StrFormat("%g%%", i * step));
    }
    constexpr int kTicks = 6;
    for (int i = 0; i <= kTicks; ++i) {
      const double bytes = left_ + (right_ - left_) * i / kTicks;
      Line(X(bytes), Y(0), X(bytes), Y(0) + 4, "#333");
      Text(X(bytes), Y(0) + 18, "middle", absl::StrFormat("%.3g", bytes / kGib));
    }
    Line(kLeft, Y(0), kWidth - kRight, Y(0), "#333");
    Text((kLeft + kWidth - kRight) / 2, Y(0) + 36, "middle",
         "HBM budget in GiB; stall in percent of the compute time");
  }

  void Curve() {
    std::string path;
    std::string dots;
    for (const plan::SweepPoint& point : report_.points) {
      const double x = X(static_cast<double>(point.budget));
      if (point.verdict == plan::Verdict::kInfeasible) {
        Text(x, Y(0) - 4, "middle", "\xC3\x97", "fill=\"#c00\" font-size=\"16\"");
        continue;
      }
      absl::StrAppendFormat(&path, "%s%.1f,%.1f", path.empty() ? "M" : " L", x, Y(Percent(point)));
      absl::StrAppendFormat(&dots,
                            "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"#06c\"><title>%s: "
                            "%.3g%%</title></circle>\n",
                            x, Y(Percent(point)), FormatBytes(point.budget), Percent(point));
    }
    if (!path.empty()) {
      absl::StrAppend(&out_, "<path d=\"", path, "\" fill=\"none\" stroke=\"#06c\" ",
                      "stroke-width=\"2\"/>\n", dots);
    }
  }

  const SweepReport& report_;
  double left_ = 1e300, right_ = 0;
  double top_ = 1;  // percent
  std::string out_;
};

}  // namespace

std::string SweepSvg(const SweepReport& report, const std::string& title, const std::string& note) {
  return Chart(report).Draw(title, note);
}

}  // namespace hmm::ctl
