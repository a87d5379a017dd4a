#include "ringtrain/model/onnx.hpp"

#include <sstream>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/memory/memory.hpp"
#include "support/catch.hpp"
#include "support/model_files.hpp"
#include "support/named_values.hpp"

using namespace ringtrain;
using namespace ringtrain::model;

namespace {

Graph one_layer(int outputs) {
  GraphBuilder g;
  const compute::TensorId x = g.input(1, 1, 3, {compute::Normalisation::standardise_image});
  g.loss(g.matrix_product("fc", x, outputs, {}, 0.0, true));
  return std::move(g).finish();
}

}  // namespace

TEST_CASE("onnx: the same network and options are the same bytes, with names and metadata") {
  const Graph graph = one_layer(2);
  const std::vector<float> parameters(graph.parameter_count(), 1);
  const auto text = [&] {
    std::ostringstream out;
    write_onnx(out, graph, {parameters, {}}, {.name = "small", .metadata = {{"key", "worth"}}});
    return out.str();
  };

  CHECK(text() == text());
  for (const char* word : {"Gemm", "fc.weight", "logits", "batch", "small", "key", "worth"})
    CHECK(text().find(word) != std::string::npos);
}

TEST_CASE("onnx: every operation is written, with BatchNorms beside their layers or inside") {
  const Graph graph =
      read_model(text_of(RINGTRAIN_MODELS "/../test/support/operations.model")).graph;
  std::vector<float> parameters(graph.parameter_count()), statistics(graph.statistic_count());
  named::fill(graph, parameters, statistics);
  const auto text = [&](const OnnxOptions& options) {
    std::ostringstream out;
    write_onnx(out, graph, {parameters, statistics}, options);
    return out.str();
  };

  const std::string pixels = text({.uint8_input = true}), folded = text({.fold_batch_norm = true});

  for (const char* op : {"Conv", "Erf", "Tanh", "LRN", "LayerNormalization", "HardSigmoid", "Slice",
                         "reflect", "AveragePool", "Unsqueeze", "Concat"})
    CHECK(pixels.find(op) != std::string::npos);
  CHECK(pixels.find("BatchNormalization") != std::string::npos);
  CHECK(folded.find("BatchNormalization") == std::string::npos);
  CHECK(folded.find("images") == std::string::npos);
}

TEST_CASE("onnx: what does not fit 2 GiB is refused before a byte is written") {
  const Graph graph = one_layer(200'000'000);
  ReservedMemory memory;
  const Buffer parameters = memory.allocate(graph.parameter_count());
  std::ostringstream out;

  try {
    write_onnx(out, graph, {parameters.view().host(), {}}, {});
    FAIL("written");
  } catch (const Error& failure) {
    CHECK(failure.code() == Exit::usage);
    CHECK_THAT(failure.what(), Catch::Contains("2 GiB") && Catch::Contains("safetensors"));
  }
  CHECK(out.str().empty());
}
