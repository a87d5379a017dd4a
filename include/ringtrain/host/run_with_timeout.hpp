#pragma once
#include <chrono>
#include <functional>
#include <string>

namespace ringtrain::host {

/// What `work`, which throws nothing and owns what it uses, returns on a thread of its own; `late`
/// where that takes longer than `time`. For a process that is about to end.
std::string run_with_timeout(std::chrono::milliseconds time, std::function<std::string()> work,
                             const std::string& late);

}  // namespace ringtrain::host
