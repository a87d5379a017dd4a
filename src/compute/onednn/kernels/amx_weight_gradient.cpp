#include "compute/onednn/kernels/amx_weight_gradient.hpp"

#include <algorithm>
#include <array>

#include "compute/onednn/kernels/amx_products.hpp"

// Weight gradients are matrix products: of x, channels by pixels, and dy, pixels by channels. A
// tile's rows are pixels of one channel of x, so x is transposed; a tap is a step along its rows.
// For that, rows of pixels follow each other with the padding that the filter reaches, and dy has
// zeroes there. Both copies of a few images stay in a core's second-level cache.
namespace ringtrain::compute::onednn {
namespace {

constexpr int most_threads = 16;
constexpr std::size_t most_sums_bytes = std::size_t{256} << 20;
constexpr std::size_t cached_bytes = std::size_t{768} << 10;  // of the smaller copy
constexpr std::size_t most_copied_bytes = std::size_t{4} << 20;
constexpr std::size_t tile_size = tile_rows * tile_rows;

std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

// How the rows of images become runs of pixels.
struct Geometry {
  Geometry(const Window& w, const Tensor& x, const Tensor& dy, int threads)
      : window(w),
        x_blocks(x.blocks()),
        y_blocks(dy.blocks()),
        taps(std::size_t(w.height) * w.width),
        row(w.left + x.shape.width + w.right) {
    const std::size_t smaller = std::min(x_blocks, y_blocks) * tile_rows * sizeof(Bf16),
                      both = (x_blocks + y_blocks) * tile_rows * sizeof(Bf16);
    const std::size_t pixels = std::min(cached_bytes / smaller, most_copied_bytes / both);
    images = x.shape.batch;
    x_height = x.shape.height;
    y_height = dy.shape.height;
    rows = std::clamp<std::size_t>(pixels / row, 1, y_height);
    parts = (y_height + rows - 1) / rows;
    rows = (y_height + parts - 1) / parts;
    runs.pixels = round_up(rows * row, tile_depth);
    // The last tap reads behind the last row.
    runs.a_step = round_up(runs.pixels + (w.height - 1) * row + w.width - 1, tile_depth);
    const std::size_t all = images * parts;
    most_runs = std::clamp<std::size_t>(pixels / runs.pixels, 1, all);
    members = std::min<std::size_t>(threads, all);
    most_runs = std::min(most_runs, (all + members - 1) / members);
    // Rows of 16 channels must not begin in the same set of the cache.
    runs.a_row = most_runs * runs.a_step + tile_depth;
  }
  std::size_t x_copy() const { return x_blocks * tile_rows * runs.a_row; }
  std::size_t y_copy() const { return y_blocks * tile_rows * most_runs * runs.pixels; }
  std::size_t tiles() const { return taps * x_blocks * y_blocks; }
  // A thread's: those of tiles, then those of dy for the bias.
  std::size_t sums() const { return tiles() * tile_size + y_blocks * tile_rows; }
  std::size_t all_runs() const { return images * parts; }

  Window window;
  std::size_t x_blocks, y_blocks, taps;
  std::size_t row;  // pixels of a padded row
  std::size_t images, x_height, y_height, rows, parts;
  Runs runs{};
  std::size_t most_runs, members;
};

// Where the pixels of a run lie, one after the other. Those in the padding are `zero`.
class RunOfPixels {
 public:
  // `first` is of the image's rows, and may lie in the padding; `rows` of `width` pixels.
  RunOfPixels(const Tensor& t, const Bf16* data, std::size_t image, std::ptrdiff_t first,
              std::size_t height, std::size_t rows, std::size_t left, std::size_t row,
              const Bf16* zero)
      : step_(t.pixel_step()),
        width_(t.shape.width),
        left_(left),
        row_(row),
        first_(first),
        height_(static_cast<std::ptrdiff_t>(height)),
        end_(first + static_cast<std::ptrdiff_t>(rows)),
        image_(data + image * height * width_ * step_),
        zero_(zero) {}
  void next(const Bf16** pixels) {
    for (std::size_t i = 0; i < tile_depth;) {  // the padding of a row, or its pixels
      const std::size_t right = left_ + width_;
      const bool in_row = column_ >= left_ && column_ < right,
                 inside = in_row && first_ >= 0 && first_ < std::min(height_, end_);
      const std::size_t end = in_row            ? right
                              : column_ < left_ ? left_
                                                : row_,
                        count = std::min(tile_depth - i, end - column_);
      const Bf16* from = zero_;
      if (inside) from = image_ + (std::size_t(first_) * width_ + column_ - left_) * step_;
      for (std::size_t k = 0; k < count; ++k) pixels[i + k] = from + (inside ? k * step_ : 0);
      i += count;
      column_ += count;
      if (column_ == row_) column_ = 0, ++first_;
    }
  }

