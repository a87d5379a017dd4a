#include "train/checkpoint/warm_start.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <variant>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/io/checkpoint/checkpoint_reader.hpp"
#include "ringtrain/io/weights/weights_file.hpp"
#include "ringtrain/model/layer_groups.hpp"
#include "train/checkpoint/published_weights.hpp"

namespace ringtrain::train {
namespace {

constexpr std::size_t most_reported = 10;

std::set<std::string> heads_of(const model::Graph& graph) {
  std::set<std::string> names;
  for (const model::ParameterId id : model::head_parameters(graph))
    names.insert(graph.parameters[id].name);
  return names;
}

// Tensors of the layers that only auxiliary losses need.
std::set<std::string> auxiliary_of(const model::Graph& graph) {
  const std::vector<bool> auxiliary = model::auxiliary_nodes(graph);
  std::set<std::string> names;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!auxiliary[n]) continue;
    const model::Operation& operation = graph.nodes[n].operation;
    for (const model::ParameterId id : model::parameters_of(operation))
      names.insert(graph.parameters[id].name);
    if (const auto* norm = std::get_if<model::BatchNorm>(&operation))
      for (const char* kind : {".running_mean", ".running_var"})
        names.insert(graph.statistics[norm->statistics].name + kind);
  }
  return names;
}

// The tensor of `file` that `info` starts from: its moving average, or itself.
std::optional<std::size_t> source_of(const io::CheckpointFile& file, config::Weights weights,
                                     const io::TensorInfo& info) {
  const auto in = [&](const char* folder) {
    return file.find({folder + io::without_folder(info.name), info.shape});
  };
  if (weights != config::Weights::raw)
    if (const auto average = in("ema/")) return average;
  const auto weight = in("weights/");
  return weight ? weight : in("statistics/");
}

// One reading of a file: the values it gives, and what it does not give.
struct Reading {
  std::vector<std::vector<float>> values;
  std::vector<std::string> misfits, drawn_anew;
};

Reading read(const io::CheckpointFile& file, config::Weights weights, Heads heads,
             const model::Graph& graph, const TrainingState& state) {
  const std::set<std::string> of_heads = heads_of(graph);
  Reading reading{state.copy(), {}, {}};
  for (const auto& [info, buffer, offset] : state.layout().tensors) {
    if (!io::is_weight(info) && !io::is_average(info) && !io::is_statistic(info)) continue;
    const bool may_differ =
        heads == Heads::may_differ && of_heads.contains(io::without_folder(info.name));
    if (const auto source = source_of(file, weights, info))
      file.read(*source,
                std::span(reading.values[buffer]).subspan(offset, io::element_count(info)));
    else if (!io::is_average(info))
      (may_differ ? reading.drawn_anew : reading.misfits)
          .push_back(may_differ ? io::describe(info).substr(8) : file.misfit(info));
  }
  return reading;
}

// A network of more layers would start from a part of the file, and nobody would know.
void add_unused(const io::CheckpointFile& file, const TrainingState& state,
                std::vector<std::string>& misfits) {
  std::set<std::string> names;
  for (const io::TensorPlace& place : state.layout().tensors) names.insert(place.info.name);
  for (const io::TensorInfo& info : file.tensors())
    if ((io::is_weight(info) || io::is_statistic(info)) && !names.contains(info.name))
      misfits.push_back("has " + io::describe(info) + ", which this model has not");
}

void require_none(const io::CheckpointFile& file, std::vector<std::string> misfits) {
  if (misfits.empty()) return;
  const std::size_t more = misfits.size() - std::min(misfits.size(), most_reported);
  misfits.resize(misfits.size() - more);
  throw Error(
      Exit::incompatible_checkpoint, "--init-from " + file.path().string(),
      fmt::format("of another model ({}): {}{}", brief(file.metadata().model),
                  fmt::join(misfits, "; "), more > 0 ? fmt::format("; and {} more", more) : ""));
}

std::string told(const io::CheckpointFile& file, config::Weights weights, const Reading& reading) {
  const bool averaged =
      weights != config::Weights::raw && std::ranges::any_of(file.tensors(), io::is_average);
  std::string text =
      fmt::format("{}weights and running statistics from {} ({}, step {})",
                  averaged ? "moving averages of " : "", file.path().filename().string(),
                  brief(file.metadata().model), file.metadata().step);
  if (!reading.drawn_anew.empty())
    text += fmt::format("; drawn anew, because that file has no such: {}",
                        fmt::join(reading.drawn_anew, ", "));
  return text;
}

std::vector<std::string> start_from_checkpoint(const std::filesystem::path& path,
                                               config::Weights weights, Heads heads,
                                               const model::Graph& graph,
                                               const TrainingState& state, WorkProgress* progress) {
  expect_some_format(path);
  const io::CheckpointFile file = io::CheckpointFile::open(path, progress);
  expect_weights(weights, file);
  file.verify();
  Reading reading = read(file, weights, heads, graph, state);
  add_unused(file, state, reading.misfits);
  require_none(file, std::move(reading.misfits));
  state.copy_from(reading.values);
  return {told(file, weights, reading)};
}

std::vector<std::string> start_from_published(const std::filesystem::path& path, Heads heads,
                                              const model::Graph& graph, const TrainingState& state,
                                              WorkProgress* progress) {
  const io::WeightsFile file = io::WeightsFile::open(path, progress);
  LooseTensors loose{auxiliary_of(graph), heads_of(graph)};
  if (heads == Heads::may_differ) loose.may_differ.insert(loose.heads.begin(), loose.heads.end());
  PublishedReading reading = read_published(file, graph, loose, state);
  state.copy_from(reading.values);
  return std::move(reading.lines);
}

}  // namespace

std::vector<std::string> load_weights(const std::filesystem::path& path, config::Weights weights,
                                      Heads heads, const model::Graph& graph,
                                      const TrainingState& state, WorkProgress* progress) {
  const bool published = io::WeightsFile::is_one(path);
  if (published && weights != config::Weights::automatic)
    throw Error(Exit::usage, "--weights with --init-from " + brief(path.string()),
                "is for checkpoints of ringtrain; of such a file the average is taken where it has "
                "one: leave --weights out");
  return published ? start_from_published(path, heads, graph, state, progress)
                   : start_from_checkpoint(path, weights, heads, graph, state, progress);
}

std::vector<std::string> init_from(const std::filesystem::path& path, config::Weights weights,
                                   Heads heads, const model::Graph& graph, const StateToLoad& to) {
  const auto& [state, communicator, session, progress] = to;
  std::vector<std::string> lines;
  if (session.rank() == 0) lines = load_weights(path, weights, heads, graph, state, progress);
  const allreduce::MpiSession::Wait waiting = session.wait();
  for (std::size_t i = 0; i < state.buffers().size(); ++i)
    if (!state.has_shard(i) && !state.is_kept(i)) communicator.broadcast(state.buffers()[i], 0);
  return lines;
}

}  // namespace ringtrain::train
