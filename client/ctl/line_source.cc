// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/line_source.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace hmm::ctl {
namespace {

class GzipLines final : public LineSource {
 public:
  GzipLines(gzFile file, std::string path, std::uint64_t text_bytes_max, std::size_t line_bytes_max)
      : file_(file),
        path_(std::move(path)),
        text_bytes_max_(text_bytes_max),
        line_bytes_max_(line_bytes_max) {}
  ~GzipLines() override { gzclose_r(file_); }

  absl::StatusOr<bool> Next(std::string* line) override {
    line->clear();
    ++number_;
    bool any = false;
    for (;;) {
      if (begin_ == end_) {
        HMM_RETURN_IF_ERROR(Fill());
        if (begin_ == end_) return any;  // the last line may lack its end
      }
      any = true;
      const std::string_view rest(buffer_.data() + begin_, end_ - begin_);
      const std::size_t length = rest.find('\n');
      const bool whole = length != std::string_view::npos;
      const std::string_view part = rest.substr(0, length);
      if (line->size() + part.size() > line_bytes_max_) {
        return Bad(absl::StrCat("the line is longer than ", line_bytes_max_, " bytes"));
      }
      line->append(part);
      begin_ += part.size() + (whole ? 1 : 0);
      if (whole) return true;
    }
  }

 private:
  absl::Status Bad(const std::string& why) const {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadTrace,
                 absl::StrCat(path_, ":", number_, ": ", why));
  }

  absl::Status Fill() {
    begin_ = end_ = 0;
    errno = 0;
    const int got = gzread(file_, buffer_.data(), static_cast<unsigned>(buffer_.size()));
    int code = Z_OK;
    const char* text = gzerror(file_, &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
      if (code == Z_ERRNO) return PosixError(path_, errno);
      if (code == Z_BUF_ERROR) return Bad("the gzip data is cut short here");
      return Bad(absl::StrCat("the gzip data is corrupt: ", text));
    }
    end_ = static_cast<std::size_t>(got);
    total_ += end_;
    if (total_ > text_bytes_max_) {
      return Bad(absl::StrCat("more than ", text_bytes_max_, " bytes of text"));
    }
    return absl::OkStatus();
  }

  gzFile file_;
  const std::string path_;
  const std::uint64_t text_bytes_max_;
  const std::size_t line_bytes_max_;
  std::array<char, 64 * 1024> buffer_{};
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::uint64_t total_ = 0;
  std::uint64_t number_ = 0;
};

class TextLines final : public LineSource {
 public:
  explicit TextLines(std::string_view text) : rest_(text) {}
  absl::StatusOr<bool> Next(std::string* line) override {
    if (rest_.empty()) return false;
    const std::size_t length = rest_.find('\n');
    line->assign(rest_.substr(0, length));
    rest_.remove_prefix(length == std::string_view::npos ? rest_.size() : length + 1);
    return true;
  }

 private:
  std::string_view rest_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LineSource>> OpenLines(const std::string& path,
                                                      std::uint64_t text_bytes_max,
                                                      std::size_t line_bytes_max) {
  // A pipe that nobody writes into is empty, not waited for; one with a writer is read to its end.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return PosixError(path, errno);
  fcntl(fd, F_SETFL, 0);
  gzFile file = gzdopen(fd, "rb");
  if (file == nullptr) {
    close(fd);
    return PosixError(path, ENOMEM);
  }
  return std::make_unique<GzipLines>(file, path, text_bytes_max, line_bytes_max);
}

std::unique_ptr<LineSource> LinesOf(std::string_view text) {
  return std::make_unique<TextLines>(text);
}

}  // namespace hmm::ctl
