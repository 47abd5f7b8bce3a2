// SPDX-License-Identifier: Apache-2.0
//
// Writes a manual page (troff with the man macros). What makes the pages of hmmd and hmmctl from
// their tables of options and keys. A value; one thread.
#pragma once

#include <string>
#include <string_view>

namespace hmm {

class ManPage {
 public:
  // "hmmd", 8, "0.1.0", "the hierarchical memory manager of a node".
  ManPage(std::string_view name, int section, std::string_view version, std::string_view brief);

  void Section(std::string_view title);
  void Subsection(std::string_view title);
  void Paragraph(std::string_view text);
  // A term and what it means: options, keys, files.
  void Term(std::string_view term, std::string_view text);
  // Lines as they stand.
  void Example(std::string_view lines);

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace hmm
