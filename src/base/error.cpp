#include "ringtrain/base/error.hpp"

#include <cerrno>
#include <system_error>

namespace ringtrain {

Error::Error(std::string_view what, std::string_view reason, std::source_location at)
    : std::runtime_error(std::string(what) + ": " + std::string(reason) + " [" + at.file_name() +
                         ":" + std::to_string(at.line()) + "]") {}

Error::Error(Exit code, std::string_view what, std::string_view reason)
    : std::runtime_error(std::string(what) + ": " + std::string(reason)), code_(code) {}

int check_errno(int result, std::string_view call, std::source_location at) {
  if (result >= 0) return result;
  throw Error(call, std::generic_category().message(errno), at);
}

}  // namespace ringtrain
