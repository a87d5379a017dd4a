#pragma once

namespace ringtrain {

/// Whether a sanitizer looks at this build, which takes five to ten times as long: tests that
/// compare numbers over many sizes and choices take fewer of those that lead to no other memory.
/// Sizes at the edge of a pack or a tile stay.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

/// Whether ThreadSanitizer does, which takes ten to a hundred times as long, and hands on signals
/// in functions of its own.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool thread_sanitized = true;
#else
inline constexpr bool thread_sanitized = false;
#endif

}  // namespace ringtrain