 private:
  std::size_t step_, width_, left_, row_, column_ = 0;
  std::ptrdiff_t first_, height_, end_;
  const Bf16 *image_, *zero_;
};

// Copy 32 pixels of all blocks of channels: each block as 16 rows of pixels, `row` from channel to
// channel, or as 16 rows of pairs, `block` from block to block.
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void copy_transposed(
    const Bf16* const* pixels, std::size_t blocks, Bf16* to, std::size_t row) {
  for (std::size_t channel = 0; channel < blocks * tile_rows; channel += tile_rows) {
    Words words[tile_rows];
#pragma GCC unroll 16
    for (std::size_t i = 0; i < tile_rows; ++i)
      words[i] = pair_of(pixels[2 * i] + channel, pixels[2 * i + 1] + channel);
    transpose(words);
#pragma GCC unroll 16
    for (std::size_t i = 0; i < tile_rows; ++i)
      std::memcpy(to + (channel + i) * row, &words[i], sizeof words[i]);
  }
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void copy_pairs(const Bf16* const* pixels,
                                                                      std::size_t blocks, Bf16* to,
                                                                      std::size_t block) {
  for (std::size_t b = 0; b < blocks; ++b)
    for (std::size_t i = 0; i < tile_rows; ++i) {
      const Words words = pair_of(pixels[2 * i] + b * tile_rows, pixels[2 * i + 1] + b * tile_rows);
      std::memcpy(to + b * block + i * 2 * tile_rows, &words, sizeof words);
    }
}

// Adds the pixels of one block of pairs to 16 sums.
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma")]] void add_pixels(const Bf16* pairs,
                                                                          std::size_t pixels,
                                                                          float* sums) {
  Vec<16> even{}, odd{};
  for (std::size_t i = 0; i < pixels * tile_rows; i += 2 * tile_rows) {
    Words words;
    std::memcpy(&words, pairs + i, sizeof words);
    even += reinterpret_cast<Vec<16>>(words << 16);
    odd += reinterpret_cast<Vec<16>>(words & 0xffff0000);
  }
  store<16>(sums, load<16>(sums) + even + odd);
}

class WeightGradient {
 public:
  WeightGradient(const Taps& taps, const ConvolutionWeightGradient& step, const Operand& x,
                 const Operand& dy, Planner& planner)
      : taps_(taps),
        geometry_(step.window, x.tensor, dy.tensor, planner.threads()),
        x_(x),
        dy_(dy),
        dw_(planner.gradients(step.w)),
        db_(planner.gradients(step.b)),
        threads_(planner.threads()),
        a_tiles_(geometry_.taps * geometry_.x_blocks),
        zeroes_(planner.scratch(std::max(geometry_.x_blocks, geometry_.y_blocks) * tile_rows *
                                sizeof(Bf16))),
        copies_(planner.scratch(geometry_.members * copies() * sizeof(Bf16))),
        sums_(planner.scratch(geometry_.members * geometry_.sums() * sizeof(float))) {
    planner.add_implementation("amx");
  }

