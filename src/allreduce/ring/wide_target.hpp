#pragma once

/// Before a function: compiles it for these instructions of x86-64, as "avx512f", with vectors of
/// 512 bits. Compilers take 256 by themselves.
#ifdef __clang__
#define RINGTRAIN_WIDE_TARGET(features) __attribute__((target(features), min_vector_width(512)))
#else
#define RINGTRAIN_WIDE_TARGET(features) [[gnu::target(features ",prefer-vector-width=512")]]
#endif
