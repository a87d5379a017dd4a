#pragma once
// Without it, what asio allocates with depends on what a file has included before it.
#define ASIO_DISABLE_STD_ALIGNED_ALLOC
// ThreadSanitizer knows no fences; asio's queues have locks besides.
#ifdef __SANITIZE_THREAD__
#define ASIO_DISABLE_FENCED_BLOCK
#endif
#include <asio.hpp>
