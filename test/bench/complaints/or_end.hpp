#pragma once
#include <fmt/core.h>

#include <cstdlib>

#include "ringtrain/base/error.hpp"

namespace ringtrain {

/// Does `work` on the calling thread; a failure ends the process with its message, because other
/// threads would wait for the one that failed.
template <class Work>
void or_end(const Work& work) {
  try {
    work();
  } catch (const std::exception& failure) {
    write_stderr(fmt::format("parameter_server: {}\n", failure.what()));
    std::_Exit(static_cast<int>(Exit::internal));
  }
}

}  // namespace ringtrain
