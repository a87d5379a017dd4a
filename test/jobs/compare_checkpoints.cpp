// compare_checkpoints A.h5 B.h5 TOLERANCE [PREFIX]: whether every tensor whose name starts with
// PREFIX agrees, by the norm of the difference over the norm of A's.
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

double norm(const std::vector<float>& v) {
  double squares = 0;
  for (const float x : v) squares += double(x) * x;
  return std::sqrt(squares);
}

double relative_difference(const std::vector<float>& a, std::vector<float> b) {
  for (std::size_t i = 0; i < a.size(); ++i) b[i] -= a[i];
  return norm(b) / std::max(norm(a), 1e-6);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 64;
  const auto a = CheckpointFile::open(argv[1]), b = CheckpointFile::open(argv[2]);
  const double tolerance = std::atof(argv[3]);
  const std::string prefix = argc > 4 ? argv[4] : "";
  b.expect(a.tensors());
  double worst = 0;
  std::string where;
  int compared = 0;
  for (std::size_t t = 0; t < a.tensors().size(); ++t) {
    if (!a.tensors()[t].name.starts_with(prefix)) continue;
    const double difference = relative_difference(values(a, t), values(b, t));
    ++compared;
    if (!(difference <= worst)) where = a.tensors()[t].name, worst = difference;
  }
  fmt::print("{} tensors, largest relative difference {:.2g} in {}\n", compared, worst, where);
  return compared > 0 && !(worst > tolerance) && !std::isnan(worst) &&
                 a.metadata().step == b.metadata().step
             ? 0
             : 1;
}
