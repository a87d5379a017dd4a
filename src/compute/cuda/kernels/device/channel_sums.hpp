#pragma once
#include "compute/cuda/kernels/arguments/geometry.hpp"
#include "compute/cuda/kernels/device/lanes.hpp"

// Sums over the pixels of an NHWC tensor, channel by channel, in two kernels: blocks leave partial
// sums, then a second kernel adds those up. Sums of each image by itself take one kernel. No
// atomics: the order, and so every bit, is fixed.
namespace ringtrain::compute::cuda::kernels {

/// Partial sums of one pass lie here, row blocks x values x channels, fp32.
struct PartialSums {
  float* data;
  std::uint32_t parts, channels;
};

/// The grid of the first kernel, and so the extent of what it leaves.
inline ChannelGrid sums_grid(std::size_t pixels, std::size_t vectors) {
  return channel_grid(pixels, vectors, 16, 1024);
}

/// Bytes of PartialSums::data for any element type: room for `values` sums a channel.
inline std::size_t sums_workspace(std::size_t pixels, std::size_t channels, int values) {
  std::size_t parts = 1;
  for (const std::size_t width : {1, 4, 8})
    if (channels % width == 0)
      parts = std::max<std::size_t>(parts, sums_grid(pixels, channels / width).row_blocks);
  return parts * values * channels * sizeof(float);
}

/// First kernel. `Term` has `values` and `width`, and column(first channel), whose add(pixel, sums)
/// adds that pixel's terms for `width` channels to Lanes<width> sums[values]. It may have
/// `least_blocks`, as in geometry.hpp.
template <class Term>
struct SumPixels {
  static constexpr int values = Term::values, width = Term::width;
  static constexpr unsigned least_blocks = kernels::least_blocks<Term>;
  ChannelGrid grid;
  Term term;
  PartialSums partial;

  Grid launch() const {
    return {grid.blocks(), grid.threads(), grid.threads() * values * width * sizeof(float)};
  }
  constexpr int phases() const { return 2 + folds(grid.rows); }
  constexpr void operator()(int phase, std::uint32_t block, std::uint32_t thread,
                            unsigned char* shared) const {
    float* sums = reinterpret_cast<float*>(shared) + thread;
    if (phase == 0)
      accumulate(block, thread, sums);
    else if (phase + 1 < phases())
      fold(phase - 1, thread, sums);
    else if (grid.row(thread) == 0)
      write(block, thread, sums);
  }

 private:
  // Sum k of this thread lies at sums[k * threads], so that neighbours use different banks.
  constexpr void accumulate(std::uint32_t block, std::uint32_t thread, float* sums) const {
    Lanes<width> own[values] = {};
    const std::uint32_t vector = grid.vector(block, thread);
    if (vector < grid.vectors) {
      const auto column = term.column(vector * width);
      for (std::uint32_t pixel = grid.first_pixel(block, thread); pixel < grid.pixels;
           pixel += grid.pixel_stride())
        column.add(pixel, own);
    }
    for (int k = 0; k < values * width; ++k) sums[k * grid.threads()] = own[k / width][k % width];
  }
  constexpr void fold(int round, std::uint32_t thread, float* sums) const {
    const std::uint32_t row = grid.row(thread), other = fold_partner(row, round, grid.rows);
    if (other == grid.rows) return;
    for (int k = 0; k < values * width; ++k)
      sums[k * grid.threads()] += sums[k * grid.threads() + (other - row) * grid.columns];
  }
  constexpr void write(std::uint32_t block, std::uint32_t thread, const float* sums) const {
    const std::uint32_t vector = grid.vector(block, thread);
    if (vector >= grid.vectors) return;
    for (int k = 0; k < values * width; ++k)
      partial.data[(std::size_t(grid.row_block(block)) * values + k / width) * partial.channels +
                   vector * width + k % width] = sums[k * grid.threads()];
  }
};

/// Second kernel: totals in double, given to finish(channel, totals).
template <int values, class Finish>
struct SumParts {
  static constexpr std::uint32_t columns = 8, rows = block_threads / columns;
  PartialSums partial;
  Finish finish;

  Grid launch() const {
    return {small(divide_up(partial.channels, columns)), block_threads,
            block_threads * values * sizeof(double)};
  }
  constexpr int phases() const { return 2 + folds(rows); }
  constexpr void operator()(int phase, std::uint32_t block, std::uint32_t thread,
                            unsigned char* shared) const {
    double* sums = reinterpret_cast<double*>(shared) + thread;
    const std::uint32_t channel = block * columns + thread % columns, row = thread / columns;
    if (phase == 0)
      accumulate(channel, row, sums);
    else if (phase + 1 < phases())
      fold(phase - 1, row, sums);
    else if (row == 0 && channel < partial.channels)
      finish_channel(channel, sums);
  }

