#include "ringtrain/io/image/thumbnail.hpp"

#include <png.h>

#include <algorithm>
#include <cmath>

#include "io/image/resize.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::io {

std::string png_thumbnail(const ImageView& image, int side) {
  const Extent full = image.extent;
  const double scale = std::min(1.0, double(side) / std::max(full.height, full.width));
  const auto scaled = [&](int extent) {
    return std::max(1, static_cast<int>(std::lround(extent * scale)));
  };
  Image small;
  small.reshape({scaled(full.height), scaled(full.width)});
  Resizer().run(image, {0, 0, double(full.width), double(full.height)}, small.extent,
                {0, 0, small.extent}, false, small.pixels.data(),
                std::size_t(small.extent.width) * Image::channels);
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.format = PNG_FORMAT_RGB;
  header.width = static_cast<png_uint_32>(small.extent.width);
  header.height = static_cast<png_uint_32>(small.extent.height);
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(header);
  std::string file(bytes, '\0');
  expects(png_image_write_to_memory(&header, file.data(), &bytes, 0, small.pixels.data(), 0,
                                    nullptr) != 0,
          "libpng writes an image to memory that is large enough");
  file.resize(bytes);
  return file;
}

}  // namespace ringtrain::io
