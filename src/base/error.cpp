#include "ringtrain/base/error.hpp"

#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "ringtrain/base/file_descriptor.hpp"

namespace ringtrain {

Error::Error(std::string_view what, std::string_view reason, std::source_location at)
    : std::runtime_error(std::string(what) + ": " + std::string(reason) + " [" + at.file_name() +
                         ":" + std::to_string(at.line()) + "]") {}

Error::Error(Exit code, std::string_view what, std::string_view reason)
    : std::runtime_error(std::string(what) + ": " + std::string(reason)), code_(code) {}

void write_stderr(std::string_view text) noexcept { write_all(STDERR_FILENO, text); }

int check_errno(int result, std::string_view call, std::source_location at) {
  if (result >= 0) return result;
  throw Error(call, std::generic_category().message(errno), at);
}

}  // namespace ringtrain