  void operator()(const Frame& frame) const {
    const Geometry& g = geometry_;
    std::fill_n(zeroes_.in<Bf16>(frame), std::max(g.x_blocks, g.y_blocks) * tile_rows, Bf16{});
    for_each_item(threads_, g.members, [&](std::size_t member) {
      const TileConfig tiles;
      const std::size_t end = g.all_runs() * (member + 1) / g.members;
      bool first = true;
      for (std::size_t run = g.all_runs() * member / g.members; run < end;) {
        Runs runs = g.runs;
        runs.count = std::min(g.most_runs, end - run);
        copy(frame, member, run, runs);
        multiply_all(frame, member, runs, first);
        if (db_) add_all_pixels(frame, member, runs, first);
        run += runs.count;
        first = false;
      }
    });
    for_each_item(threads_, g.tiles(), [&](std::size_t tile) { add_up(frame, tile); });
    for (int f = 0; db_ && f < dy_.tensor.shape.channels; ++f)
      db_[f] = over_members(sums_.in(frame) + g.tiles() * tile_size + f);
  }

 private:
  std::size_t copies() const {
    return round_up(geometry_.x_copy() + geometry_.y_copy(), tile_depth);
  }
  Bf16* x_copy(const Frame& frame, std::size_t member) const {
    return copies_.in<Bf16>(frame) + member * copies();
  }
  Bf16* y_copy(const Frame& frame, std::size_t member) const {
    return x_copy(frame, member) + geometry_.x_copy();
  }
  static const Bf16* data(const Operand& o, const Frame& frame) {
    return o.scratch ? o.scratch->in<Bf16>(frame) : o.tensor.as<Bf16>();
  }

  void copy(const Frame& frame, std::size_t member, std::size_t first, const Runs& runs) const {
    const Geometry& g = geometry_;
    const Bf16 *zero = zeroes_.in<Bf16>(frame), *pixels[tile_depth];
    for (std::size_t r = 0; r < runs.count; ++r) {
      const std::size_t image = (first + r) / g.parts, part = (first + r) % g.parts,
                        row = part * g.rows, rows = std::min(g.rows, g.y_height - row);
      RunOfPixels y(dy_.tensor, data(dy_, frame), image, static_cast<std::ptrdiff_t>(row),
                    g.y_height, rows, 0, g.row, zero);
      for (std::size_t p = 0; p < runs.pixels; p += tile_depth) {
        y.next(pixels);
        copy_pairs(pixels, g.y_blocks, y_copy(frame, member) + (r * runs.pixels + p) * tile_rows,
                   runs.count * runs.pixels * tile_rows);
      }
      RunOfPixels x(x_.tensor, data(x_, frame), image,
                    static_cast<std::ptrdiff_t>(row) - g.window.top, g.x_height,
                    g.y_height + g.window.height, g.window.left, g.row, zero);
      for (std::size_t p = 0; p < runs.a_step; p += tile_depth) {
        x.next(pixels);
        copy_transposed(pixels, g.x_blocks, x_copy(frame, member) + r * runs.a_step + p,
                        runs.a_row);
      }
    }
  }

  // The larger copy is read once, the smaller one for each two tiles of that.
  void multiply_all(const Frame& frame, std::size_t member, const Runs& runs, bool first) const {
    const Geometry& g = geometry_;
    const auto block = [&](std::size_t a, std::size_t b) {
      multiply_block(frame, member, runs, first, a, b);
    };
    const std::size_t height = g.y_blocks == 1 ? 4 : 2;
    if (g.x_blocks >= g.y_blocks)
      for (std::size_t a = 0; a < a_tiles_; a += height)
        for (std::size_t b = 0; b < g.y_blocks; b += 2) block(a, b);
    else
      for (std::size_t b = 0; b < g.y_blocks; b += 2)
        for (std::size_t a = 0; a < a_tiles_; a += height) block(a, b);
  }

