// network_dump MODEL_FILE: a line for each parameter (`weights/NAME EXTENT ...`) and each BatchNorm
// (`statistics/NAME CHANNELS`) in their order, then the multiply-adds.
// network_dump MODEL_FILE OUT: first values of all parameters, fp32.
// network_dump MODEL_FILE VALUES IMAGES LABELS OUT: what `reference` makes of them. VALUES: fp32,
// of those parameters and statistics; IMAGES: uint8, height x width x channels each; LABELS: int32.
// OUT: doubles: logits and loss of an evaluation, logits and loss of a training step with label
// smoothing 0.1, then all gradients and the batch's statistics.
#include <fmt/ranges.h>

#include <cstdio>
#include <cstring>

#include "support/model_files.hpp"
#include "support/reference_run.hpp"

using namespace ringtrain;

namespace {

template <class T>
std::vector<T> read_values(const char* path) {
  const std::string bytes = text_of(path);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

void list(const model::Graph& graph) {
  for (const model::Parameter& p : graph.parameters)
    fmt::print("weights/{} {}\n", p.name, fmt::join(p.dims, " "));
  for (const model::Statistic& s : graph.statistics)
    fmt::print("statistics/{} {}\n", s.name, s.channels);
  fmt::print("multiply_adds {:.0f}\n", graph.multiply_adds());
}

template <class T>
void write(std::ofstream& out, const std::vector<T>& values) {
  out.write(reinterpret_cast<const char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(T)));
}

void initial(const model::Graph& graph, const char* path) {
  std::vector<float> parameters(graph.parameter_count()), statistics(graph.statistic_count());
  model::initialise(graph, 1, parameters, statistics);
  std::ofstream out(path, std::ios::binary);
  write(out, parameters);
}

void dump(const model::Model& model, char** paths) {
  const ReferenceRun run(model.graph, read_values<float>(paths[0]),
                         read_values<std::uint8_t>(paths[1]), read_values<int>(paths[2]));
  std::ofstream out(paths[3], std::ios::binary);
  for (const std::vector<double>& values : run.all()) write(out, values);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2 && argc != 3 && argc != 6) return 64;
  const model::Model model = read_model(text_of(argv[1]));
  if (argc == 2) list(model.graph);
  if (argc == 3) initial(model.graph, argv[2]);
  if (argc == 6) dump(model, argv + 2);
} catch (const std::exception& failure) {
  std::fprintf(stderr, "network_dump: %s\n", failure.what());
  return 70;
}
