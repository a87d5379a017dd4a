#pragma once
#include "train/side_messages.hpp"

namespace ringtrain {

inline constexpr JobToken job_token{std::byte{1}, std::byte{2}, std::byte{3}};

}  // namespace ringtrain
