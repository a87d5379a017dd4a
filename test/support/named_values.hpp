#pragma once
#include <cmath>

#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/philox.hpp"
#include "ringtrain/model/graph.hpp"

/// Numbers that any program can make from a name: test/parity/named_values.py makes the same. Of a
/// seed other than 0 they are others, which only tests here make.
namespace ringtrain::named {

inline std::string of_seed(const std::string& name, int seed) {
  return seed == 0 ? name : name + " of seed " + std::to_string(seed);
}

inline Philox words(const std::string& name) { return Philox(hash_text(name), Purpose::synthetic); }

inline void fill(const std::string& name, std::span<float> values, float low, float high) {
  Philox random = words(name);
  for (float& v : values) v = random.uniform(low, high);
}

/// Weights with He's deviation, gammas and variances around 1, the rest around 0.
inline void fill(const model::Graph& graph, std::span<float> parameters,
                 std::span<float> statistics, int seed = 0) {
  const auto ranges = graph.parameter_ranges();
  for (std::size_t p = 0; p < ranges.size(); ++p) {
    const auto& [plain_name, dims, role, initial, decay, frozen, held] = graph.parameters[p];
    const std::string name = of_seed(plain_name, seed);
    const std::span<float> values = parameters.subspan(ranges[p].first, ranges[p].count);
    const auto bound = static_cast<float>(std::sqrt(6.0 * double(dims[0]) / double(values.size())));
    if (dims.size() > 1) fill(name, values, -bound, bound);
    if (dims.size() == 1 && role == model::Parameter::Role::gamma) fill(name, values, 0.5f, 1.5f);
    if (dims.size() == 1 && role != model::Parameter::Role::gamma) fill(name, values, -0.2f, 0.2f);
  }
  const auto places = graph.statistics_ranges();
  for (std::size_t s = 0; s < places.size(); ++s) {
    const auto& [name, channels, momentum, frozen] = graph.statistics[s];
    fill(of_seed(name + ".running_mean", seed), statistics.subspan(places[s].first, channels),
         -0.2f, 0.2f);
    fill(of_seed(name + ".running_var", seed),
         statistics.subspan(places[s].first + channels, channels), 0.5f, 1.5f);
  }
}

/// `count` square images, interleaved: patches of 8 x 8 pixels of one colour under noise.
inline std::vector<std::uint8_t> images(int count, int extent, int seed = 0) {
  const int cells = (extent + 7) / 8;
  std::vector<std::uint32_t> patches(std::size_t(count) * cells * cells * 3);
  Philox colours = words(of_seed("patches", seed)), noise = words(of_seed("noise", seed));
  for (auto& v : patches) v = colours.next() >> 25;
  std::vector<std::uint8_t> pixels;
  for (int n = 0; n < count; ++n)
    for (int y = 0; y < extent; ++y)
      for (int x = 0; x < extent; ++x)
        for (int c = 0; c < 3; ++c)
          pixels.push_back(static_cast<std::uint8_t>(
              patches[((std::size_t(n) * cells + y / 8) * cells + x / 8) * 3 + c] +
              (noise.next() >> 25)));
  return pixels;
}

inline std::vector<int> labels(int count, int classes, int seed = 0) {
  Philox random = words(of_seed("labels", seed));
  std::vector<int> labels;
  for (int n = 0; n < count; ++n)
    labels.push_back(static_cast<int>(random.next() % static_cast<std::uint32_t>(classes)));
  return labels;
}

/// What is kept of tensors for a comparison: the norm of all their values, and the product with
/// vectors made from their names, which tells where the values are. Of an error that knows nothing
/// of these vectors the product is, too, at most about its norm.
class Probe {
 public:
  void add(const std::string& name, std::span<const float> values) {
    Philox random = words("probe " + name);
    for (const float v : values) {
      squares_ += double(v) * v;
      product_ += double(v) * random.uniform(-1, 1);
    }
  }
  double norm() const { return std::sqrt(squares_); }
  double product() const { return product_; }

 private:
  double squares_ = 0, product_ = 0;
};

}  // namespace ringtrain::named
