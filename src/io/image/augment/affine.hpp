#pragma once
#include <cstdint>

#include "ringtrain/io/image/image.hpp"

namespace ringtrain::io {

/// Where an output pixel's centre (x, y) lies in the source: (a x + b y + c, d x + e y + f), as the
/// six numbers of Pillow's AFFINE.
struct AffineMap {
  double a = 1, b = 0, c = 0, d = 0, e = 1, f = 0;
};

/// Turns an image of this extent counter-clockwise around its centre, as Pillow's rotate().
AffineMap rotation(double degrees, Extent extent);

/// Writes what `map` makes of `source`, in its extent, to `out`, which is other memory; `outside`
/// lies around it. The bits are those of Pillow's transform().
void transform(const ImageView& source, const AffineMap& map, Interpolation interpolation,
               const Colour& outside, std::uint8_t* out);

}  // namespace ringtrain::io
