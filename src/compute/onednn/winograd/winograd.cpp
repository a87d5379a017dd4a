#include "compute/onednn/winograd/winograd.hpp"

#include <algorithm>

#include "compute/onednn/winograd/filters.hpp"
#include "compute/onednn/winograd/lines.hpp"
#include "compute/onednn/winograd/rounds.hpp"
#include "compute/onednn/winograd/sums.hpp"

namespace ringtrain::compute::onednn {
namespace {

// Transformed filters; sums of their gradients that each thread may have for itself.
constexpr std::size_t most_filter_bytes = std::size_t{160} << 20,
                      own_sums_bytes = std::size_t{1} << 20;
// The filters' transforms cost as much as a direct convolution of some tiles. bf16's products are
// up to twice as fast as the fp32 ones of Winograd.
constexpr std::size_t fewest_tiles = 32, fewest_tiles_line = 128, fewest_tiles_bf16 = 256;
// Rows of channels that fill no vector are not worth it.
constexpr int fewest_channels = 16;
// Results that are summed up once they are written, out of the first-level cache.
constexpr std::size_t summed_bytes = std::size_t{16} << 10;

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
  // Whether a team's are too many for caches.
  bool from_memory() const { return step * sizeof(float) >= fewest_bytes_past_caches; }
  std::size_t row_step, position_step, step;
  Scratch place;
};

// `top` and `left`: padding before what the window slides over.
TileGrid grid_of(const Window& window, const Tensor& results, int top = 0, int left = 0) {
  const Shape& s = results.shape;
  const int height = window.height > 1 ? tile_results : 1,
            width = window.width > 1 ? tile_results : 1, down = (s.height + height - 1) / height,
            across = (s.width + width - 1) / width;
  return {height,
          width,
          down,
          across,
          top,
          left,
          window.height - 1,
          window.width - 1,
          std::size_t(s.batch) * down * across};
}
// The same tiles' results.
TileGrid results_of(TileGrid grid) {
  grid.top = grid.left = grid.shared_down = grid.shared_across = 0;
  return grid;
}

// A convolution with filters whose rows are channels of x and whose columns are those of y: also
// the input gradient's, of filters rotated by 180 degrees, with outputs as rows.
template <class W, class T>
class Convolution {
 public:
  Convolution(const Window& window, const Tensor& x, const Tensor& y, float* weights,
              const float* bias, bool relu, bool rotated, const TakenIn& taken, Planner& planner)
      : x_(x),
        y_(y),
        rotated_(rotated),
        relu_(relu),
        bias_(bias),
        isa_(planner.isa()),
        block_(block_of(isa_)),
        threads_(planner.threads()),
        rows_(x.padded_channels()),
        columns_(y.padded_channels()),
        grid_(grid_of(window, y, rotated ? window.height - 1 - window.top : window.top,
                      rotated ? window.width - 1 - window.left : window.left)),
        rounds_(grid_.tiles, W::positions, rows_, columns_, threads_, true),
        held_(rotated ? Filters(weights, window, x.shape.channels, y.shape.channels)
                      : Filters(weights, window, y.shape.channels, x.shape.channels)),
        tiles_(W::positions, rounds_.length, rows_, rounds_.teams, planner),
        products_(W::positions, rounds_.length, columns_, rounds_.teams, planner),
        filters_(W::positions, rows_, columns_, 1, planner),
        padded_bias_(planner.scratch(columns_ * sizeof(float))),
        prologue_(norm_of(taken.prologue, x, planner)),
        behind_(taken.epilogue, planner),
        sums_(taken, y, results_of(grid_), planner) {
    if (sums_.any()) rounds_.together = row_group;
    planner.add_implementation("winograd");
  }

  void operator()(const Frame& frame) const {
    if (bias_)
      std::fill_n(std::copy_n(bias_, y_.shape.channels, padded_bias_.in(frame)),
                  columns_ - y_.shape.channels, 0.f);
    for_each_item(threads_, std::size_t(x_.blocks()) * y_.blocks(),
                  [&](std::size_t pair) { transform_filters(frame, static_cast<int>(pair)); });
    for_each_round(threads_, rounds_, [&](std::size_t round, int team, int member, int members) {
      convolve(frame, round, team, member, members);
    });
    if (sums_.any()) sums_.finish(frame);
  }

 private:
  using Kernels = WinogradKernels<W>;

