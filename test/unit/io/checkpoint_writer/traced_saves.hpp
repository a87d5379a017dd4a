#pragma once
#include <cstddef>

#include "support/call_tracer.hpp"
#include "support/catch.hpp"

namespace ringtrain::io {

inline constexpr std::size_t more_than_a_block = 600'000;  // floats

inline void skip_without_tracing() {
  if (!CallTracer::allowed()) skip_test("this process may not trace its children");
}

}  // namespace ringtrain::io
