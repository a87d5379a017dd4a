// onnx_dump MODEL_FILE "INPUT_WORDS" OUT: a network with values made from names, for
// test/unit/scripts/onnx_test.py. OUT.uint8.onnx takes pixels, OUT.folded.onnx what they are
// normalised to, with BatchNorms in the layers before them. OUT.images: uint8, three images, height
// x width x channels each; OUT.logits: fp32, what oneDNN makes of them.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>

#include "ringtrain/compute/backend.hpp"
#include "ringtrain/model/onnx.hpp"
#include "ringtrain/model/passes.hpp"
#include "support/model_files.hpp"
#include "support/named_values.hpp"
#include "support/random_batch.hpp"

using namespace ringtrain;

namespace {

constexpr int images = 3;

template <class T>
void write(const std::string& path, const std::vector<T>& values) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(T)));
}

std::unique_ptr<compute::Program> compile(const model::Graph& graph, compute::Backend& backend,
                                          const compute::Buffers& buffers, model::Mode mode) {
  const auto supports = [&](const compute::Schedule& tensors, const compute::Step& step) {
    return backend.supports(tensors, step);
  };
  return backend.compile(model::make_schedule(graph, images, mode, 0, supports), buffers, 1);
}

// He's deviation is for layers between ReLUs: behind others activations would grow.
void raise_variances(const model::Graph& graph, std::span<float> statistics, float times) {
  for (const compute::StatisticsRange& both : graph.statistics_ranges())
    for (float& variance : statistics.subspan(both.first + both.count / 2, both.count / 2))
      variance *= times;
}

// Close to those of the images themselves, as training comes to.
void settle_statistics(const model::Graph& graph, compute::Backend& backend,
                       const compute::Buffers& buffers, const Batch& batch) {
  const Buffer gradients = backend.memory().allocate(graph.parameter_count());
  const Buffer seen = backend.memory().allocate(graph.statistic_count());
  compile(graph, backend, {buffers.parameters, gradients, buffers.statistics, seen},
          model::Mode::training)
      ->run(batch, 1, [](std::size_t) {});
  std::ranges::copy(seen.view().host(), buffers.statistics.host().begin());
  raise_variances(graph, buffers.statistics.host(), 1.1f);
}

std::vector<float> logits_of(const model::Graph& graph, compute::Backend& backend,
                             const compute::Buffers& buffers, const Batch& batch) {
  const auto program = compile(graph, backend, buffers, model::Mode::prediction);
  program->run(batch, 1, nullptr);
  return program->logits();
}

// Whether logits follow from the image, and not from biases alone.
bool tell_apart(std::span<const float> logits) {
  double apart = 0, all = 0;
  for (std::size_t i = 0; i < logits.size() / images; ++i) {
    apart += std::pow(logits[i] - logits[i + logits.size() / images], 2);
    all += std::pow(logits[i], 2);
  }
  return apart > 1e-4 * all;
}

void dump(const model::Graph& graph, const std::string& out) {
  const auto backend = compute::make_onednn_backend();
  const Buffer parameters = backend->memory().allocate(graph.parameter_count());
  const Buffer statistics = backend->memory().allocate(graph.statistic_count());
  named::fill(graph, parameters.view().host(), statistics.view().host());
  raise_variances(graph, statistics.view().host(), 2);
  compute::Shape shape = graph.tensors[0];
  shape.batch = images;
  const Batch batch = random_batch(shape);
  const compute::Buffers buffers{parameters, View(), statistics, View()};
  std::vector<float> logits = logits_of(graph, *backend, buffers, batch);
  if (!tell_apart(logits)) {
    settle_statistics(graph, *backend, buffers, batch);
    logits = logits_of(graph, *backend, buffers, batch);
  }
  write(out + ".images", batch.images);
  write(out + ".logits", logits);

  const model::GraphValues values{parameters.view().host(), statistics.view().host()};
  std::ofstream pixels(out + ".uint8.onnx", std::ios::binary),
      folded(out + ".folded.onnx", std::ios::binary);
  model::write_onnx(pixels, graph, values, {.uint8_input = true});
  model::write_onnx(folded, graph, values, {.fold_batch_norm = true});
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) return 64;
  dump(read_model(model::with_words(text_of(argv[1]), argv[2])).graph, argv[3]);
} catch (const std::exception& failure) {
  std::fprintf(stderr, "onnx_dump: %s\n", failure.what());
  return 70;
}
