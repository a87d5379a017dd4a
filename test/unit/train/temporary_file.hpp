#pragma once
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "ringtrain/base/error.hpp"

namespace ringtrain {

/// A file that is there while the object is.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text = "") {
    path_ = (std::filesystem::temp_directory_path() / "ringtrain-XXXXXX").string();
    ::close(check_errno(::mkstemp(path_.data()), "mkstemp"));
    std::ofstream(path_) << text;
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { std::filesystem::remove(path_); }

  const std::string& path() const { return path_; }
  std::string text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::string path_;
};

}  // namespace ringtrain
