#pragma once
#include <cstring>

#include "compute/onednn/plan.hpp"

namespace ringtrain::compute::onednn {

/// Whether a filter is one pixel, without padding.
inline bool is_of_one_pixel(const Window& w) {
  return w.height == 1 && w.width == 1 && w.top == 0 && w.left == 0 && w.bottom == 0 &&
         w.right == 0;
}

/// Those pixels of a tensor with channels last that a strided 1x1 convolution takes, in scratch
/// memory: the convolution of a dense tensor is several times as fast.
class TakenPixels {
 public:
  TakenPixels(const Window& window, const Tensor& all, const Tensor& result, Planner& planner)
      : window_(window), all_(all), taken_(all), threads_(planner.threads()) {
    taken_.shape.height = result.shape.height;
    taken_.shape.width = result.shape.width;
    copy_ = planner.scratch(taken_.bytes());
  }
  static bool are_there(const Window& window, const Tensor& all) {
    return all.channels_last && is_of_one_pixel(window) &&
           (window.stride_y > 1 || window.stride_x > 1);
  }
  Operand operand() const { return {taken_, copy_}; }

  /// Copies them from the tensor.
  void read(const Frame& frame) const {
    for_each_pixel(frame, [](std::byte* all, std::byte* taken, std::size_t bytes) {
      std::memcpy(taken, all, bytes);
    });
  }
  /// Copies them to the tensor, whose other pixels become zero.
  void written(const Frame& frame) const {
    for_each_item(threads_, all_.shape.batch, [&](std::size_t n) {
      const std::size_t bytes = all_.image() * bytes_of(all_.element);
      std::memset(all_.as<std::byte>() + n * bytes, 0, bytes);
    });
    for_each_pixel(frame, [](std::byte* all, std::byte* taken, std::size_t bytes) {
      std::memcpy(all, taken, bytes);
    });
  }

 private:
  template <class F>
  void for_each_pixel(const Frame& frame, const F& f) const {
    const Shape& s = taken_.shape;
    const std::size_t bytes = all_.pixel_step() * bytes_of(all_.element);
    std::byte* copy = copy_.in<std::byte>(frame);
    for_each_item(threads_, std::size_t(s.batch) * s.height, [&](std::size_t row) {
      const std::size_t from =
          row / s.height * all_.shape.height + row % s.height * window_.stride_y;
      for (std::size_t x = 0; x < std::size_t(s.width); ++x)
        f(all_.as<std::byte>() + (from * all_.shape.width + x * window_.stride_x) * bytes,
          copy + (row * s.width + x) * bytes, bytes);
    });
  }

  Window window_;
  Tensor all_, taken_;
  int threads_;
  Scratch copy_;
};

}  // namespace ringtrain::compute::onednn
