#pragma once
#include <array>
#include <cstdint>

#include "ringtrain/io/dataset/dataset.hpp"

namespace ringtrain::io {

/// The classes of `shapes`, in the order of their labels.
inline constexpr std::array<const char*, 10> shape_names{
    "circle", "ring", "square", "triangle", "diamond", "cross", "plus", "star", "bar", "crescent"};

/// Draws image `sample` of a split into `image` (32x32): the shape of class sample % 10 with random
/// place, size, turn and colour on a shaded background, with noise. A pure function, computed with
/// exactly rounded operations only, so that every machine draws the same bytes.
void draw_shape(Split split, std::uint64_t sample, Image& image);

}  // namespace ringtrain::io
