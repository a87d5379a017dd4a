#pragma once
#include <functional>
#include <ostream>
#include <string>

namespace ringtrain {

/// Why publish() could not write `path`, tried without a trace; empty: it could.
std::string why_unwritable(const std::string& path);
/// Lets `write` fill a file beside `path` that then takes its name, so that nobody sees half of it.
/// Returns why not; empty: it is there.
std::string publish(const std::string& path, const std::function<void(std::ostream&)>& write);

}  // namespace ringtrain
