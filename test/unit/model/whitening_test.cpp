#include "ringtrain/model/whitening.hpp"

#include <algorithm>
#include <cmath>

#include "ringtrain/base/philox.hpp"
#include "ringtrain/model/zoo.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::model;

namespace {

constexpr int height = 9, width = 11, channels = 3, window = 2 * 2 * channels;

// Neighbours are alike, and so are channels.
std::vector<std::uint8_t> image(int number) {
  Philox random(number, Purpose::synthetic);
  std::vector<std::uint8_t> pixels(height * width * channels);
  int value = 128;
  for (std::uint8_t& pixel : pixels) {
    value = std::clamp(value + int(random.below(61)) - 30, 0, 255);
    pixel = static_cast<std::uint8_t>(value);
  }
  return pixels;
}

const std::vector<float> mean{0.5f, 0.4f, 0.3f}, deviation{0.25f, 0.2f, 0.3f};

}  // namespace

TEST_CASE("whitening: results have no correlation, and the variance that epsilon leaves them") {
  const double epsilon = GENERATE(0.0, 0.01);
  WhiteningFilters whitening(2, 2, channels);
  for (int i = 0; i < 20; ++i) whitening.add(image(i), height, width);
  const std::vector<double> filters = whitening.filters(mean, deviation, epsilon);
  REQUIRE(filters.size() == 2 * window * window);

  std::vector<double> products(window * window);
  int windows = 0;
  for (int i = 0; i < 20; ++i) {
    const auto pixels = image(i);
    for (int y = 0; y + 2 <= height; ++y)
      for (int x = 0; x + 2 <= width; ++x, ++windows) {
        std::vector<double> seen, results;
        for (int row = y; row < y + 2; ++row)
          for (int column = x; column < x + 2; ++column)
            for (int c = 0; c < channels; ++c)
              seen.push_back((pixels[(row * width + column) * channels + c] / 255. - mean[c]) /
                             deviation[c]);
        for (int k = 0; k < window; ++k) {
          double sum = 0;
          for (int v = 0; v < window; ++v) sum += filters[k * window + v] * seen[v];
          results.push_back(sum);
        }
        for (int a = 0; a < window; ++a)
          for (int b = 0; b < window; ++b) products[a * window + b] += results[a] * results[b];
      }
  }
  double last = 2;
  for (int a = 0; a < window; ++a) {
    for (int b = 0; b < window; ++b)
      if (a != b) CHECK(std::abs(products[a * window + b] / windows) < 1e-6);
    const double variance = products[a * window + a] / windows;  // e / (e + epsilon)
    CHECK(variance <= last + 1e-9);
    if (epsilon == 0) CHECK(variance == Approx(1).epsilon(1e-6));
    last = variance;
  }
  CHECK((epsilon == 0 || (last > 0 && last < 0.999)));
  for (std::size_t i = 0; i < filters.size() / 2; ++i)
    CHECK(filters[i] == -filters[filters.size() / 2 + i]);
}

TEST_CASE("whitening: the order of the images changes no bit") {
  WhiteningFilters forth(2, 2, channels), back(2, 2, channels);
  for (int i = 0; i < 5; ++i) forth.add(image(i), height, width);
  for (int i = 5; i-- > 0;) back.add(image(i), height, width);

  CHECK(forth.filters(mean, deviation, 5e-4) == back.filters(mean, deviation, 5e-4));
}

TEST_CASE("initialise: with dirac the first filters hand on a channel each") {
  const Graph graph = make_model("airbench94").graph;
  std::vector<float> parameters(graph.parameter_count()), statistics(graph.statistic_count());
  initialise(graph, 3, parameters, statistics);
  const auto ranges = graph.parameter_ranges();
  const auto found = std::ranges::find(graph.parameters, "group1.conv1.weight", &Parameter::name);
  const Range range = ranges[std::size_t(found - graph.parameters.begin())];
  const auto weights = std::span(parameters).subspan(range.first, range.count);
  REQUIRE(found->dims == std::vector<std::size_t>{64, 3, 3, 24});

  const std::size_t filter = 9 * 24;
  for (std::size_t out = 0; out < 64; ++out) {
    double sum = 0;
    for (std::size_t i = 0; i < filter; ++i) sum += std::abs(weights[out * filter + i]);
    if (out < 24) {
      CHECK(weights[out * filter + 4 * 24 + out] == 1);
      CHECK(sum == 1);
    } else {
      CHECK(sum / filter == Approx(0.5 / std::sqrt(216.)).epsilon(0.3));
    }
  }
}
