#include "io/loader/mixing.hpp"

#include <algorithm>
#include <cmath>

namespace ringtrain::io {
namespace {

// In (0, 1).
double drawn(Philox& random) { return double(random.uniform()) + 0x1p-25; }

// Marsaglia and Tsang, "A simple method for generating gamma variables" (ACM TOMS 26, 2000).
double draw_gamma(Philox& random, double shape) {
  if (shape < 1) {
    const double larger = draw_gamma(random, shape + 1);
    return larger * std::pow(drawn(random), 1 / shape);
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = random.normal(), root = 1 + c * x, v = root * root * root;
    if (v > 0 && std::log(drawn(random)) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
  }
}

// Of Beta(alpha, alpha).
double draw_part(Philox& random, double alpha) {
  const double a = draw_gamma(random, alpha), b = draw_gamma(random, alpha);
  if (a + b > 0) return a / (a + b);
  return random.uniform() < 0.5f ? 0 : 1;  // both are too small to tell
}

// A box around a random pixel, as far as it lies in the image: torchvision's CutMix.
Mix draw_box(Philox& random, Extent extent, double part) {
  const int x = static_cast<int>(random.below(static_cast<std::uint32_t>(extent.width)));
  const int y = static_cast<int>(random.below(static_cast<std::uint32_t>(extent.height)));
  const double half = std::sqrt(1 - part) / 2;
  const int across = static_cast<int>(half * extent.width),
            down = static_cast<int>(half * extent.height);
  const int left = std::max(x - across, 0), right = std::min(x + across, extent.width);
  const int top = std::max(y - down, 0), bottom = std::min(y + down, extent.height);
  const double cut = double(right - left) * (bottom - top) / double(extent.pixels());
  if (cut == 0) return {};
  return {static_cast<std::uint32_t>(std::lround((1 - cut) * Mix::one)), top, left, bottom - top,
          right - left};
}

void exchange(const Mix& box, Extent extent, int channels, std::span<std::uint8_t> a,
              std::span<std::uint8_t> b) {
  const std::size_t bytes = std::size_t(box.width) * channels;
  for (int row = box.top; row < box.top + box.height; ++row) {
    const std::size_t first = (std::size_t(row) * extent.width + box.left) * channels;
    std::ranges::swap_ranges(a.subspan(first, bytes), b.subspan(first, bytes));
  }
}

void blend(std::uint32_t kept, std::span<std::uint8_t> first, std::span<std::uint8_t> second) {
  std::uint8_t* const a = first.data();
  std::uint8_t* const b = second.data();
  const std::uint32_t other = Mix::one - kept;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const std::uint32_t of_a = a[i], of_b = b[i];
    a[i] = static_cast<std::uint8_t>((kept * of_a + other * of_b + Mix::one / 2) >> 16);
    b[i] = static_cast<std::uint8_t>((kept * of_b + other * of_a + Mix::one / 2) >> 16);
  }
}

Target mixed(int own, int other, float kept) {
  return kept < 0.5f ? Target{other, own, 1 - kept} : Target{own, other, kept};
}

}  // namespace

Mix draw_mix(const Mixing& mixing, Extent extent, Philox random) {
  if (!mixing.mixes() || random.uniform() >= mixing.probability) return {};
  const bool both = mixing.mixup > 0 && mixing.cutmix > 0;
  const bool cuts = both ? random.uniform() < mixing.cutmix_share : mixing.cutmix > 0;
  const double part = draw_part(random, cuts ? mixing.cutmix : mixing.mixup);
  if (cuts) return draw_box(random, extent, part);
  return {.kept = static_cast<std::uint32_t>(std::lround(part * Mix::one))};
}

void mix(const Mix& drawn, Extent extent, int channels, MixedImage a, MixedImage b) {
  if (drawn.kept == Mix::one) return;
  if (drawn.cuts())
    exchange(drawn, extent, channels, a.pixels, b.pixels);
  else
    blend(drawn.kept, a.pixels, b.pixels);
  const float kept = float(drawn.kept) / Mix::one;
  const int of_a = a.target.label, of_b = b.target.label;
  a.target = mixed(of_a, of_b, kept);
  b.target = mixed(of_b, of_a, kept);
}

}  // namespace ringtrain::io
