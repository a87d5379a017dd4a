#pragma once
#include <cstddef>
#include <vector>

#include "ringtrain/base/memory/view.hpp"
#include "ringtrain/compute/step.hpp"

namespace ringtrain::compute::onednn {

/// What is as large as this is stored past the caches. A second-level cache would not keep it until
/// it is read.
inline constexpr std::size_t fewest_bytes_past_caches = std::size_t{6} << 20;

/// One block of channels of pixels that follow each other in an image.
template <class T>
struct Pixels {
  T* first = nullptr;  ///< null where there is no tensor
  std::size_t step = 0;
  bool past_caches = false;  ///< how they are stored, as Tensor says

  T* at(std::size_t pixel) const { return first + pixel * step; }
  explicit operator bool() const { return first != nullptr; }
};

/// An activation in memory. Channels are padded to whole blocks; the lanes past the last channel
/// are zero, and every kernel keeps them so. oneDNN's blocked layout is batch x channel blocks x
/// height x width x block, where block 1 is plain NCHW. What is `channels_last` is batch x height x
/// width x channels: oneDNN uses AMX for no other. A slice has whole blocks of a wider
/// tensor's.
struct Tensor {
  Shape shape;
  int block = 1;
  Element element = Element::fp32;
  bool channels_last = false;
  void* data = nullptr;
  int held_blocks = 0;  ///< of channels of the tensor that a slice is part of; 0: its own

  int blocks() const { return (shape.channels + block - 1) / block; }
  int padded_channels() const { return blocks() * block; }
  /// Pixels of one image.
  std::size_t pixels() const { return std::size_t(shape.height) * shape.width; }
  /// Elements from pixel to pixel, from block to block of one image, and from image to image.
  std::size_t pixel_step() const { return channels_last ? std::size_t(held()) * block : block; }
  std::size_t block_step() const { return channels_last ? block : pixels() * block; }
  std::size_t image() const { return held() * pixels() * block; }
  /// With padding, and from the first to the last where this is a slice.
  std::size_t elements() const { return shape.batch * image(); }
  std::size_t bytes() const { return elements() * bytes_of(element); }
  /// Only where blocks are whole cache lines: parts of lines are slower past the caches. Of a
  /// slice, its own blocks count.
  bool past_caches() const {
    return block == 16 && element == Element::fp32 &&
           shape.batch * pixels() * padded_channels() * sizeof(float) >= fewest_bytes_past_caches;
  }
  /// Where the element lies whose index is `i` in the order batch, height, width, channels.
  std::size_t place(std::size_t i) const {
    const std::size_t c = i % shape.channels, pixel = i / shape.channels;
    return pixel / pixels() * image() + c / block * block_step() + pixel % pixels() * pixel_step() +
           c % block;
  }

  /// The elements, which memory has as T.
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  template <class T>
  T* image_at(std::size_t n) const {
    return as<T>() + n * image();
  }
  /// A block of channels of an image from one of its pixels on.
  template <class T>
  Pixels<T> run(std::size_t n, std::size_t of_channels, std::size_t pixel = 0) const {
    if (data == nullptr) return {};
    return {image_at<T>(n) + of_channels * block_step() + pixel * pixel_step(), pixel_step(),
            past_caches()};
  }

 private:
  int held() const { return held_blocks > 0 ? held_blocks : blocks(); }
};

/// How each tensor of a schedule is laid out: blocked, but bf16 with channels last where the CPU
/// has AMX, and images that only convolutions read without padding. Places none of them.
std::vector<Tensor> choose_layouts(const Schedule& schedule, int block, Element element);

/// Whether those tensors of `step` that are slices may be some: BatchNorm's and those that are
/// copied, where a slice has blocks of `block` channels of its own.
bool takes_slices(const Schedule& schedule, const Step& step, int block);

}  // namespace ringtrain::compute::onednn