  // One block of rows and one of columns. Two blocks of columns lie beside each other, as
  // MultiplyPosition reads them.
  void transform_filters(const Frame& frame, int pair) const {
    const int row = pair % x_.blocks() * block_, column = pair / x_.blocks() * block_;
    FilterSquares<W::pixels> squares;
    held_.read(rotated_ ? column : row, rotated_ ? row : column, block_, rotated_, squares.values);
    const int beside = column / block_ % 2;
    const bool two = beside == 1 || column + block_ < y_.padded_channels();
    const std::size_t step = two ? 2 * block_ : block_;
    const Matrices to = filters_.in(frame, 0);
    pick<Kernels::template TransformFilters, float>(isa_)(
        squares.values,
        {to.first + (column - beside * block_) * rows_ + row * step + beside * block_,
         to.position_step, step},
        filters_.from_memory());
  }

  // Results that nothing here reads again.
  bool past_caches() const { return y_.past_caches() && !sums_.any(); }

  void convolve(const Frame& frame, std::size_t round, int team, int member, int members) const {
    const std::size_t first = rounds_.first_tile(round), count = rounds_.tiles_of(round),
                      filled = rounded_up(count, row_group);
    const Matrices tiles = tiles_.in(frame, team), products = products_.in(frame, team),
                   filters = filters_.in(frame, 0);
    const ThreadShare mine = rounds_.share(round, member, members);
    const TileRange next = next_tiles(rounds_, round, member, members),
                    results{first + mine.first, mine.count};
    pick<Kernels::template TransformPixels, T>(isa_)(plane_of<const T>(x_), grid_,
                                                     first + mine.first, mine.count, prologue_,
                                                     tiles.from_row(mine.first));
    if (member == 0 && filled > count)
      for (int position = 0; position < W::positions; ++position)
        std::fill_n(tiles.row(count) + position * tiles.position_step,
                    (filled - count) * tiles.row_step, 0.f);
    barrier_of(members);
    const auto prefetch = [&](std::size_t i, std::size_t n) {
      if (!rounds_.prefetch) return;
      next.prefetch(x_, plane_of<const T>(x_), grid_, i, n);
      if (!past_caches()) results.prefetch(y_, plane_of<T>(y_), results_of(grid_), i, n);
      for (const Tensor* t : behind_.all())
        if (t->data) results.prefetch(*t, plane_of<const T>(*t), results_of(grid_), i, n);
    };
    for_each_product(W::positions, filled, member, members, prefetch,
                     [&](std::size_t i, std::size_t row, std::size_t some) {
                       pick<MultiplyPosition, float>(isa_)(
                           {tiles.row(row) + i * tiles.position_step, tiles.row_step, 1,
                            filters.first + i * filters.position_step, 0,
                            products.row(row) + i * products.position_step, products.row_step,
                            static_cast<int>(some), static_cast<int>(rows_), y_.blocks(), false,
                            filters_.from_memory()});
                     });
    barrier_of(members);
    write(frame, products.from_row(mine.first), first + mine.first, mine.count);
    barrier_of(members);
  }

  void write(const Frame& frame, const Matrices& products, std::size_t first,
             std::size_t count) const {
    const Epilogue epilogue{bias_ ? padded_bias_.in(frame) : nullptr, relu_, past_caches()};
    const Plane<T> results = plane_of<T>(y_);
    const NormBehind<T> behind = behind_.planes<T>();
    const std::size_t fitting = std::max(summed_bytes / tile_bytes(), std::size_t(1));
    for (std::size_t done = 0, some; done < count; done += some) {
      const std::size_t tile = first + done, in_group = row_group - tile % row_group;
      some = sums_.any() ? std::min({fitting, in_group, count - done}) : count;
      pick<Kernels::template WriteResults, T>(isa_)(products.from_row(done), results_of(grid_),
                                                    tile, some, results, epilogue);
      if (sums_.any())
        pick<SumTiles, T>(isa_)(results, results_of(grid_), tile, some, in_group == row_group,
                                behind, sums_.of_group(frame, tile));
    }
  }
  std::size_t tile_bytes() const {
    return std::size_t(grid_.height) * grid_.width * columns_ * sizeof(T);
  }

  Tensor x_, y_;
  bool rotated_, relu_;
  const float* bias_;
  Isa isa_;
  int block_, threads_;
  std::size_t rows_, columns_;
  TileGrid grid_;
  Rounds rounds_;
  Filters held_;
  TransformedMemory tiles_, products_, filters_;
  Scratch padded_bias_;
  Norm prologue_;
  NormOfResults behind_;
  ResultSums sums_;
};

// The gradients of filters: rows are channels of dy, columns those of x.
template <class W, class T>
class WeightGradient {
 public:
  WeightGradient(const ConvolutionWeightGradient& step, const Tensor& x, const Tensor& dy,
                 Planner& planner)
      : x_(x),
        dy_(dy),
        bias_(planner.gradients(step.b)),
        isa_(planner.isa()),
        threads_(planner.threads()),
        rows_(dy.padded_channels()),
        columns_(x.padded_channels()),
        grid_(grid_of(step.window, dy, step.window.top, step.window.left)),
        rounds_(grid_.tiles, W::positions, rows_, columns_, threads_,
                W::positions * sizeof(float) * rows_ * columns_ <= own_sums_bytes),
        held_(planner.gradients(step.w), step.window, dy.shape.channels, x.shape.channels),
        tiles_(W::positions, rounds_.length, columns_, rounds_.teams, planner),
        gradients_(W::positions, rounds_.length, rows_, rounds_.teams, planner),
        sums_(W::positions, rows_, columns_, rounds_.teams, planner),
        bias_sums_(planner.scratch(threads_ * rows_ * sizeof(float))),
        prologue_(norm_of(step.prologue, x, planner)) {
    planner.add_implementation("winograd");
  }

