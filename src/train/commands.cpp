#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <thread>
#include <vector>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/program.hpp"
#include "ringtrain/io/checkpoint/checkpoint_reader.hpp"
#include "ringtrain/io/dataset/dataset.hpp"
#include "ringtrain/io/dataset/pack.hpp"
#include "ringtrain/model/model_file.hpp"
#include "ringtrain/train/run.hpp"
#include "train/checkpoint/resume.hpp"
#include "train/export/export.hpp"
#include "train/plan/model_source.hpp"
#include "train/plan/run_plan.hpp"
#include "train/preflight/memory_report.hpp"

namespace ringtrain::train {
namespace {

void print_line(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void run_pack(const config::Command& command) {
  const int cpus = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  io::PackOptions options{command.pack_source, command.pack_target, command.pack_short_side};
  const config::Options& o = command.options;
  if (o.val_split)
    options.data.val_split = {o.val_split->share, o.val_split->seed.value_or(o.seed), true};
  options.data.cache_folder = cache_folder();
  options.data.threads = command.options.data_threads.value_or(cpus);
  options.data.tell = print_line;
  io::pack(options);
}

void write_out(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0)
    throw Error(Exit::storage, "write to standard output", reason_of(errno));
}

template <class Look>
void note_failure(const Look& look) {
  try {
    look();
  } catch (const Error& failure) {
    write_stderr(fmt::format("train: {}; the plan was made without it\n", failure.what()));
  }
}

// The plan needs no data, and may be made elsewhere than the run.
void note_missing(const config::Options& o) {
  io::DatasetOptions data;
  data.cache_folder = cache_folder();
  note_failure([&] { static_cast<void>(io::open_dataset(o.data, io::Split::training, data)); });
}

std::string network_text(const config::Options& options) {
  const ModelSource source(options, saved_network(options));
  return source.text(source.make());
}

// The network, then what it needs.
std::string network_and_plan(config::Options options) {
  std::optional<SavedNetwork> saved;
  note_failure([&] { saved = saved_network(options); });
  if (saved && saved->goes_on && options.freeze.empty()) options.freeze = saved->frozen;
  const ModelSource source(options, saved);
  const RunPlan plan = plan_without_data(source, options, 1);
  const model::Graph& graph = plan.graph(model::Mode::training);
  const compute::Shape& image = graph.tensors[0];
  return fmt::format(
             "{} ({}): {} parameters, {:.3f} GMAC forward, {:.3f} GFLOP to train on an image of "
             "{}x{}\n{}",
             plan.model.name, source.place(), grouped(graph.parameter_count()),
             graph.multiply_adds() * 1e-9, graph.training_flops() * 1e-9, image.height, image.width,
             model::recipe_lines(plan.network)) +
         plan_report(source, options);
}

// What is left out has the value that the run would take. A network that a checkpoint brings has no
// name for the file, which names the checkpoint.
std::string configuration(config::Options o) {
  const auto saved = saved_network(o);
  const ModelSource source(o, saved);
  if (o.model.empty() && o.model_file.empty() && !saved) o.model = config::usual_model;
  const int ranks = o.ranks.value_or(allreduce::launch_from_environment().size);
  return config::config_text(with_recipe(o, source.make(), ranks));
}

std::string model_row(const model::Model& model) {
  const compute::Shape& in = model.input;
  return fmt::format("  {:<21} {:>10} {:>8} {:>12} {:>11.3f} {:>12.3f} {:>6}\n", model.name,
                     fmt::format("{}x{}x{}", in.height, in.width, in.channels), model.classes,
                     grouped(model.graph.parameter_count()), model.graph.multiply_adds() * 1e-9,
                     model.graph.training_flops() * 1e-9,
                     model.recipe.top1 > 0 ? fmt::format("{:.2f}", model.recipe.top1) : "-");
}

}  // namespace

std::string model_table() {
  std::vector<std::string> sources;  // in the order of the networks
  std::map<std::string, std::string> rows;
  std::string recipes;
  for (const std::string& name : model::model_names()) {
    const model::Model model = model::make_model(name);
    if (rows[model.recipe.source].empty()) sources.push_back(model.recipe.source);
    rows[model.recipe.source] += model_row(model);
    recipes += fmt::format("\n{}\n{}", name, model::recipe_lines(model::model_text(name)));
  }
  std::string table =
      fmt::format("  {:<21} {:>10} {:>8} {:>12} {:>11} {:>12} {:>6}\n", "model", "input", "classes",
                  "parameters", "GMAC/image", "GFLOP/image", "top-1");
  for (const std::string& source : sources) table += source + "\n" + rows[source];
  return table +
         "GMAC/image: multiply-adds of the forward pass. GFLOP/image: floating-point operations to "
         "train on one image.\ntop-1: of the weights that the source publishes, or of its paper, "
         "in percent.\n\nRecipes; docs/reference/model-file.md has the defaults.\n" +
         recipes;
}

void run_local(const config::Command& command) {
  switch (command.action) {
    case config::Command::Action::list_models:
      write_out(model_table());
      return;
    case config::Command::Action::print_config:
      write_out(configuration(command.options));
      return;
    case config::Command::Action::print_model:
      write_out(network_text(command.options));
      return;
    case config::Command::Action::inspect:
      write_out(io::inspect(command.inspect));
      return;
    case config::Command::Action::plan:
      write_out(network_and_plan(command.options));
      note_missing(command.options);  // which may take a while
      return;
    case config::Command::Action::pack:
      run_pack(command);
      return;
    case config::Command::Action::write_export:
      export_network(command.options, command.exported, print_line);
      return;
    default:
      write_out(command.text);
  }
}

}  // namespace ringtrain::train
