#pragma once
#include <cmath>

#include "compute/color_jitter.hpp"
#include "compute/cuda/kernels/arguments/geometry.hpp"
#include "compute/cuda/kernels/arguments/input.hpp"
#include "compute/cuda/kernels/device/lanes.hpp"
#include "compute/cuda/kernels/device/pixel_blocks.hpp"

// The call of input.hpp for any queue: StreamQueue, or a CPU's in tests.
namespace ringtrain::compute::cuda::kernels::work {

/// Calls f(c) for an image's channels. Unrolled up to `most`, which keeps what c indexes in
/// registers.
template <int most, class F>
constexpr void for_each_channel(int channels, F f) {
  for (int c = 0; c < most; ++c)
    if (c < channels) f(c);
}

/// One pixel as it came, on the scale 0..255, after brightness and colour; at most `most` channels.
template <int most>
constexpr Lanes<most> jittered_pixel(const InputOperands& o, std::size_t sample,
                                     std::size_t pixel) {
  const std::uint8_t* from = o.images + (sample * o.pixels + pixel) * o.channels;
  Lanes<most> v{};
  for_each_channel<most>(o.channels, [&](int c) { v[c] = from[c]; });
  if (!o.jittered) return v;
  const ColorJitter& d = o.jittered[sample].jitter;
  for_each_channel<most>(o.channels, [&](int c) { v[c] += d.brightness; });
  if constexpr (most >= 3)
    if (o.channels == 3 && (d.saturation != 1 || d.hue != 0))
      adjust_saturation_and_hue(v[0], v[1], v[2], d.saturation, d.hue);
  return v;
}

/// A block an image: sums and squares of each channel, in double (they are of whole images). From
/// them contrast's effect on the image's mean and deviation follows without another pass.
struct Moments {
  InputOperands o;

  Grid launch() const {
    return {small(o.batch), block_threads, block_threads * 2 * o.channels * sizeof(double)};
  }
  constexpr int phases() const { return 2 + folds(block_threads); }
  template <class Byte>
  constexpr void operator()(int phase, std::uint32_t block, std::uint32_t thread,
                            Byte* shared) const {
    double* sums = reinterpret_cast<double*>(shared) + thread;
    if (phase == 0)
      accumulate<double>(block, thread, sums);
    else if (phase + 1 < phases())
      fold(phase - 1, thread, sums);
    else if (thread == 0)
      finish<double>(block, sums);
  }

 private:
  template <class Number>
  constexpr void accumulate(std::uint32_t sample, std::uint32_t thread, Number* sums) const {
    constexpr int most = most_image_channels;
    Number own[2 * most] = {};
    for (std::size_t pixel = thread; pixel < o.pixels; pixel += block_threads) {
      const auto v = jittered_pixel<most>(o, sample, pixel);
      for_each_channel<most>(o.channels, [&](int c) {
        own[2 * c] += v[c];
        own[2 * c + 1] += Number(v[c]) * v[c];
      });
    }
    for_each_channel<2 * most>(2 * o.channels, [&](int k) { sums[k * block_threads] = own[k]; });
  }
  constexpr void fold(int round, std::uint32_t thread, double* sums) const {
    const std::uint32_t other = fold_partner(thread, round, block_threads);
    if (other == block_threads) return;
    for (int k = 0; k < 2 * o.channels; ++k)
      sums[k * block_threads] += sums[k * block_threads + other - thread];
  }
  template <class Number>
  constexpr void finish(std::uint32_t sample, const Number* sums) const {
    const Number pixels = static_cast<Number>(o.pixels);
    const Number contrast = o.jittered ? o.jittered[sample].jitter.contrast : 1;
    ImageMoments& result = o.moments[sample];
    Number whole = 0, variance = 0;
    for (int c = 0; c < o.channels; ++c) {
      const Number mean = sums[2 * c * block_threads] / pixels;
      result.mean[c] = static_cast<float>(mean);
      whole += mean / o.channels;
    }
    for (int c = 0; c < o.channels; ++c) {
      const Number mean = sums[2 * c * block_threads] / pixels, off = mean - whole;
      const Number own = sums[(2 * c + 1) * block_threads] / pixels - mean * mean;
      variance += (contrast * contrast * (own > 0 ? own : 0) + off * off) / o.channels;
    }
    const Number deviation = std::sqrt(variance), least = 1 / std::sqrt(pixels * o.channels);
    result.whole = static_cast<float>(whole);
    result.inverse = static_cast<float>(1 / (deviation > least ? deviation : least));
  }
};

/// One pixel as the network sees it; at most `most` channels.
template <int most>
struct NormalPixel {
  InputOperands o;
  constexpr Lanes<most> operator()(std::size_t sample, std::size_t pixel) const {
    auto v = jittered_pixel<most>(o, sample, pixel);
    if (is_erased(sample, pixel)) {
      for_each_channel<most>(o.channels, [&](int c) { v[c] = o.erased[sample].erased.value; });
      return v;
    }
    for_each_channel<most>(o.channels,
                           [&](int c) { v[c] = normal(sample, c, contrasted(sample, c, v[c])); });
    return v;
  }

