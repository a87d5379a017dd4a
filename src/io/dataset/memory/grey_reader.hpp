#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "ringtrain/io/dataset/dataset.hpp"

namespace ringtrain::io {

/// Someone else's grey levels, row after row.
struct GreyView {
  Extent extent;
  std::span<const std::uint8_t> levels;
};

/// Reader of a data set whose `grey(sample)` is a view of grey levels in memory: gives them as RGB.
template <class Data>
class GreyReader final : public SampleReader {
 public:
  explicit GreyReader(const Data& data) : data_(data) {}
  Extent open(std::uint64_t sample) override {
    const GreyView grey = data_.grey(sample);
    image_.reshape(grey.extent);
    std::uint8_t* to = image_.pixels.data();
    for (const std::uint8_t level : grey.levels) to = std::fill_n(to, Image::channels, level);
    return grey.extent;
  }
  PixelView pixels(const CropRequest&) override { return {image_.view()}; }

 private:
  const Data& data_;
  Image image_;
};

}  // namespace ringtrain::io
