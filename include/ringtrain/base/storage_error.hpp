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

/// What `call()` returns, made again as long as signals interrupt it, as network file systems let
/// happen.
template <class Call>
int uninterrupted(Call call) {
  int result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace ringtrain