 private:
  constexpr bool is_erased(std::size_t sample, std::size_t pixel) const {
    if (!o.erased || o.erased[sample].erased.height == 0) return false;
    const auto at = static_cast<std::uint32_t>(pixel), width = static_cast<std::uint32_t>(o.width);
    return o.erased[sample].erased.covers(at / width, at % width);
  }
  constexpr float contrasted(std::size_t sample, int c, float v) const {
    if (!o.jittered || o.jittered[sample].jitter.contrast == 1) return v;
    const float mean = o.moments[sample].mean[c];
    return (v - mean) * o.jittered[sample].jitter.contrast + mean;
  }
  constexpr float normal(std::size_t sample, int c, float v) const {
    if (o.normalisation == Normalisation::mean_deviation)
      return ((o.clip ? clipped(v) : v) / 255 - o.mean[c]) / o.deviation[c];
    return (v - o.moments[sample].whole) * o.moments[sample].inverse;
  }
};

/// One thread a pixel.
template <class T, int y_channels>
struct Normalise {
  NormalPixel<y_channels> pixel;
  std::uint32_t pixels;  // of one image
  T* y;
  constexpr void operator()(std::uint32_t item) const {
    store(y + std::size_t(item) * y_channels, pixel(item / pixels, item % pixels));
  }
};

/// One thread a pixel, for images that are stored as they are.
template <class T>
struct NormaliseDense {
  NormalPixel<most_image_channels> pixel;
  std::uint32_t pixels;  // of one image
  T* y;
  constexpr void operator()(std::uint32_t item) const {
    const int channels = pixel.o.channels;
    const auto v = pixel(item / pixels, item % pixels);
    for_each_channel<most_image_channels>(
        channels, [&](int c) { y[std::size_t(item) * channels + c] = static_cast<T>(v[c]); });
  }
};

inline constexpr int block_channels = 16;

/// A block of threads makes a stretch of one row of y: first the blocks of 2x2 pixels that it
/// needs, side by side, then y from these, in order, so that neighbours write to neighbours.
template <class T, int channels>
struct NormaliseBlocks {
  static constexpr std::uint32_t stretch = 64;  // pixels of y
  NormalPixel<channels> pixel;
  BlockAxis rows, columns;
  std::uint32_t image_height, image_width, height, width, blocks;
  T* y;

  constexpr std::uint32_t stretches() const { return (width + stretch - 1) / stretch; }
  Grid launch() const {
    return {small(pixel.o.batch * height * stretches()), block_threads,
            (stretch + blocks - 1) * block_channels * sizeof(T)};
  }
  constexpr int phases() const { return 2; }
  template <class Byte>
  constexpr void operator()(int phase, std::uint32_t block, std::uint32_t thread,
                            Byte* shared) const {
    T* row = reinterpret_cast<T*>(shared);
    const std::uint32_t line = block / stretches(), first = block % stretches() * stretch;
    if (phase == 0)
      make_blocks(line, first, thread, row);
    else
      write(line, first, thread, row);
  }

 private:
  static constexpr int lanes = full_width<T>;

