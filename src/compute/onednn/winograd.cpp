#include "compute/onednn/winograd.hpp"

#include <omp.h>

#include <algorithm>

#include "compute/onednn/kernels/winograd_kernels.hpp"

namespace ringtrain::compute::onednn {
namespace {

// A round's transformed tiles stay in a core's second-level cache, unless the filters are larger:
// reading those once a round costs no more than reading the tiles. All rounds at once have a limit.
constexpr std::size_t round_bytes = std::size_t{448} << 10, shortest_round = 16,
                      most_tile_bytes = std::size_t{256} << 20;
// Transformed filters; sums of their gradients that each thread may have for itself.
constexpr std::size_t most_filter_bytes = std::size_t{160} << 20,
                      own_sums_bytes = std::size_t{1} << 20;
// The filters' transforms cost as much as a direct convolution of some tiles. bf16's products are
// twice as fast as the fp32 ones of Winograd.
constexpr std::size_t fewest_tiles = 32, fewest_tiles_bf16 = 256;
// Rows of channels that fill no vector are not worth it.
constexpr int fewest_channels = 16;
// MultiplyPosition takes rows in such groups or smaller ones. Threads that share a round divide its
// products by positions and by chunks of rows.
constexpr std::size_t row_group = 8, row_chunk = 32;

constexpr std::size_t rounded_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

// How the tiles of a batch are divided into rounds. Each thread has rounds of its own, or all
// threads share each round, where there are few or each needs much memory.
struct Rounds {
  Rounds(std::size_t tiles, int positions, std::size_t rows, std::size_t columns, int threads,
         bool own) {
    const std::size_t bytes = positions * sizeof(float) * (rows + columns);
    std::size_t each = std::max(round_bytes / bytes, rows * columns / (rows + columns));
    each = std::max(std::min(each, most_tile_bytes / (bytes * threads)), row_group);
    const std::size_t most = rounded_up((tiles + threads - 1) / threads, row_group);
    own = own && (threads == 1 || most >= std::min(each, shortest_round));
    if (!own) each = std::max(each, shortest_round * threads);
    const std::size_t sharing = own ? threads : 1, part = (tiles + sharing - 1) / sharing,
                      rounds = (part + each - 1) / each;
    length = rounded_up((part + rounds - 1) / rounds, row_group);
    count = (tiles + length - 1) / length;
    shared = !own;
    teams = own ? static_cast<int>(std::min<std::size_t>(threads, count)) : 1;
  }
  std::size_t length, count;  // tiles of a round; rounds
  int teams;
  bool shared;
};

// The transformed tiles of a round, filters or their gradients, in scratch memory, for each team.
struct TransformedMemory {
  TransformedMemory(int positions, std::size_t rows, std::size_t columns, int teams,
                    Planner& planner)
      // Rows a power of two apart would share a few sets of the first-level cache.
      : row_step(columns + (columns % 256 == 0 ? 16 : 0)),
        position_step(rows * row_step + 16),
        step(positions * position_step),
        place(planner.scratch(teams * step * sizeof(float))) {}
  Matrices in(const Frame& frame, int team) const {
    return {place.in(frame) + team * step, position_step, row_step};
  }
  std::size_t row_step, position_step, step;
  Scratch place;
};

template <class T>
Plane<T> plane_of(const Tensor& t) {
  return {t.as<T>(),      t.image(),      t.shape.width * t.pixel_step(),
          t.pixel_step(), t.block_step(), t.shape.height,
          t.shape.width,  t.blocks()};
}

// `top` and `left`: padding before what the window slides over.
TileGrid grid_of(const Tensor& results, int top, int left) {
  const Shape& s = results.shape;
  const int down = (s.height + tile_results - 1) / tile_results,
            across = (s.width + tile_results - 1) / tile_results;
  return {down, across, top, left, std::size_t(s.batch) * down * across};
}
// The same tiles' results.
TileGrid results_of(TileGrid grid) {
  grid.top = grid.left = 0;
  return grid;
}

// A thread's share of some items.
struct ThreadShare {
  ThreadShare(std::size_t items, int member, int members)
      : first(items * member / members), count(items * (member + 1) / members - first) {}
  std::size_t end() const { return first + count; }
  std::size_t first, count;
};

// Threads that share a round are all of OpenMP's team, so its barrier is theirs.
void barrier_of(int members) {
  if (members > 1) {
#pragma omp barrier
  }
}

// f(position, row, rows) for a member's share of a round's products of `rows` rows.
template <class F>
void for_each_product(std::size_t positions, std::size_t rows, int member, int members,
                      const F& f) {
  const std::size_t chunk = members > 1 ? row_chunk : rows, chunks = (rows + chunk - 1) / chunk;
  const ThreadShare mine(positions * chunks, member, members);
  for (std::size_t i = mine.first; i < mine.end(); ++i) {
    const std::size_t row = i % chunks * chunk;
    f(i / chunks, row, std::min(chunk, rows - row));
  }
}

// Each team's rounds by its members: f(round, team, member, members).
template <class F>
void for_each_round(int threads, const Rounds& rounds, const F& f) {
#pragma omp parallel num_threads(threads)
  {
    const int here = this_thread(), all = omp_get_num_threads();
    if (rounds.shared)
      for (std::size_t round = 0; round < rounds.count; ++round) f(round, 0, here, all);
    else
      for (int team = here; team < rounds.teams; team += all)
        for (std::size_t round = team; round < rounds.count; round += rounds.teams)
          f(round, team, 0, 1);
  }
}

// The flat buffer's filters: output, pixel of the window, input.
struct Filters {
  Filters(const Window& window, int outputs, int inputs)
      : pixels(window.height * window.width), outputs(outputs), inputs(inputs) {}
  float* at(float* flat, int output, int pixel) const {
    return flat + (std::size_t(output) * pixels + pixel) * inputs;
  }
  int pixels, outputs, inputs;
};

// A convolution with filters whose rows are channels of x and whose columns are those of y: also
// the input gradient's, of filters rotated by 180 degrees, with outputs as rows.
template <int R, class T>
Action plan_convolution(const Window& window, const Tensor& x, const Tensor& y, float* weights,
                        float* bias, bool relu, bool flipped, Planner& planner) {
  using Kernels = WinogradKernels<R>;
  constexpr int positions = tile_positions(R);
  const Isa isa = planner.isa();
  const int block = block_of(isa), threads = planner.threads();
  const int top = flipped ? R - 1 - window.top : window.top,
            left = flipped ? R - 1 - window.left : window.left;
  const TileGrid grid = grid_of(y, top, left);
  const std::size_t columns = y.padded_channels(), rows = x.padded_channels();
  const Rounds rounds(grid.tiles, positions, rows, columns, threads, true);
  const TransformedMemory tiles(positions, rounds.length, rows, rounds.teams, planner),
      products(positions, rounds.length, columns, rounds.teams, planner),
      // Two blocks of columns beside each other, as MultiplyPosition reads them.
      filters(positions, rows, columns, 1, planner);
  const Filters held = flipped ? Filters(window, x.shape.channels, y.shape.channels)
                               : Filters(window, y.shape.channels, x.shape.channels);
  const Scratch padded_bias = planner.scratch(columns * sizeof(float));
  planner.add_implementation("winograd");

  const auto filter_pair = [=](const Frame& frame, std::size_t pair) {
    const int row = static_cast<int>(pair) % x.blocks() * block,
              column = static_cast<int>(pair) / x.blocks() * block;
    alignas(64) float square[R * R * 16 * 16];
    for (int pixel = 0; pixel < R * R; ++pixel)
      for (int i = 0; i < block; ++i)
        for (int j = 0; j < block; ++j) {
          const int output = flipped ? row + i : column + j, input = flipped ? column + j : row + i;
          square[(pixel * block + i) * block + j] =
              output < held.outputs && input < held.inputs
                  ? held.at(weights, output, flipped ? R * R - 1 - pixel : pixel)[input]
                  : 0.f;
        }
    const Matrices to = filters.in(frame, 0);
    const int beside = column / block % 2;
    const bool two = beside == 1 || column + block < y.padded_channels();
    const std::size_t step = two ? 2 * block : block;
    pick<Kernels::template TransformFilters, float>(isa)(
        square, {to.first + (column - beside * block) * rows + row * step + beside * block,
                 to.position_step, step});
  };
  const auto convolve_round = [=](const Frame& frame, std::size_t round, int team, int member,
                                  int members) {
    const std::size_t first = round * rounds.length,
                      count = std::min(rounds.length, grid.tiles - first);
    const Matrices in = tiles.in(frame, team), out = products.in(frame, team),
                   by = filters.in(frame, 0);
    const ThreadShare mine(count, member, members);
    pick<Kernels::template TransformPixels, T>(isa)(plane_of<const T>(x), grid, first + mine.first,
                                                    mine.count, in.from_row(mine.first));
    const std::size_t filled = rounded_up(count, row_group);
    if (member == 0 && filled > count)
      for (int position = 0; position < positions; ++position)
        std::fill_n(in.row(count) + position * in.position_step, (filled - count) * in.row_step,
                    0.f);
    barrier_of(members);
    for_each_product(
        positions, filled, member, members, [&](std::size_t i, std::size_t row, std::size_t count) {
          pick<MultiplyPosition, float>(isa)(
              {in.row(row) + i * in.position_step, in.row_step, 1, by.first + i * by.position_step,
               0, out.row(row) + i * out.position_step, out.row_step, static_cast<int>(count),
               static_cast<int>(rows), y.blocks(), false});
        });
    barrier_of(members);
    pick<Kernels::template WriteResults, T>(isa)(
        out.from_row(mine.first), results_of(grid), first + mine.first, mine.count, plane_of<T>(y),
        Epilogue{bias ? padded_bias.in(frame) : nullptr, relu});
    barrier_of(members);
  };
  return [=](const Frame& frame) {
    if (bias)
      std::fill_n(std::copy_n(bias, y.shape.channels, padded_bias.in(frame)),
                  columns - y.shape.channels, 0.f);
    for_each_item(threads, std::size_t(x.blocks()) * y.blocks(),
                  [&](std::size_t pair) { filter_pair(frame, pair); });
    for_each_round(threads, rounds, [&](std::size_t round, int team, int member, int members) {
      convolve_round(frame, round, team, member, members);
    });
  };
}

template <int R, class T>
Action plan_gradients(const ConvolutionWeightGradient& step, const Tensor& x, const Tensor& dy,
                      Planner& planner) {
  using Kernels = WinogradKernels<R>;
  constexpr int positions = tile_positions(R);
  const Isa isa = planner.isa();
  const int block = block_of(isa), threads = planner.threads();
  const TileGrid grid = grid_of(dy, step.window.top, step.window.left);
  const std::size_t rows = dy.padded_channels(), columns = x.padded_channels();
  const bool own = positions * sizeof(float) * rows * columns <= own_sums_bytes;
  const Rounds rounds(grid.tiles, positions, rows, columns, threads, own);
  const TransformedMemory tiles(positions, rounds.length, columns, rounds.teams, planner),
      gradients(positions, rounds.length, rows, rounds.teams, planner),
      sums(positions, rows, columns, rounds.teams, planner);
  const Scratch bias_sums = planner.scratch(threads * rows * sizeof(float));
  planner.add_implementation("winograd");
  const Filters held(step.window, dy.shape.channels, x.shape.channels);
  float *const weights = planner.gradients(step.w), *const bias = planner.gradients(step.b);

  const auto add_round = [=](const Frame& frame, std::size_t round, int team, int member,
                             int members) {
    const std::size_t first = round * rounds.length,
                      count = std::min(rounds.length, grid.tiles - first);
    const bool add = round >= std::size_t(rounds.teams);
    const Matrices in = tiles.in(frame, team), by = gradients.in(frame, team),
                   out = sums.in(frame, team);
    const ThreadShare mine(count, member, members);
    pick<Kernels::template TransformPixels, T>(isa)(plane_of<const T>(x), grid, first + mine.first,
                                                    mine.count, in.from_row(mine.first));
    pick<Kernels::template TransformGradients, T>(isa)(
        plane_of<const T>(dy), results_of(grid), first + mine.first, mine.count,
        by.from_row(mine.first), bias ? bias_sums.in(frame) + (team + member) * rows : nullptr);
    barrier_of(members);
    for_each_product(
        positions, rows, member, members, [&](std::size_t i, std::size_t row, std::size_t some) {
          pick<MultiplyPosition, float>(isa)(
              {by.first + i * by.position_step + row, 1, by.row_step,
               in.first + i * in.position_step, in.row_step, out.row(row) + i * out.position_step,
               out.row_step, static_cast<int>(some), static_cast<int>(count), x.blocks(), add});
        });
    barrier_of(members);
  };
  const auto finish_pair = [=](const Frame& frame, std::size_t pair) {
    const int input = static_cast<int>(pair) % x.blocks() * block,
              output = static_cast<int>(pair) / x.blocks() * block;
    alignas(64) float square[R * R * 16 * 16];
    const Matrices from = sums.in(frame, 0);
    pick<Kernels::template FilterGradients, float>(isa)(
        Matrices{from.row(output) + input, from.position_step, from.row_step}, sums.step,
        rounds.teams, square);
    const int held_inputs = std::min(block, held.inputs - input);
    for (int i = 0; i < std::min(block, held.outputs - output); ++i)
      for (int pixel = 0; pixel < R * R; ++pixel)
        std::copy_n(square + (pixel * block + i) * block, held_inputs,
                    held.at(weights, output + i, pixel) + input);
  };
  return [=](const Frame& frame) {
    if (bias) std::fill_n(bias_sums.in(frame), threads * rows, 0.f);
    for_each_round(threads, rounds, [&](std::size_t round, int team, int member, int members) {
      add_round(frame, round, team, member, members);
    });
    for_each_item(threads, std::size_t(x.blocks()) * dy.blocks(),
                  [&](std::size_t pair) { finish_pair(frame, pair); });
    if (bias == nullptr) return;
    const float* const sum = bias_sums.in(frame);
    for (int c = 0; c < dy.shape.channels; ++c) {
      bias[c] = sum[c];
      for (int other = 1; other < threads; ++other) bias[c] += sum[other * rows + c];
    }
  };
}

// The pixels inside of the image that windows of `window` pixels see along a line.
std::size_t taps(int results, int pixels, int window, int before) {
  std::size_t count = 0;
  for (int first = -before; first < results - before; ++first)
    count += std::max(0, std::min(first + window, pixels) - std::max(first, 0));
  return count;
}

// f<R>(T{}) for a window and an element.
template <class F>
Action with_kernels(const Window& window, Element element, const F& f) {
  return with_type(element, [&]<class T>(T type) {
    return window.height == 3 ? f.template operator()<3>(type) : f.template operator()<5>(type);
  });
}

}  // namespace

bool suits_winograd(const Window& w, const Tensor& x, const Tensor& y, Isa isa) {
  const bool window = w.height == w.width && (w.height == 3 || w.height == 5) && w.stride_y == 1 &&
                      w.stride_x == 1 && w.top < w.height && w.left < w.width;
  if (!window || isa == Isa::baseline || x.block != block_of(isa)) return false;
  if (std::min(x.shape.channels, y.shape.channels) < fewest_channels) return false;
  const bool bf16 = x.element == Element::bf16;
  if (bf16 && has_amx_bf16()) return false;
  const std::size_t tiles = grid_of(y, 0, 0).tiles, positions = tile_positions(w.height);
  if (tiles < (bf16 ? fewest_tiles_bf16 : fewest_tiles) ||
      positions * sizeof(float) * x.padded_channels() * y.padded_channels() > most_filter_bytes)
    return false;
  // A tile's products are the same however much of it is in the image; a direct convolution leaves
  // out what is padding.
  const std::size_t direct = taps(y.shape.height, x.shape.height, w.height, w.top) *
                             taps(y.shape.width, x.shape.width, w.width, w.left) * y.shape.batch;
  return direct * 2 >= (bf16 ? 6 : 3) * positions * tiles;
}

Action plan_winograd(const ConvolutionForward& step, const Tensor& x, const Tensor& y,
                     Planner& planner) {
  return with_kernels(step.window, x.element, [&]<int R, class T>(T) {
    return plan_convolution<R, T>(step.window, x, y, planner.parameters(step.w),
                                  planner.parameters(step.b), step.relu, false, planner);
  });
}

Action plan_winograd(const ConvolutionInputGradient& step, const Tensor& dy, const Tensor& dx,
                     Planner& planner) {
  return with_kernels(step.window, dx.element, [&]<int R, class T>(T) {
    return plan_convolution<R, T>(step.window, dy, dx, planner.parameters(step.w), nullptr, false,
                                  true, planner);
  });
}

Action plan_winograd(const ConvolutionWeightGradient& step, const Tensor& x, const Tensor& dy,
                     Planner& planner) {
  return with_kernels(step.window, x.element, [&]<int R, class T>(T) {
    return plan_gradients<R, T>(step, x, dy, planner);
  });
}

}  // namespace ringtrain::compute::onednn
