#pragma once
#include <string_view>

#include "ringtrain/base/error.hpp"

namespace ringtrain::io {

/// One sample that cannot be decoded. The loader replaces it and counts. Any other failure ends the
/// job, as a file does that is gone or may not be read, or a disk.
class UnreadableSample : public Error {
 public:
  UnreadableSample(std::string_view what, std::string_view reason)
      : Error(Exit::data, what, reason) {}
};

}  // namespace ringtrain::io
