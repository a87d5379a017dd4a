#pragma once
#include "ringtrain/monitor/channel/messages.hpp"

namespace ringtrain::monitor {

inline constexpr JobToken job_token{std::byte{1}, std::byte{2}, std::byte{3}};

}  // namespace ringtrain::monitor