  void multiply_block(const Frame& frame, std::size_t member, const Runs& runs, bool first,
                      std::size_t a, std::size_t b) const {
    const Geometry& g = geometry_;
    const std::size_t height = std::min<std::size_t>(g.y_blocks == 1 ? 4 : 2, a_tiles_ - a),
                      width = std::min<std::size_t>(2, g.y_blocks - b);
    std::array<const Bf16*, 4> rows{};
    std::array<const Bf16*, 2> columns{};
    std::array<float*, 4> sums{};
    float* const all = sums_.in(frame) + member * g.sums();
    for (std::size_t i = 0; i < height; ++i) {
      const std::size_t tap = (a + i) % g.taps, channels = (a + i) / g.taps * tile_rows,
                        y = tap / g.window.width, x = tap % g.window.width;
      rows[i] = x_copy(frame, member) + channels * runs.a_row + y * g.row + x;
      for (std::size_t j = 0; j < width; ++j)
        sums[i * width + j] = all + ((a + i) * g.y_blocks + b + j) * tile_size;
    }
    for (std::size_t j = 0; j < width; ++j)
      columns[j] = y_copy(frame, member) + (b + j) * runs.count * runs.pixels * tile_rows;
    using Multiply =
        void (*)(const Bf16* const*, const Bf16* const*, const Runs&, float* const*, bool);
    static constexpr Multiply of_one_column[] = {multiply<1, 1>, multiply<2, 1>, multiply<3, 1>,
                                                 multiply<4, 1>},
                              of_two[] = {multiply<1, 2>, multiply<2, 2>};
    (width == 1 ? of_one_column : of_two)[height - 1](rows.data(), columns.data(), runs,
                                                      sums.data(), first);
  }

  void add_all_pixels(const Frame& frame, std::size_t member, const Runs& runs, bool first) const {
    const Geometry& g = geometry_;
    float* const sums = sums_.in(frame) + member * g.sums() + g.tiles() * tile_size;
    if (first) std::fill_n(sums, g.y_blocks * tile_rows, 0.f);
    const std::size_t pixels = runs.count * runs.pixels;
    for (std::size_t b = 0; b < g.y_blocks; ++b)
      add_pixels(y_copy(frame, member) + b * pixels * tile_rows, pixels, sums + b * tile_rows);
  }

  float over_members(const float* part) const {
    float sum = *part;
    for (std::size_t m = 1; m < geometry_.members; ++m) sum += part[m * geometry_.sums()];
    return sum;
  }

  // A tile's sums over all members, to the flat buffer: there a filter's channels lie side by side.
  void add_up(const Frame& frame, std::size_t tile) const {
    const Geometry& g = geometry_;
    const std::size_t a = tile / g.y_blocks, first_filter = tile % g.y_blocks * tile_rows,
                      first_channel = a / g.taps * tile_rows;
    const int tap = static_cast<int>(a % g.taps), y = tap / g.window.width,
              x = tap % g.window.width;
    const std::size_t place = std::size_t(taps_.first_y + y * taps_.step_y) * taps_.columns +
                              taps_.first_x + x * taps_.step_x;
    const std::size_t channels = x_.tensor.shape.channels, filters = dy_.tensor.shape.channels;
    for (std::size_t f = 0; f < std::min(tile_rows, filters - first_filter); ++f)
      for (std::size_t c = 0; c < std::min(tile_rows, channels - first_channel); ++c) {
        const float* part = sums_.in(frame) + tile * tile_size + c * tile_rows + f;
        float sum = *part;
        for (std::size_t member = 1; member < g.members; ++member) sum += part[member * g.sums()];
        dw_[((first_filter + f) * taps_.rows * taps_.columns + place) * channels + first_channel +
            c] = sum;
      }
  }

  Taps taps_;
  Geometry geometry_;
  Operand x_, dy_;
  float *dw_, *db_;
  int threads_;
  std::size_t a_tiles_;  // a block of channels and a tap each
  Scratch zeroes_, copies_, sums_;
};

}  // namespace

bool suits_amx(const ConvolutionWeightGradient& step, const Tensor& x, const Tensor& dy,
               int threads) {
  const ConvolutionShape& w = step.window;
  const std::size_t sums =
      std::size_t(w.height) * w.width * x.padded_channels() * dy.padded_channels() * sizeof(float);
  return w.is_plain() && w.height * w.width > 1 && has_amx_bf16() && x.element == Element::bf16 &&
         x.channels_last && x.block == 16 && dy.block == 16 && w.stride_y == 1 && w.stride_x == 1 &&
         threads <= most_threads && sums * threads <= most_sums_bytes;
}

Action plan_amx(const Taps& taps, const ConvolutionWeightGradient& step, const Operand& x,
                const Operand& dy, Planner& planner) {
  return WeightGradient(taps, step, x, dy, planner);
}

}  // namespace ringtrain::compute::onednn
