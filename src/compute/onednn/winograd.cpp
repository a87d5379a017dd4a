#include "compute/onednn/winograd.hpp"

#include <algorithm>

#include "compute/onednn/kernels/winograd_kernels.hpp"

namespace ringtrain::compute::onednn {
namespace {

// A round's transformed tiles should stay in a core's second-level cache, but a round should be
// long enough for the filters that it reads.
constexpr std::size_t round_bytes = std::size_t{448} << 10, shortest_round = 16;
// Sums of filter gradients that each thread may have for itself.
constexpr std::size_t own_sums_bytes = std::size_t{1} << 20;
// The filters' transforms cost as much as a direct convolution of some tiles: twice as many in
// bf16, whose products are twice as fast. With fewer channels there are no whole vectors.
constexpr std::size_t fewest_tiles = 32, fewest_tiles_bf16 = 256;
constexpr int fewest_channels = 16;
constexpr std::size_t row_group = 8;  // MultiplyPosition takes rows in such groups or smaller ones

constexpr std::size_t rounded_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

// Who works on which tiles. Threads are alone, each with its own rounds of tiles, or one team,
// where there are few rounds or much memory for each.
struct Rounds {
  Rounds(std::size_t tiles, int positions, std::size_t rows, std::size_t columns, int threads,
         bool alone) {
    const std::size_t bytes = positions * sizeof(float) * (rows + columns);
    // Reading the filters costs no more than reading the tiles.
    std::size_t each = std::max(round_bytes / bytes, rows * columns / (rows + columns));
    const std::size_t most = rounded_up((tiles + threads - 1) / threads, row_group);
    alone = alone && (threads == 1 || most >= std::min(each, shortest_round));
    if (!alone) each = std::max(each, shortest_round * threads);
    const std::size_t sharing = alone ? threads : 1, part = (tiles + sharing - 1) / sharing,
                      rounds = (part + each - 1) / each;
    length = rounded_up((part + rounds - 1) / rounds, row_group);
    count = (tiles + length - 1) / length;
    together = !alone;
    teams = alone ? static_cast<int>(std::min<std::size_t>(threads, count)) : 1;
  }
  std::size_t length, count;  // tiles of a round; rounds
  int teams;
  bool together;
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

// A member's part of some items.
struct Part {
  Part(std::size_t items, int member, int members)
      : first(items * member / members), count(items * (member + 1) / members - first) {}
  std::size_t end() const { return first + count; }
  std::size_t first, count;
};

// All members of a team of several are all threads.
void wait_for(int members) {
  if (members > 1) {
#pragma omp barrier
  }
}

// Each team's rounds by its members: f(round, team, member, members).
template <class F>
void for_each_round(int threads, const Rounds& rounds, const F& f) {
#pragma omp parallel num_threads(threads)
  {
    const int here = this_thread(), all = omp_get_num_threads();
    if (rounds.together)
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
// the input gradient's, of turned filters with outputs as rows.
template <int R, class T>
Action plan_convolution(const Window& window, const Tensor& x, const Tensor& y, float* weights,
                        float* bias, bool relu, bool turned, Planner& planner) {
  using Kernels = WinogradKernels<R>;
  constexpr int positions = tile_positions(R);
  const Isa isa = planner.isa();
  const int block = block_of(isa), threads = planner.threads();
  const int top = turned ? R - 1 - window.top : window.top,
            left = turned ? R - 1 - window.left : window.left;
  const TileGrid grid = grid_of(y, top, left);
  const std::size_t columns = y.padded_channels(), rows = x.padded_channels();
  const Rounds rounds(grid.tiles, positions, rows, columns, threads, true);
  const TransformedMemory tiles(positions, rounds.length, rows, rounds.teams, planner),
      products(positions, rounds.length, columns, rounds.teams, planner),
      // Two blocks of columns beside each other, as MultiplyPosition reads them.
      filters(positions, rows, columns, 1, planner);
  const Filters held = turned ? Filters(window, x.shape.channels, y.shape.channels)
                              : Filters(window, y.shape.channels, x.shape.channels);
  const Scratch padded_bias = planner.scratch(columns * sizeof(float));

  const auto filter_pair = [=](const Frame& frame, std::size_t pair) {
    const int row = static_cast<int>(pair) % x.blocks() * block,
              column = static_cast<int>(pair) / x.blocks() * block;
    alignas(64) float square[R * R * 16 * 16];
    for (int pixel = 0; pixel < R * R; ++pixel)
      for (int i = 0; i < block; ++i)
        for (int j = 0; j < block; ++j) {
          const int output = turned ? row + i : column + j, input = turned ? column + j : row + i;
          square[(pixel * block + i) * block + j] =
              output < held.outputs && input < held.inputs
                  ? held.at(weights, output, turned ? R * R - 1 - pixel : pixel)[input]
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
    const Part mine(count, member, members);
    pick<Kernels::template TransformPixels, T>(isa)(plane_of<const T>(x), grid, first + mine.first,
                                                    mine.count, in.from_row(mine.first));
    const std::size_t filled = rounded_up(count, row_group);
    if (member == 0 && filled > count)
      for (int position = 0; position < positions; ++position)
        std::fill_n(in.row(count) + position * in.position_step, (filled - count) * in.row_step,
                    0.f);
    wait_for(members);
    const Part my_positions(positions, member, members);
    for (std::size_t i = my_positions.first; i < my_positions.end(); ++i)
      pick<MultiplyPosition, float>(isa)(
          {in.first + i * in.position_step, in.row_step, 1, by.first + i * by.position_step, 0,
           out.first + i * out.position_step, out.row_step, static_cast<int>(filled),
           static_cast<int>(rows), y.blocks(), false});
    wait_for(members);
    pick<Kernels::template WriteResults, T>(isa)(
        out.from_row(mine.first), results_of(grid), first + mine.first, mine.count, plane_of<T>(y),
        Epilogue{bias ? padded_bias.in(frame) : nullptr, relu});
    wait_for(members);
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
  const bool alone = positions * sizeof(float) * rows * columns <= own_sums_bytes;
  const Rounds rounds(grid.tiles, positions, rows, columns, threads, alone);
  const TransformedMemory tiles(positions, rounds.length, columns, rounds.teams, planner),
      gradients(positions, rounds.length, rows, rounds.teams, planner),
      sums(positions, rows, columns, rounds.teams, planner);
  const Scratch bias_sums = planner.scratch(threads * rows * sizeof(float));
  const Filters held(step.window, dy.shape.channels, x.shape.channels);
  float *const weights = planner.gradients(step.w), *const bias = planner.gradients(step.b);

  const auto add_round = [=](const Frame& frame, std::size_t round, int team, int member,
                             int members) {
    const std::size_t first = round * rounds.length,
                      count = std::min(rounds.length, grid.tiles - first);
    const bool add = round >= std::size_t(rounds.teams);
    const Matrices in = tiles.in(frame, team), by = gradients.in(frame, team),
                   out = sums.in(frame, team);
    const Part mine(count, member, members);
    pick<Kernels::template TransformPixels, T>(isa)(plane_of<const T>(x), grid, first + mine.first,
                                                    mine.count, in.from_row(mine.first));
    pick<Kernels::template TransformGradients, T>(isa)(
        plane_of<const T>(dy), results_of(grid), first + mine.first, mine.count,
        by.from_row(mine.first), bias ? bias_sums.in(frame) + (team + member) * rows : nullptr);
    wait_for(members);
    const Part my_positions(positions, member, members);
    for (std::size_t i = my_positions.first; i < my_positions.end(); ++i) {
      const float* const by_position = by.first + i * by.position_step;
      pick<MultiplyPosition, float>(isa)(
          {by_position, 1, by.row_step, in.first + i * in.position_step, in.row_step,
           out.first + i * out.position_step, out.row_step, static_cast<int>(rows),
           static_cast<int>(count), x.blocks(), add});
    }
    wait_for(members);
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
  return !(bf16 && multiplies_tiles()) &&
         grid_of(y, 0, 0).tiles >= (bf16 ? fewest_tiles_bf16 : fewest_tiles);
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
