#include "io/image/augment/policies.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

using enum PixelOperation::Kind;
using Kind = PixelOperation::Kind;

/// Those of TrivialAugmentWide and RandAugment.
constexpr std::array torchvision_kinds{
    identity, shear_x,  shear_y,   translate_x, translate_y, rotate,        brightness,
    color,    contrast, sharpness, posterize,   solarize,    auto_contrast, equalize};
constexpr std::array timm_kinds{auto_contrast, equalize, invert,      rotate,      posterize,
                                solarize,      color,    contrast,    brightness,  sharpness,
                                shear_x,       shear_y,  translate_x, translate_y, solarize_add};
constexpr int wide_bins = 31, auto_bins = 10;

/// The largest magnitudes of torchvision's operations.
struct Limits {
  double shear, across, down, degrees, factor;
  int fewest_bits;
};

Limits wide_limits() { return {0.99, 32, 32, 135, 0.99, 2}; }

Limits usual_limits(Extent extent) {
  return {0.3, 150.0 * extent.width / 331, 150.0 * extent.height / 331, 30, 0.9, 4};
}

/// One of `bins` equal steps from 0 on.
struct Bin {
  int number, bins;
  double of(double limit) const { return limit * number / (bins - 1); }
};

double magnitude_of(Kind kind, const Limits& limits, Bin bin, double sign) {
  switch (kind) {
    case shear_x:
    case shear_y:
      return sign * bin.of(limits.shear);
    case translate_x:
      return sign * std::trunc(bin.of(limits.across));
    case translate_y:
      return sign * std::trunc(bin.of(limits.down));
    case rotate:
      return sign * bin.of(limits.degrees);
    case brightness:
    case color:
    case contrast:
    case sharpness:
      return 1 + sign * bin.of(limits.factor);
    case posterize:
      return 8 - std::nearbyint(bin.of(8 - limits.fewest_bits));
    case solarize:
      return 255 - bin.of(255);
    default:
      return 0;
  }
}

double draw_sign(Philox& random) { return random.below(2) == 0 ? 1 : -1; }

template <std::size_t size>
Kind draw_kind(const std::array<Kind, size>& kinds, Philox& random) {
  return kinds[random.below(size)];
}

/// How far timm goes at `level`, of 0..10.
double timm_magnitude(Kind kind, double level, Extent extent, double sign) {
  const double part = level / 10;
  switch (kind) {
    case shear_x:
    case shear_y:
      return sign * 0.3 * part;
    case translate_x:
      return sign * 0.45 * part * extent.width;
    case translate_y:
      return sign * 0.45 * part * extent.height;
    case rotate:
      return sign * 30 * part;
    case brightness:
    case color:
    case contrast:
    case sharpness:
      return std::max(0.1, 1 + sign * 0.9 * part);
    case posterize:
      return 4 - std::trunc(4 * part);
    case solarize:
      return 256 - std::trunc(256 * part);
    case solarize_add:
      return std::trunc(110 * part);
    default:
      return 0;
  }
}

/// An operation of AutoAugment's tables: with a probability in tenths, at a bin of ten.
struct Chance {
  Kind kind;
  int tenths, bin = 0;
};
using Row = std::array<Chance, 2>;
using Rows = std::array<Row, 25>;

