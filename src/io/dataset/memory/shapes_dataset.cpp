#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>

#include "io/dataset/datasets.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/philox.hpp"
#include "ringtrain/io/dataset/dataset.hpp"

namespace ringtrain::io {
namespace {

/// The classes of `shapes`, in the order of their labels.
constexpr std::array<const char*, 10> shape_names{
    "circle", "ring", "square", "triangle", "diamond", "cross", "plus", "star", "bar", "crescent"};

/// Draws image `sample` of a split into `image` (32x32): the shape of class sample % 10 with random
/// place, size, turn and colour on a shaded background, with noise. A pure function, computed with
/// exactly rounded operations only, so that every machine draws the same bytes.
void draw_shape(Split split, std::uint64_t sample, Image& image);

class ShapesReader final : public SampleReader {
 public:
  explicit ShapesReader(Split split) : split_(split) {}
  Extent open(std::uint64_t sample) override {
    draw_shape(split_, sample, image_);
    return image_.extent;
  }
  PixelView pixels(const CropRequest&) override { return {image_.view()}; }

 private:
  Split split_;
  Image image_;
};

class Shapes final : public Dataset {
 public:
  explicit Shapes(Split split) : split_(split) {}
  std::uint64_t size() const override { return split_ == Split::training ? 10'000 : 2'000; }
  const std::vector<std::string>& class_names() const override { return names_; }
  int label(std::uint64_t sample) const override {
    return static_cast<int>(sample % shape_names.size());
  }
  std::unique_ptr<SampleReader> reader() const override {
    return std::make_unique<ShapesReader>(split_);
  }
  std::string description() const override {
    return fmt::format("shapes: {} {} images drawn at 32x32, {} classes", size(),
                       split_ == Split::training ? "training" : "evaluation", classes());
  }
  std::uint64_t manifest_hash() const override { return hash_text(description()); }

