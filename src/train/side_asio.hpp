#pragma once
// Without it, what asio allocates with depends on what a file has included before it.
#define ASIO_DISABLE_STD_ALIGNED_ALLOC
#include <asio.hpp>
