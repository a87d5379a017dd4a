#pragma once
#include <string>

#include "ringtrain/io/image/image.hpp"

namespace ringtrain::io {

/// `image` as a PNG file, scaled down where its longer side is above `side`.
std::string png_thumbnail(const ImageView& image, int side);

}  // namespace ringtrain::io
