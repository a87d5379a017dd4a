// compare_checkpoints A.h5 B.h5 TOLERANCE [PREFIX]: whether the tensors whose names start with
// PREFIX (weights/ unless given) agree, as one vector: the norm of the difference over the norm of
// A's. Without PREFIX, both files must have the same tensors. The median and the worst tensors are
// printed for the reader; one that is nearly zero, such as a young bias, says little.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ringtrain/io/checkpoint/checkpoint_reader.hpp"

using namespace ringtrain;

namespace {

std::vector<float> values(const io::CheckpointFile& file, std::size_t tensor) {
  std::vector<float> result(io::element_count(file.tensors()[tensor]));
  file.read(tensor, result);
  return result;
}

std::size_t place_of(const io::CheckpointFile& file, const std::string& name) {
  const auto found = std::ranges::find(file.tensors(), name, &io::TensorInfo::name);
  if (found != file.tensors().end()) return std::size_t(found - file.tensors().begin());
  fmt::print("no {} in the other file\n", name);
  std::exit(1);
}

// Squared norms of A's values and of the difference.
struct Squares {
  double values = 0, difference = 0;
  double ratio() const {
    const double ratio = std::sqrt(difference / std::max(values, 1e-30));
    return std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio;
  }
};

Squares squares_of(const std::vector<float>& a, const std::vector<float>& b) {
  Squares s;
  for (std::size_t i = 0; i < a.size(); ++i) {
    s.values += double(a[i]) * a[i];
    s.difference += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
  }
  return s;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 64;
  const auto a = io::CheckpointFile::open(argv[1]), b = io::CheckpointFile::open(argv[2]);
  const double tolerance = std::atof(argv[3]);
  const std::string prefix = argc > 4 ? argv[4] : "weights/";
  if (argc <= 4) b.expect(a.tensors());
  Squares all;
  std::vector<std::pair<double, std::string>> each;
  for (std::size_t t = 0; t < a.tensors().size(); ++t) {
    const std::string& name = a.tensors()[t].name;
    if (!name.starts_with(prefix)) continue;
    const Squares tensor = squares_of(values(a, t), values(b, place_of(b, name)));
    all.values += tensor.values;
    all.difference += tensor.difference;
    each.emplace_back(tensor.ratio(), name);
  }
  std::ranges::sort(each, std::greater());
  each.resize(std::max<std::size_t>(each.size(), 1));
  fmt::print("relative difference {:.2g}, median of tensors {:.2g}, largest {:.2g} in {}\n",
             all.ratio(), each[each.size() / 2].first, each.front().first, each.front().second);
  for (std::size_t t = 1; t < std::min<std::size_t>(each.size(), 8); ++t)
    fmt::print("  then {:.2g} in {}\n", each[t].first, each[t].second);
  const bool agree = all.values > 0 && all.ratio() <= tolerance;  // false for NaN
  return agree && a.metadata().step == b.metadata().step ? 0 : 1;
}
