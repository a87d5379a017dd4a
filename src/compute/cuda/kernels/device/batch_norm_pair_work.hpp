#pragma once
#include "compute/cuda/kernels/arguments/batch_norm_pair.hpp"
#include "compute/cuda/kernels/device/batch_norm_work.hpp"

// The call of batch_norm_pair.hpp for any queue: StreamQueue, or a CPU's in tests.
namespace ringtrain::cuda::kernels::work {

template <class T, int w>
struct BackwardApplyPairTerm {
  static constexpr int width = w;
  BatchNormBackwardApplyOperands first, second;

  struct Branch {
    const T* x;
    T* dx;
    Lanes<w> g_scale, x_scale, shift;
    constexpr Lanes<w> apply(const Lanes<w>& g, std::size_t at) const {
      auto v = load<w>(x + at);
      for (int i = 0; i < w; ++i) v[i] = g_scale[i] * g[i] + (x_scale[i] * v[i] + shift[i]);
      return v;
    }
  };
  struct Column {
    const T* g;
    std::size_t channels;
    Branch first, second;
    constexpr void run(std::uint32_t pixel) const {
      const std::size_t at = pixel * channels;
      const auto gradient = load<w>(g + at);
      const auto one = first.apply(gradient, at), other = second.apply(gradient, at);
      store(first.dx + at, one);
      store(second.dx + at, other);
    }
  };
  constexpr Column column(std::uint32_t channel) const {
    return {static_cast<const T*>(first.g) + channel, first.channels, branch(first, channel),
            branch(second, channel)};
  }

 private:
  static constexpr Branch branch(const BatchNormBackwardApplyOperands& o, std::uint32_t channel) {
    return {static_cast<const T*>(o.x) + channel, static_cast<T*>(o.dx) + channel,
            load_or<w>(o.g_scale, channel, 1), load_or<w>(o.x_scale, channel, 0),
            load_or<w>(o.shift, channel, 0)};
  }
};

template <class Queue>
void batch_norm_backward_apply_pair(const BatchNormBackwardApplyOperands& first,
                                    const BatchNormBackwardApplyOperands& second, Queue& queue) {
  expects(first.g == second.g && first.pixels == second.pixels && first.channels == second.channels,
          "batch_norm_backward_apply_pair: one g of one extent");
  const bool wide =
      is_wide(first.element, {first.channels}, {first.g, first.x, first.dx, second.x, second.dx});
  with_type_and_width(first.element, wide, [&]<class T>(T, auto width) {
    map_pixels(first.pixels, first.channels, BackwardApplyPairTerm<T, width>{first, second}, queue);
  });
}

}  // namespace ringtrain::cuda::kernels::work
