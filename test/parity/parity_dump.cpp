// parity_dump SPEC.json: what some steps of a model's recipe come to. torchvision_parity.py writes
// SPEC: the members of RecipeRun, and
//   checkpoint        the first weights and running statistics
//   images, labels    files: uint8, height x width x 3 each; int32
//   out               OUT.f32 gets all values, OUT.txt a line `name extent ...` each
#include <fmt/ranges.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "ringtrain/allreduce/make_communicator.hpp"
#include "ringtrain/config/option_values.hpp"
#include "support/recipe_run.hpp"
#include "train/checkpoint/warm_start.hpp"

using namespace ringtrain;

namespace {

using Spec = nlohmann::json;

template <class T>
std::vector<T> read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("no file " + path);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

RecipeRun run_of(const Spec& spec) {
  return {.model = spec.at("model"),
          .extent = spec.at("extent"),
          .batch = spec.at("batch"),
          .classes = spec.at("classes"),
          .optimizer = config::enumerator<optim::OptimizerKind>().read(spec.at("optimizer")),
          .learning_rate = spec.at("learning_rate"),
          .steps = spec.at("steps"),
          .backend = spec.at("backend")};
}

void dump(const Spec& spec) {
  const RecipeRun run = run_of(spec);
  const GivenImages images({run.extent, run.extent}, run.classes,
                           read<std::uint8_t>(spec.at("images")), read<int>(spec.at("labels")));
  const std::string out = spec.at("out"), checkpoint = spec.at("checkpoint");
  std::ofstream values(out + ".f32", std::ios::binary), names(out + ".txt");
  const auto start = [&](const model::Graph& graph, const train::TrainingState& state) {
    const allreduce::MpiSession session;
    train::init_from(checkpoint, train::Heads::must_fit, graph,
                     {state, *allreduce::make_communicator("solo", session), session});
  };
  run_recipe(run, images, start,
             [&](const std::string& name, const auto& extents, std::span<const float> result) {
               names << fmt::format("{} {}\n", name, fmt::join(extents, " "));
               values.write(reinterpret_cast<const char*>(result.data()),
                            static_cast<std::streamsize>(result.size_bytes()));
             });
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) return 64;
  std::ifstream file(argv[1]);
  dump(Spec::parse(file));
} catch (const std::exception& failure) {
  std::fprintf(stderr, "parity_dump: %s\n", failure.what());
  return 70;
}