 private:
  Split split_;
  std::vector<std::string> names_{shape_names.begin(), shape_names.end()};
};

}  // namespace

std::unique_ptr<Dataset> open_shapes(Split split) { return std::make_unique<Shapes>(split); }

namespace {

constexpr int side = 32;

struct Point {
  float x, y;
};

float length(Point p) { return std::sqrt(p.x * p.x + p.y * p.y); }

// Signed distances to the outline, negative inside, of shapes about two units across; y grows
// downwards. Near the outline they are exact enough for anti-aliasing.

float circle(Point p) { return length(p) - 0.9f; }

float ring(Point p) { return std::abs(length(p) - 0.78f) - 0.2f; }

float box(Point p, float half_width, float half_height) {
  return std::max(std::abs(p.x) - half_width, std::abs(p.y) - half_height);
}

float square(Point p) { return box(p, 0.8f, 0.8f); }

float triangle(Point p) {
  return std::max(p.y - 0.55f, 0.8660254f * std::abs(p.x) - 0.5f * p.y - 0.55f);
}

float diamond(Point p) { return 0.8f * std::abs(p.x) + 0.6f * std::abs(p.y) - 0.62f; }

float plus(Point p) { return std::min(box(p, 1.0f, 0.28f), box(p, 0.28f, 1.0f)); }

float cross(Point p) {
  constexpr float half_root = 0.70710678f;
  return plus({half_root * (p.x + p.y), half_root * (p.y - p.x)});
}

// A pentagram is what lies inside at least four of its five lines, so the second largest distance
// to a line decides.
float star(Point p) {
  constexpr std::array<Point, 5> normals{{{0, 1},
                                          {0.95105652f, 0.30901699f},
                                          {0.58778525f, -0.80901699f},
                                          {-0.58778525f, -0.80901699f},
                                          {-0.95105652f, 0.30901699f}}};
  float largest = -9, second = -9;
  for (const Point n : normals) {
    const float distance = n.x * p.x + n.y * p.y;
    second = std::max(second, std::min(largest, distance));
    largest = std::max(largest, distance);
  }
  return second - 0.37f;
}

float bar(Point p) { return box(p, 1.1f, 0.27f); }

float crescent(Point p) { return std::max(length(p) - 1.0f, 0.8f - length({p.x - 0.5f, p.y})); }

using Outline = float (*)(Point);
constexpr std::array<Outline, shape_names.size()> outlines{
    circle, ring, square, triangle, diamond, cross, plus, star, bar, crescent};

using Shade = std::array<float, Image::channels>;

struct Scene {
  float radius;
  Point centre;
  float cosine, sine;  // of its turn: any quarter, and a tilt
  Shade background, slope_x, slope_y, foreground;
};

Shade draw_colour(Philox& random, float low, float high) {
  Shade colour;
  for (float& value : colour) value = random.uniform(low, high);
  return colour;
}

float difference(const Shade& a, const Shade& b) {
  float sum = 0;
  for (int c = 0; c < Image::channels; ++c) sum += std::abs(a[c] - b[c]);
  return sum;
}

Scene draw_scene(Philox& random) {
  Scene scene;
  scene.radius = random.uniform(7, 11);
  // Whole within the central 26 pixels, so that a 24-pixel crop loses little of it.
  const float room = 13 - scene.radius;
  scene.centre = {side / 2.f + random.uniform(-room, room),
                  side / 2.f + random.uniform(-room, room)};
  const float t = random.uniform(-0.12f, 0.12f);  // tangent of half the tilt: about 14 degrees
  scene.cosine = (1 - t * t) / (1 + t * t);
  scene.sine = 2 * t / (1 + t * t);
  for (std::uint32_t turns = random.below(4); turns > 0; --turns)
    scene.sine = std::exchange(scene.cosine, -scene.sine);
  scene.background = draw_colour(random, 0, 120);
  scene.slope_x = draw_colour(random, -1, 1);
  scene.slope_y = draw_colour(random, -1, 1);
  do scene.foreground = draw_colour(random, 100, 255);
  while (difference(scene.foreground, scene.background) < 150);
  return scene;
}

/// The part of pixel (x, y) that the shape covers.
float coverage(const Scene& scene, Outline outline, int x, int y) {
  const Point p{static_cast<float>(x) + 0.5f - scene.centre.x,
                static_cast<float>(y) + 0.5f - scene.centre.y};
  const Point tilted{(scene.cosine * p.x + scene.sine * p.y) / scene.radius,
                     (scene.cosine * p.y - scene.sine * p.x) / scene.radius};
  return std::clamp(0.5f - outline(tilted) * scene.radius, 0.f, 1.f);
}

using Row = std::array<float, side * Image::channels>;

/// Triangular noise in -25..25 grey levels for row `y`: each value is the sum of two random bytes.
void draw_noise(const Philox& random, int y, Row& noise) {
  constexpr int values = 8;  // of one block
  constexpr int blocks = static_cast<int>(std::tuple_size_v<Row>) / values;
  for (int b = 0; b < blocks; ++b) {
    const auto block = random.at(static_cast<std::uint32_t>(y * blocks + b));
    for (int i = 0; i < values; ++i) {
      const std::uint32_t bytes = block[i / 2] >> (i % 2 * 16);
      const auto sum = static_cast<int>((bytes & 255) + (bytes >> 8 & 255));
      noise[b * values + i] = static_cast<float>(sum - 255) * (25.f / 255);
    }
  }
}

std::uint8_t to_byte(float value) {
  return static_cast<std::uint8_t>(std::clamp(value + 0.5f, 0.f, 255.f));
}

void paint_row(const Scene& scene, Outline outline, int y, const Row& noise, std::uint8_t* row) {
  constexpr int middle = side / 2;
  for (int x = 0; x < side; ++x) {
    const float shape = coverage(scene, outline, x, y);
    for (int c = 0; c < Image::channels; ++c) {
      const float shade = scene.slope_x[c] * static_cast<float>(x - middle) +
                          scene.slope_y[c] * static_cast<float>(y - middle);
      const float behind = scene.background[c] + shade;
      const int i = x * Image::channels + c;
      row[i] = to_byte(behind + shape * (scene.foreground[c] - behind) + noise[i]);
    }
  }
}

void draw_shape(Split split, std::uint64_t sample, Image& image) {
  const std::uint32_t stream = split == Split::training ? 0 : 1;
  Philox random(0, Purpose::shapes, stream, sample);
  const Philox noise_random(0, Purpose::shapes, 2 + stream, sample);
  const Scene scene = draw_scene(random);
  const Outline outline = outlines[sample % outlines.size()];

  image.reshape({side, side});
  Row noise;
  for (int y = 0; y < side; ++y) {
    draw_noise(noise_random, y, noise);
    paint_row(scene, outline, y, noise, &image.pixels[std::size_t(y) * noise.size()]);
  }
}

}  // namespace

}  // namespace ringtrain::io
