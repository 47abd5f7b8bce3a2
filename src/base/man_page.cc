// SPDX-License-Identifier: Apache-2.0
#include "base/man_page.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace hmm {
namespace {

// Text that troff shows as it is: no escapes, no requests, hyphens that can be copied.
std::string Escaped(std::string_view text) {
  std::string out;
  bool line_start = true;
  for (const char c : text) {
    if (line_start && (c == '.' || c == '\'')) out += "\\&";
    line_start = c == '\n';
    switch (c) {
      case '\\':
        out += "\\(rs";
        break;
      case '-':
        out += "\\-";
        break;
      case '\'':
        out += "\\(aq";
        break;
      case '`':
        out += "\\(ga";
        break;
      case '"':
        out += "\\(dq";
        break;
      case '^':
        out += "\\(ha";
        break;
      case '~':
        out += "\\(ti";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace

ManPage::ManPage(std::string_view name, int section, std::string_view version,
                 std::string_view brief) {
  const std::string shown = Escaped(name);
  text_ = absl::StrCat(".\\\" SPDX-License-Identifier: Apache-2.0\n.\\\" Generated.\n.TH ",
                       absl::AsciiStrToUpper(shown), " ", section, " \"\" \"hmmd ",
                       Escaped(version), "\"\n.SH NAME\n", shown, " \\- ", Escaped(brief), "\n");
}

void ManPage::Section(std::string_view title) {
  absl::StrAppend(&text_, ".SH \"", Escaped(title), "\"\n");
}

void ManPage::Subsection(std::string_view title) {
  absl::StrAppend(&text_, ".SS \"", Escaped(title), "\"\n");
}

void ManPage::Paragraph(std::string_view text) {
  absl::StrAppend(&text_, ".PP\n", Escaped(text), "\n");
}

void ManPage::Term(std::string_view term, std::string_view text) {
  absl::StrAppend(&text_, ".TP\n\\fB", Escaped(term), "\\fR\n", Escaped(text), "\n");
}

void ManPage::Example(std::string_view lines) {
  absl::StrAppend(&text_, ".PP\n.EX\n", Escaped(lines), lines.ends_with('\n') ? "" : "\n", ".EE\n");
}

}  // namespace hmm