 private:
  constexpr void accumulate(std::uint32_t channel, std::uint32_t row, double* sums) const {
    for (int v = 0; v < values; ++v) {
      double sum = 0;
      if (channel < partial.channels)
        for (std::uint32_t part = row; part < partial.parts; part += rows)
          sum += partial.data[(std::size_t(part) * values + v) * partial.channels + channel];
      sums[v * block_threads] = sum;
    }
  }
  constexpr void fold(int round, std::uint32_t row, double* sums) const {
    const std::uint32_t other = fold_partner(row, round, rows);
    if (other == rows) return;
    for (int v = 0; v < values; ++v)
      sums[v * block_threads] += sums[v * block_threads + (other - row) * columns];
  }
  constexpr void finish_channel(std::uint32_t channel, const double* sums) const {
    double totals[values] = {};
    for (int v = 0; v < values; ++v) totals[v] = sums[v * block_threads];
    finish(channel, totals);
  }
};

/// Sums `term` over `pixels` pixels of `channels` channels and finishes each channel.
template <class Term, class Finish, class Queue>
void sum_pixels(std::size_t pixels, std::size_t channels, const Term& term, const Finish& finish,
                float* workspace, Queue& queue) {
  const ChannelGrid grid = sums_grid(pixels, channels / Term::width);
  const PartialSums partial{workspace, grid.row_blocks, small(channels)};
  const SumPixels<Term> first{grid, term, partial};
  queue.blocks(first, first.launch());
  const SumParts<Term::values, Finish> second{partial, finish};
  queue.blocks(second, second.launch());
}

/// Sums over the pixels of each sample: a block has some vectors of one sample, its rows of threads
/// share out the pixels. `Term` has `width`, add(sample, pixel, first channel, sums), which adds to
/// Lanes<width>, and finish(sample, first channel, sums).
template <class Term>
struct SumPixelsOfSamples {
  static constexpr int width = Term::width;
  Term term;
  ChannelGrid grid;  // of one sample, one row block
  std::uint32_t samples;

  Grid launch() const {
    return {samples * grid.column_blocks, grid.threads(), grid.threads() * width * sizeof(float)};
  }
  constexpr int phases() const { return 2 + folds(grid.rows); }
  constexpr void operator()(int phase, std::uint32_t block, std::uint32_t thread,
                            unsigned char* shared) const {
    float* sums = reinterpret_cast<float*>(shared) + thread;
    const std::uint32_t vector = grid.vector(block, thread), row = grid.row(thread);
    const std::uint32_t sample = block / grid.column_blocks;
    if (phase == 0)
      accumulate(sample, vector, row, sums);
    else if (phase + 1 < phases())
      fold(phase - 1, row, sums);
    else if (row == 0 && vector < grid.vectors)
      write(sample, vector, sums);
  }

 private:
  constexpr void accumulate(std::uint32_t sample, std::uint32_t vector, std::uint32_t row,
                            float* sums) const {
    Lanes<width> own{};
    if (vector < grid.vectors)
      for (std::uint32_t pixel = row; pixel < grid.pixels; pixel += grid.rows)
        term.add(sample, pixel, vector * width, own);
    for (int i = 0; i < width; ++i) sums[i * grid.threads()] = own[i];
  }
  constexpr void fold(int round, std::uint32_t row, float* sums) const {
    const std::uint32_t other = fold_partner(row, round, grid.rows);
    if (other == grid.rows) return;
    for (int i = 0; i < width; ++i)
      sums[i * grid.threads()] += sums[i * grid.threads() + (other - row) * grid.columns];
  }
  constexpr void write(std::uint32_t sample, std::uint32_t vector, const float* sums) const {
    Lanes<width> total{};
    for (int i = 0; i < width; ++i) total[i] = sums[i * grid.threads()];
    term.finish(sample, vector * width, total);
  }
};

template <class Term, class Queue>
void sum_pixels_of_samples(std::size_t samples, std::size_t pixels, std::size_t channels,
                           const Term& term, Queue& queue) {
  const SumPixelsOfSamples<Term> work{term, channel_grid(pixels, channels / Term::width, pixels, 1),
                                      small(samples)};
  queue.blocks(work, work.launch());
}

/// A kernel without sums over the same grid: column(first channel).run(pixel) for every pixel.
template <class Term>
struct MapPixels {
  static constexpr int width = Term::width;
  ChannelGrid grid;
  Term term;

  Grid launch() const { return {grid.blocks(), grid.threads(), 0}; }
  constexpr int phases() const { return 1; }
  constexpr void operator()(int, std::uint32_t block, std::uint32_t thread, unsigned char*) const {
    const std::uint32_t vector = grid.vector(block, thread);
    if (vector >= grid.vectors) return;
    const auto column = term.column(vector * width);
    for (std::uint32_t pixel = grid.first_pixel(block, thread); pixel < grid.pixels;
         pixel += grid.pixel_stride())
      column.run(pixel);
  }
};

/// About `pixels_each` pixels a thread: more, where it keeps what it has loaded.
template <class Term, class Queue>
void map_pixels(std::size_t pixels, std::size_t channels, const Term& term, Queue& queue,
                std::size_t pixels_each = 8) {
  const MapPixels<Term> map{channel_grid(pixels, channels / Term::width, pixels_each, 1 << 20),
                            term};
  queue.blocks(map, map.launch());
}

}  // namespace ringtrain::compute::cuda::kernels
