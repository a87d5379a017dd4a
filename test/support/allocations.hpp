#pragma once
#include <cstddef>

namespace ringtrain {

/// Calls of operator new so far, on any thread: linking allocations.cpp replaces it.
std::size_t allocations();

}  // namespace ringtrain
