#include "io/files/csv.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

class CsvReader {
 public:
  explicit CsvReader(std::string_view text) : text_(text) {}

  std::vector<std::vector<std::string>> rows() {
    std::vector<std::vector<std::string>> all;
    while (at_ < text_.size()) {
      std::vector<std::string> row = this->row();
      if (row.size() > 1 || !row[0].empty()) all.push_back(std::move(row));
    }
    return all;
  }

 private:
  std::vector<std::string> row() {
    std::vector<std::string> fields;
    do fields.push_back(at_ < text_.size() && text_[at_] == '"' ? quoted() : plain());
    while (take(','));
    take('\r');
    if (!take('\n') && at_ < text_.size()) fail("a quote ends amid its field");
    ++line_;
    return fields;
  }

  std::string plain() {
    const std::size_t end = std::min(text_.find_first_of(",\r\n", at_), text_.size());
    const std::string_view field = text_.substr(at_, end - at_);
    at_ = end;
    return std::string(field);
  }

  std::string quoted() {
    std::string field;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '"' && (at_ + 1 == text_.size() || text_[at_ + 1] != '"')) {
        ++at_;
        return field;
      }
      at_ += text_[at_] == '"';
      field += text_[at_];
    }
    fail("a quote does not end");
  }

  bool take(char c) {
    const bool there = at_ < text_.size() && text_[at_] == c;
    at_ += there;
    return there;
  }

  [[noreturn]] void fail(std::string_view why) const {
    throw BadValue(fmt::format("line {}: {}", line_, why));
  }

  const std::string_view text_;
  std::size_t at_ = 0, line_ = 1;
};

}  // namespace

std::vector<std::vector<std::string>> csv_rows(std::string_view text) {
  constexpr std::string_view utf8_mark = "\xef\xbb\xbf";  // as spreadsheets write it
  if (text.starts_with(utf8_mark)) text.remove_prefix(utf8_mark.size());
  return CsvReader(text).rows();
}

}  // namespace ringtrain::io