// Cubuk et al., arXiv 1805.09501, tables 7 and 9, as torchvision has them.
constexpr Rows cifar10_rows{{
    {{{invert, 1}, {contrast, 2, 6}}},
    {{{rotate, 7, 2}, {translate_x, 3, 9}}},
    {{{sharpness, 8, 1}, {sharpness, 9, 3}}},
    {{{shear_y, 5, 8}, {translate_y, 7, 9}}},
    {{{auto_contrast, 5}, {equalize, 9}}},
    {{{shear_y, 2, 7}, {posterize, 3, 7}}},
    {{{color, 4, 3}, {brightness, 6, 7}}},
    {{{sharpness, 3, 9}, {brightness, 7, 9}}},
    {{{equalize, 6}, {equalize, 5}}},
    {{{contrast, 6, 7}, {sharpness, 6, 5}}},
    {{{color, 7, 7}, {translate_x, 5, 8}}},
    {{{equalize, 3}, {auto_contrast, 4}}},
    {{{translate_y, 4, 3}, {sharpness, 2, 6}}},
    {{{brightness, 9, 6}, {color, 2, 8}}},
    {{{solarize, 5, 2}, {invert, 0}}},
    {{{equalize, 2}, {auto_contrast, 6}}},
    {{{equalize, 2}, {equalize, 6}}},
    {{{color, 9, 9}, {equalize, 6}}},
    {{{auto_contrast, 8}, {solarize, 2, 8}}},
    {{{brightness, 1, 3}, {color, 7, 0}}},
    {{{solarize, 4, 5}, {auto_contrast, 9}}},
    {{{translate_y, 9, 9}, {translate_y, 7, 9}}},
    {{{auto_contrast, 9}, {solarize, 8, 3}}},
    {{{equalize, 8}, {invert, 1}}},
    {{{translate_y, 7, 9}, {auto_contrast, 9}}},
}};
constexpr Rows imagenet_rows{{
    {{{posterize, 4, 8}, {rotate, 6, 9}}}, {{{solarize, 6, 5}, {auto_contrast, 6}}},
    {{{equalize, 8}, {equalize, 6}}},      {{{posterize, 6, 7}, {posterize, 6, 6}}},
    {{{equalize, 4}, {solarize, 2, 4}}},   {{{equalize, 4}, {rotate, 8, 8}}},
    {{{solarize, 6, 3}, {equalize, 6}}},   {{{posterize, 8, 5}, {equalize, 10}}},
    {{{rotate, 2, 3}, {solarize, 6, 8}}},  {{{equalize, 6}, {posterize, 4, 6}}},
    {{{rotate, 8, 8}, {color, 4, 0}}},     {{{rotate, 4, 9}, {equalize, 6}}},
    {{{equalize, 0}, {equalize, 8}}},      {{{invert, 6}, {equalize, 10}}},
    {{{color, 6, 4}, {contrast, 10, 8}}},  {{{rotate, 8, 8}, {color, 10, 2}}},
    {{{color, 8, 8}, {solarize, 8, 7}}},   {{{sharpness, 4, 7}, {invert, 6}}},
    {{{shear_x, 6, 5}, {equalize, 10}}},   {{{color, 4, 0}, {equalize, 6}}},
    {{{equalize, 4}, {solarize, 2, 4}}},   {{{solarize, 6, 5}, {auto_contrast, 6}}},
    {{{invert, 6}, {equalize, 10}}},       {{{color, 6, 4}, {contrast, 10, 8}}},
    {{{equalize, 8}, {equalize, 6}}},
}};

constexpr const char* policy_names =
    "must be none, ta_wide, ra, ra-n2-m9, cifar10, imagenet or timm's rand-m9-mstd0.5-inc1";

/// The number behind `key` in one of `parts`; `usual` where none begins with it. Takes the part.
double take_number(std::vector<std::string>& parts, std::string_view key, double usual,
                   double most) {
  for (std::string& part : parts) {
    if (!part.starts_with(key)) continue;
    const auto number = number_in<double>(std::string_view(part).substr(key.size()));
    if (!number || !(*number >= 0 && *number <= most)) continue;
    part.clear();
    return *number;
  }
  return usual;
}

bool is_taken(const std::vector<std::string>& parts) {
  return std::ranges::all_of(parts, &std::string::empty);
}

bool is_whole_number(double number) { return number == std::floor(number); }

