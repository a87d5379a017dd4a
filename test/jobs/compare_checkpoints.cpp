// compare_checkpoints A.h5 B.h5 TOLERANCE [PREFIX]: whether the tensors whose names start with
// PREFIX (weights/ unless given) agree, as one vector: the norm of the difference over the norm of
// A's. The worst tensor is printed for the reader; one that is nearly zero, such as a young bias,
// says little.
#include <fmt/core.h>

#include <cmath>
#include <cstdlib>
#include <vector>

#include "ringtrain/io/checkpoint_reader.hpp"

using namespace ringtrain;

namespace {

std::vector<float> values(const CheckpointFile& file, std::size_t tensor) {
  std::vector<float> result(element_count(file.tensors()[tensor]));
  file.read(tensor, result);
  return result;
}

// Squared norms of A's values and of the difference.
struct Squares {
  double values = 0, difference = 0;
  double ratio() const { return std::sqrt(difference / std::max(values, 1e-30)); }
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
  const auto a = CheckpointFile::open(argv[1]), b = CheckpointFile::open(argv[2]);
  const double tolerance = std::atof(argv[3]);
  const std::string prefix = argc > 4 ? argv[4] : "weights/";
  b.expect(a.tensors());
  Squares all;
  double worst = 0;
  std::string where = "none";
  for (std::size_t t = 0; t < a.tensors().size(); ++t) {
    if (!a.tensors()[t].name.starts_with(prefix)) continue;
    const Squares tensor = squares_of(values(a, t), values(b, t));
    all.values += tensor.values;
    all.difference += tensor.difference;
    if (!(tensor.ratio() <= worst)) where = a.tensors()[t].name, worst = tensor.ratio();
  }
  fmt::print("relative difference {:.2g}, largest in a tensor {:.2g} in {}\n", all.ratio(), worst,
             where);
  const bool agree = all.values > 0 && all.ratio() <= tolerance;  // false for NaN
  return agree && a.metadata().step == b.metadata().step ? 0 : 1;
}