  void operator()(const Frame& frame) const {
    if (bias_) std::fill_n(bias_sums_.in(frame), threads_ * rows_, 0.f);
    for_each_round(threads_, rounds_, [&](std::size_t round, int team, int member, int members) {
      add(frame, round, team, member, members);
    });
    for_each_item(threads_, std::size_t(x_.blocks()) * dy_.blocks(),
                  [&](std::size_t pair) { write_filters(frame, static_cast<int>(pair)); });
    if (bias_ == nullptr) return;
    const float* const sum = bias_sums_.in(frame);
    for (int c = 0; c < dy_.shape.channels; ++c) {
      bias_[c] = sum[c];
      for (int other = 1; other < threads_; ++other) bias_[c] += sum[other * rows_ + c];
    }
  }

 private:
  using Kernels = WinogradKernels<W>;

  // A round to its team's sums, which its first one begins.
  void add(const Frame& frame, std::size_t round, int team, int member, int members) const {
    const std::size_t first = rounds_.first_tile(round), count = rounds_.tiles_of(round);
    const bool more = round >= std::size_t(rounds_.teams);
    const Matrices tiles = tiles_.in(frame, team), gradients = gradients_.in(frame, team),
                   sums = sums_.in(frame, team);
    const ThreadShare mine = rounds_.share(round, member, members);
    const TileRange next = next_tiles(rounds_, round, member, members);
    pick<Kernels::template TransformPixels, T>(isa_)(plane_of<const T>(x_), grid_,
                                                     first + mine.first, mine.count, prologue_,
                                                     tiles.from_row(mine.first));
    pick<Kernels::template TransformGradients, T>(isa_)(
        plane_of<const T>(dy_), results_of(grid_), first + mine.first, mine.count,
        gradients.from_row(mine.first),
        bias_ ? bias_sums_.in(frame) + (team + member) * rows_ : nullptr);
    barrier_of(members);
    const auto prefetch = [&](std::size_t i, std::size_t n) {
      if (!rounds_.prefetch) return;
      next.prefetch(x_, plane_of<const T>(x_), grid_, i, n);
      next.prefetch(dy_, plane_of<const T>(dy_), results_of(grid_), i, n);
    };
    for_each_product(W::positions, rows_, member, members, prefetch,
                     [&](std::size_t i, std::size_t row, std::size_t some) {
                       pick<MultiplyPosition, float>(isa_)(
                           {gradients.first + i * gradients.position_step + row, 1,
                            gradients.row_step, tiles.first + i * tiles.position_step,
                            tiles.row_step, sums.row(row) + i * sums.position_step, sums.row_step,
                            static_cast<int>(some), static_cast<int>(count), x_.blocks(), more,
                            false, rounds_.count == 1 && sums_.from_memory()});
                     });
    barrier_of(members);
  }

  // One block of rows and one of columns, summed over teams.
  void write_filters(const Frame& frame, int pair) const {
    const int block = block_of(isa_), input = pair % x_.blocks() * block,
              output = pair / x_.blocks() * block;
    FilterSquares<W::pixels> squares;
    const Matrices from = sums_.in(frame, 0);
    pick<Kernels::template FilterGradients, float>(isa_)(
        Matrices{from.row(output) + input, from.position_step, from.row_step}, sums_.step,
        rounds_.teams, squares.values);
    held_.write(input, output, block, squares.values);
  }