RandAugment parse_rand_augment(std::vector<std::string> parts) {
  const double count = take_number(parts, "n", 2, 100);
  const double magnitude = take_number(parts, "m", 9, wide_bins - 1);
  if (!is_taken(parts) || count < 1 || !is_whole_number(count) || !is_whole_number(magnitude))
    throw BadValue("must be ra-nCOUNT-mMAGNITUDE, with a whole magnitude of 0..30");
  return {static_cast<int>(count), static_cast<int>(magnitude)};
}

TimmRandAugment parse_timm(std::vector<std::string> parts) {
  TimmRandAugment policy;
  policy.deviation = take_number(parts, "mstd", 0, 100);
  policy.magnitude = take_number(parts, "m", 10, 10);
  const double count = take_number(parts, "n", 2, 100),
               increasing = take_number(parts, "inc", 0, 1);
  if (!is_taken(parts) || count < 1 || !is_whole_number(count) || increasing != 1)
    throw BadValue(
        "must be timm's rand-mMAGNITUDE-nCOUNT-mstdDEVIATION-inc1, with a magnitude of 0..10; only "
        "inc1 is here");
  policy.count = static_cast<int>(count);
  return policy;
}

}  // namespace

std::vector<PixelOperation> draw_operations(const TrivialAugmentWide&, Extent, Philox& random) {
  const Kind kind = draw_kind(torchvision_kinds, random);
  const Bin bin{static_cast<int>(random.below(wide_bins)), wide_bins};
  return {{kind, magnitude_of(kind, wide_limits(), bin, draw_sign(random))}};
}

std::vector<PixelOperation> draw_operations(const RandAugment& policy, Extent extent,
                                            Philox& random) {
  const Limits limits = usual_limits(extent);
  std::vector<PixelOperation> drawn(policy.count);
  for (PixelOperation& each : drawn) {
    each.kind = draw_kind(torchvision_kinds, random);
    each.magnitude =
        magnitude_of(each.kind, limits, {policy.magnitude, wide_bins}, draw_sign(random));
  }
  return drawn;
}

std::vector<PixelOperation> draw_operations(const AutoAugment& policy, Extent extent,
                                            Philox& random) {
  const Rows& rows = policy.table == AutoAugment::Table::cifar10 ? cifar10_rows : imagenet_rows;
  const Limits limits = usual_limits(extent);
  std::vector<PixelOperation> drawn;
  for (const auto& [kind, tenths, bin] :
       rows[random.below(static_cast<std::uint32_t>(rows.size()))]) {
    const bool happens = random.below(10) < static_cast<std::uint32_t>(tenths);
    const double sign = draw_sign(random);
    if (happens) drawn.push_back({kind, magnitude_of(kind, limits, {bin, auto_bins}, sign)});
  }
  return drawn;
}

std::vector<PixelOperation> draw_operations(const TimmRandAugment& policy, Extent extent,
                                            Philox& random) {
  std::vector<PixelOperation> drawn;
  for (int i = 0; i < policy.count; ++i) {
    const Kind kind = draw_kind(timm_kinds, random);
    if (random.below(2) == 0) continue;
    const double level =
        std::clamp(policy.magnitude + policy.deviation * random.normal(), 0.0, 10.0);
    drawn.push_back({kind, timm_magnitude(kind, level, extent, draw_sign(random))});
  }
  return drawn;
}

std::optional<AugmentationOperation> parse_policy(std::string_view name) {
  if (name == "none") return std::nullopt;
  if (name == "ta_wide") return TrivialAugmentWide{};
  if (name == "cifar10") return AutoAugment{AutoAugment::Table::cifar10};
  if (name == "imagenet") return AutoAugment{AutoAugment::Table::imagenet};
  std::vector<std::string> parts = split(std::string(name), '-');
  const std::string kind = parts.front();
  parts.erase(parts.begin());
  if (std::ranges::any_of(parts, &std::string::empty)) throw BadValue(policy_names);
  if (kind == "ra") return parse_rand_augment(std::move(parts));
  if (kind == "rand") return parse_timm(std::move(parts));
  throw BadValue(policy_names);
}

}  // namespace ringtrain::io
