#include "train/plan/gradient_matrices.hpp"

namespace ringtrain::train {

std::vector<allreduce::GradientMatrix> gradient_matrices(const model::Graph& graph) {
  std::vector<allreduce::GradientMatrix> matrices;
  std::size_t first = 0;
  for (const model::Parameter& parameter : graph.parameters) {
    const std::size_t count = parameter.count();
    const std::size_t rows = parameter.dims.size() > 1 ? parameter.dims.front() : 1;
    matrices.push_back({first, rows, count / rows});
    first += count;
  }
  return matrices;
}

}  // namespace ringtrain::train