  Tensor x_, dy_;
  float* bias_;
  Isa isa_;
  int threads_;
  std::size_t rows_, columns_;
  TileGrid grid_;
  Rounds rounds_;
  Filters held_;
  TransformedMemory tiles_, gradients_, sums_;
  Scratch bias_sums_;
  Norm prologue_;
};

// The pixels inside of the image that windows of `window` pixels see along a line.
std::size_t taps(int results, int pixels, int window, int before) {
  std::size_t count = 0;
  for (int first = -before; first < results - before; ++first)
    count += std::max(0, std::min(first + window, pixels) - std::max(first, 0));
  return count;
}

// f<W>(T{}) for a window and an element.
template <class F>
Action with_kernels(const Window& window, Element element, const F& f) {
  return with_type(element, [&]<class T>(T type) -> Action {
    const int pixels = window.height * window.width;
    if (pixels == 9) return f.template operator()<SquareWindow<3>>(type);
    if (pixels == 25) return f.template operator()<SquareWindow<5>>(type);
    if constexpr (std::is_same_v<T, float>) {
      if (pixels == 3) return f.template operator()<LineWindow<3>>(type);
      if (pixels == 7) return f.template operator()<LineWindow<7>>(type);
    }
    throw Error("plan_winograd", "a convolution that suits_winograd() does not take");
  });
}

}  // namespace

bool suits_winograd(const ConvolutionShape& w, const Tensor& x, const Tensor& y, Isa isa) {
  if (!w.is_plain()) return false;
  const int longer = std::max(w.height, w.width), shorter = std::min(w.height, w.width);
  const bool square = longer == shorter && (longer == 3 || longer == 5);
  const bool line = shorter == 1 && (longer == 3 || longer == 7);
  const bool slides = w.stride_y == 1 && w.stride_x == 1 && w.top < w.height && w.left < w.width &&
                      (square || (w.bottom < w.height && w.right < w.width));
  if (!(square || line) || !slides || isa == Isa::baseline || x.block != block_of(isa))
    return false;
  if (std::min(x.shape.channels, y.shape.channels) < fewest_channels) return false;
  const bool bf16 = x.element == Element::bf16;
  if (bf16 && (line || has_amx_bf16())) return false;
  const bool direct_is_fast = bf16 && has_fast_vector_bf16();
  const std::size_t tiles = grid_of(w, y).tiles,
                    positions = tile_edge(longer) * (square ? tile_edge(longer) : 1);
  if (tiles < (direct_is_fast ? fewest_tiles_bf16
               : line         ? fewest_tiles_line
                              : fewest_tiles) ||
      positions * sizeof(float) * x.padded_channels() * y.padded_channels() > most_filter_bytes)
    return false;
  // A tile's products are the same however much of it is in the image; a direct convolution leaves
  // out what is padding.
  const std::size_t direct = taps(y.shape.height, x.shape.height, w.height, w.top) *
                             taps(y.shape.width, x.shape.width, w.width, w.left) * y.shape.batch;
  return direct * 2 >= (direct_is_fast ? 6 : 3) * positions * tiles;
}

bool takes_norms(const ConvolutionForward& step, const TensorOf& tensor, Isa isa) {
  const auto& prologue = step.prologue;
  if (!prologue && step.sums == no_vector) return true;
  if (prologue && (prologue->residual != no_tensor || prologue->y != no_tensor)) return false;
  return (step.then == Activation::none || step.sums == no_vector) &&
         suits_winograd(step.window, tensor(step.x), tensor(step.y), isa);
}

bool takes_norms(const ConvolutionInputGradient& step, const TensorOf& tensor, Isa isa) {
  if (!step.epilogue) return true;
  return step.epilogue->residual == no_tensor && !step.epilogue_of_residual &&
         suits_winograd(step.window, tensor(step.epilogue->g), tensor(step.dy), isa);
}

bool takes_norms(const ConvolutionWeightGradient& step, const TensorOf& tensor, Isa isa) {
  return !step.prologue || suits_winograd(step.window, tensor(step.x), tensor(step.dy), isa);
}

Action plan_winograd(const ConvolutionForward& step, const Tensor& x, const Tensor& y,
                     Planner& planner) {
  return with_kernels(step.window, x.element, [&]<class W, class T>(T) -> Action {
    return Convolution<W, T>(step.window, x, y, planner.parameters(step.w),
                             planner.parameters(step.b), step.then == Activation::relu, false,
                             {step.prologue, step.sums}, planner);
  });
}

Action plan_winograd(const ConvolutionInputGradient& step, const Tensor& dy, const Tensor& dx,
                     Planner& planner) {
  return with_kernels(step.window, dx.element, [&]<class W, class T>(T) -> Action {
    return Convolution<W, T>(step.window, dy, dx, planner.parameters(step.w), nullptr, false, true,
                             {.epilogue = step.epilogue}, planner);
  });
}

Action plan_winograd(const ConvolutionWeightGradient& step, const Tensor& x, const Tensor& dy,
                     Planner& planner) {
  return with_kernels(step.window, x.element, [&]<class W, class T>(T) -> Action {
    return WeightGradient<W, T>(step, x, dy, planner);
  });
}

}  // namespace ringtrain::compute::onednn
