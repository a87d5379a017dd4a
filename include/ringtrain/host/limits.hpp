#pragma once
#include <exception>
#include <optional>
#include <string>

#include "ringtrain/base/error.hpp"

namespace ringtrain::host {

/// Why no more threads and processes can be started: the limit that is likely to be reached, its
/// value and what to do.
std::string why_no_thread();

/// The failure as an Error. Where a thread or process could not be started, or no memory was to be
/// had, that is Exit::limit with the limit.
Error as_error(const std::exception& failure);

/// Why a library ends the process by exit(`code`), where that is because it cannot start a thread,
/// as OpenMP does. For a function of on_exit().
std::optional<Error> failure_of_exit(int code);

}  // namespace ringtrain::host
