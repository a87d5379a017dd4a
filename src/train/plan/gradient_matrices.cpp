#include "train/plan/gradient_matrices.hpp"

namespace ringtrain {

std::vector<GradientMatrix> gradient_matrices(const Graph& graph) {
  std::vector<GradientMatrix> matrices;
  std::size_t first = 0;
  for (const Parameter& parameter : graph.parameters) {
    const std::size_t count = parameter.count();
    const std::size_t rows = parameter.dims.size() > 1 ? parameter.dims.front() : 1;
    matrices.push_back({first, rows, count / rows});
    first += count;
  }
  return matrices;
}

}  // namespace ringtrain
