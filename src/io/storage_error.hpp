#pragma once
#include <cerrno>
#include <string_view>
#include <system_error>

#include "ringtrain/base/error.hpp"

namespace ringtrain {

/// Checks a POSIX call on the user's file system: its failures are the user's to mend.
inline int check_storage(int result, std::string_view call) {
  if (result >= 0) return result;
  throw Error(Exit::storage, call, std::generic_category().message(errno));
}

}  // namespace ringtrain
