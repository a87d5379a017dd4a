#pragma once
#include <cstddef>

#include "ringtrain/compute/step.hpp"

namespace ringtrain::onednn {

/// An activation in oneDNN's blocked layout: batch x channel blocks x height x width x block. The
/// lanes past the last channel are zero; every kernel keeps them so. Block 1 is plain NCHW. A slice
/// has whole blocks of a wider tensor's.
struct Tensor {
  Shape shape;
  int block = 1;
  float* data = nullptr;
  int held_blocks = 0;  ///< of channels of the tensor that a slice is part of; 0: its own

  int blocks() const { return (shape.channels + block - 1) / block; }
  /// Pixels of one image.
  std::size_t pixels() const { return std::size_t(shape.height) * shape.width; }
  /// Elements of one block of channels of one image, which lie beside each other.
  std::size_t plane() const { return pixels() * block; }
  /// Elements from image to image: of one image, padding included, unless this is a slice.
  std::size_t image() const { return (held_blocks > 0 ? held_blocks : blocks()) * plane(); }
  std::size_t elements() const { return shape.batch * image(); }
  /// Where the element lies whose index is `i` in the order batch, height, width, channels.
  std::size_t place(std::size_t i) const {
    const std::size_t c = i % shape.channels, pixel = i / shape.channels;
    return pixel / pixels() * image() + c / block * plane() + pixel % pixels() * block + c % block;
  }
  /// Number of (image, channel block) pairs: the usual item of work.
  std::size_t planes() const { return std::size_t(shape.batch) * blocks(); }
  /// Where one of them lies; null where there is no data.
  float* plane_at(std::size_t i) const {
    return data ? data + i / blocks() * image() + i % blocks() * plane() : nullptr;
  }
};

}  // namespace ringtrain::onednn
