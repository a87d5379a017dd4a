#pragma once
#include <catch2/catch.hpp>
#include <string_view>

namespace ringtrain {

inline void no_warning(std::string_view text) { FAIL("warned: " << text); }

}  // namespace ringtrain
