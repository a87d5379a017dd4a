#include "ringtrain/model/torch_state.hpp"

#include <algorithm>
#include <numeric>

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::model;

namespace {

using Dims = std::vector<std::size_t>;

Graph small_network() {
  GraphBuilder g;
  compute::TensorId x = g.input(4, 6, 3, {compute::Normalisation::standardise_image});
  x = g.convolution("conv", x, {.channels = 8, .height = 3, .width = 1, .bias = 0.0});
  x = g.batch_norm("bn", x, {.gamma = false});
  x = g.layer_scale("scale", x, 1, true);
  g.loss(g.matrix_product("fc", x, 5, {}, std::nullopt, true));
  return std::move(g).finish();
}

TorchTensor tensor_of(const Graph& graph, const std::string& name) {
  for (const TorchTensor& tensor : torch_state(graph))
    if (tensor.name == name) return tensor;
  FAIL("no " << name);
  return {};
}

}  // namespace

TEST_CASE("torch state: names and extents are those of a module of torch") {
  const Graph graph = small_network();

  CHECK(tensor_of(graph, "conv.weight").dims == Dims{8, 3, 3, 1});
  CHECK(tensor_of(graph, "conv.bias").dims == Dims{8});
  CHECK(tensor_of(graph, "scale").dims == Dims{8, 1, 1});
  CHECK(tensor_of(graph, "fc.weight").dims == Dims{5, 192});
  CHECK(tensor_of(graph, "bn.weight").values == TorchTensor::Values::ones);
  CHECK(tensor_of(graph, "bn.running_var").place.first == 8);
  CHECK(tensor_of(graph, "bn.num_batches_tracked").dims.empty());
  CHECK(torch_state(graph).size() == 9);
}

TEST_CASE("torch state: a layer behind a flattened image reads channels before pixels") {
  const TorchTensor fc = tensor_of(small_network(), "fc.weight");
  std::vector<float> ours(fc.place.count), theirs(ours.size()), back(ours.size());
  std::iota(ours.begin(), ours.end(), 0.f);

  to_torch_layout(ours, fc.row, theirs);
  from_torch_layout(theirs, fc.row, back);

  CHECK(theirs[1] == 8);           // the next pixel of channel 0
  CHECK(theirs[24] == 1);          // channel 1
  CHECK(theirs[192 + 24] == 193);  // of the next row
  CHECK(back == ours);
}
