#pragma once
#include <cstdint>
#include <vector>

/// Decodes all of a JPEG to RGB with libjpeg and nothing else, as fast as that goes; returns its
/// pixels. Ends the program on anything that is no sound JPEG.
std::uint64_t bare_decode(const std::vector<std::uint8_t>& bytes);