  constexpr void make_blocks(std::uint32_t line, std::uint32_t first, std::uint32_t thread,
                             T* row) const {
    const std::uint32_t sample = line / height;
    const int block_row = static_cast<int>(line % height);
    for (std::uint32_t item = thread; item < 4 * (stretch + blocks - 1); item += block_threads) {
      const std::uint32_t at = item / 4;
      const int part = static_cast<int>(item % 4);
      // What is in front of the image is far behind it, unsigned.
      const std::uint32_t image_row = rows.pixel(block_row, part / 2);
      const std::uint32_t column = columns.pixel(static_cast<int>(first + at), part % 2);
      Lanes<channels> v{};
      if (image_row < image_height && column < image_width)
        v = pixel(sample, std::size_t(image_row) * image_width + column);
      T* to = row + at * block_channels;
      for (int c = 0; c < channels; ++c) to[part * channels + c] = static_cast<T>(v[c]);
      for (int c = 4 * channels + part; c < block_channels; c += 4) to[c] = static_cast<T>(0.f);
    }
  }
  // Pixel p of the stretch holds the blocks from p on.
  constexpr void write(std::uint32_t line, std::uint32_t first, std::uint32_t thread,
                       const T* row) const {
    const std::uint32_t end = width - first < stretch ? width - first : stretch;
    const std::uint32_t vectors = blocks * block_channels / lanes;  // of a pixel
    T* to = y + (std::size_t(line) * width + first) * blocks * block_channels;
    for (std::uint32_t v = thread; v < end * vectors; v += block_threads) {
      const std::uint32_t from = v / vectors * block_channels + v % vectors * lanes;
      store(to + std::size_t(v) * lanes, load<lanes>(row + from));
    }
  }
};

/// Calls use(channels) with a std::integral_constant, 1 to 4.
template <class Use>
void with_channels(int channels, Use use) {
  if (channels == 1) return use(std::integral_constant<int, 1>{});
  if (channels == 2) return use(std::integral_constant<int, 2>{});
  if (channels == 3) return use(std::integral_constant<int, 3>{});
  use(std::integral_constant<int, 4>{});
}

template <class Queue>
void normalise_blocks(const InputOperands& o, Queue& queue) {
  expects(o.channels <= 4 && o.y_channels == block_channels * o.blocks && o.width > 0 &&
              o.pixels % o.width == 0,
          "input: blocks are of images of at most 4 channels, stored in 16");
  const std::size_t height = o.stored_height, width = o.stored_width;
  with_type(o.element, [&]<class T>(T) {
    with_channels(o.channels, [&](auto channels) {
      const NormaliseBlocks<T, channels> work{{o},
                                              block_axis(true, o.top),
                                              block_axis(true, o.left),
                                              small(o.pixels / o.width),
                                              small(o.width),
                                              small(height),
                                              small(width),
                                              small(o.blocks),
                                              static_cast<T*>(o.y)};
      queue.blocks(work, work.launch());
    });
  });
}

template <class Queue>
void normalise_pixels(const InputOperands& o, Queue& queue) {
  const bool wide = o.y_channels == 4 || o.y_channels == 8;
  expects(o.channels <= most_image_channels &&
              (o.channels == o.y_channels || (o.channels < o.y_channels && wide)),
          "input: images of at most 8 channels are stored as they are, or padded to 4 or 8");
  with_type(o.element, [&]<class T>(T) {
    T* y = static_cast<T*>(o.y);
    if (o.y_channels == 4)
      queue.items(Normalise<T, 4>{{o}, small(o.pixels), y}, o.batch * o.pixels);
    else if (o.y_channels == 8)
      queue.items(Normalise<T, 8>{{o}, small(o.pixels), y}, o.batch * o.pixels);
    else
      queue.items(NormaliseDense<T>{{o}, small(o.pixels), y}, o.batch * o.pixels);
  });
}

template <class Queue>
void input(const InputOperands& o, Queue& queue) {
  expects(!o.clip || o.normalisation == Normalisation::mean_deviation,
          "input: moments are of images that are not clipped");
  const Moments moments{o};
  if (o.jittered || o.normalisation == Normalisation::standardise_image)
    queue.blocks(moments, moments.launch());
  if (o.blocks > 0)
    normalise_blocks(o, queue);
  else
    normalise_pixels(o, queue);
}

}  // namespace ringtrain::compute::cuda::kernels::work
