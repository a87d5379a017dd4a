#pragma once
#include <string_view>

#include "support/catch.hpp"

namespace ringtrain {

inline void no_warning(std::string_view text) { FAIL("warned: " << text); }

}  // namespace ringtrain
