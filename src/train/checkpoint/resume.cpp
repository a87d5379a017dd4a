#include "train/checkpoint/resume.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <variant>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/io/checkpoint/checkpoint_reader.hpp"

namespace ringtrain::train {
namespace {

using Say = std::function<void(const std::string&)>;

std::optional<io::CheckpointFile> find(const config::Resume& how,
                                       const std::filesystem::path& directory, const Say& say,
                                       WorkProgress* progress) {
  if (how.from == config::Resume::From::scratch) return std::nullopt;
  if (how.from == config::Resume::From::file) return io::CheckpointFile::open(how.file, progress);
  if (directory.empty()) return std::nullopt;
  io::LatestCheckpoint latest = io::find_latest(directory, progress);
  for (const std::string& reason : latest.rejected) say("not used: " + reason);
  say(latest.note);
  return std::move(latest.file);
}

// Training in another precision keeps none, or starts anew. Its third number counts the steps that
// were left out, which `skipped` does in other precisions.
constexpr std::string_view loss_scale = "optimizer/loss_scale", skipped = "optimizer/skipped";
constexpr std::size_t skipped_in_scale = 2;
// What compression keeps begins anew where it does not fit.
constexpr std::string_view kept_folder = "compression/";

bool is_kept(const io::TensorInfo& info) { return info.name.starts_with(kept_folder); }
bool is_needed(const io::TensorInfo& info) {
  return info.name != loss_scale && info.name != skipped && !is_kept(info);
}

// "weights/fc.bias" -> "ema/fc.bias"; likewise of statistics/.
std::string averaged_name(const std::string& name) { return "ema" + name.substr(name.find('/')); }

bool is_averaged_statistic(const io::TensorInfo& info) {
  return io::is_average(info) &&
         (info.name.ends_with(".running_mean") || info.name.ends_with(".running_var"));
}

// Builds that averaged weights only: the averages of statistics then start from the statistics.
bool lacks_averaged_statistics(const io::CheckpointFile& file) {
  return std::ranges::any_of(file.tensors(), io::is_average) &&
         std::ranges::none_of(file.tensors(), is_averaged_statistic);
}

bool has_averaged_statistics(const TrainingState& state) {
  return std::ranges::any_of(state.layout().tensors, is_averaged_statistic, &io::TensorPlace::info);
}

// What `file` must hold: the state's tensors, with or without a loss scale and a count of steps.
std::vector<io::TensorInfo> expected(const TrainingState& state, const io::CheckpointFile& file) {
  const bool lacks = lacks_averaged_statistics(file);
  std::vector<io::TensorInfo> result;
  for (const io::TensorPlace& place : state.layout().tensors)
    if (is_needed(place.info) && !(lacks && is_averaged_statistic(place.info)))
      result.push_back(place.info);
  for (const io::TensorInfo& info : file.tensors())
    if (!is_needed(info)) result.push_back(info);
  return result;
}

// The tensor of `file` that `info` gets its values from.
std::optional<std::size_t> source_of(const io::CheckpointFile& file, const io::TensorInfo& info,
                                     Wanted wanted) {
  if (wanted == Wanted::evaluated)
    if (const auto average = file.find({averaged_name(info.name), info.shape})) return average;
  if (is_averaged_statistic(info) && lacks_averaged_statistics(file))
    return file.find({"statistics" + info.name.substr(info.name.find('/')), info.shape});
  return file.find(info);
}

// How many steps were left out: none of files that do not say, or that say nonsense.
float read_skipped(const io::CheckpointFile& file) {
  std::array<float, skipped_in_scale + 1> scale{};
  float count = 0;
  if (const auto tensor = file.find({std::string(loss_scale), {scale.size()}})) {
    file.read(*tensor, scale);
    count = scale[skipped_in_scale];
  } else if (const auto other = file.find({std::string(skipped), {1}})) {
    file.read(*other, std::span(&count, 1));
  }
  return count > 0 && count <= static_cast<float>(file.metadata().step) ? count : 0;
}

bool has(const TrainingState& state, std::string_view start) {
  return std::ranges::any_of(state.layout().tensors, [start](const io::TensorPlace& place) {
    return place.info.name.starts_with(start);
  });
}

// The state was made for the checkpoint that was the newest then.
void require_place_for_skipped(const io::CheckpointFile& file, const TrainingState& state) {
  const bool counts = has(state, "optimizer/adam_m/") || has(state, "ema/");
  if (!counts || has(state, skipped) || has(state, loss_scale) || read_skipped(file) == 0) return;
  throw Error(Exit::locked, "resume",
              file.path().filename().string() +
                  " counts steps that were left out, which the newest checkpoint did not when this "
                  "job started; start the job again");
}

// The whole state as `file`, verified, has it; with what it need not have as it is.
std::vector<std::vector<float>> read_values(const io::CheckpointFile& file,
                                            const TrainingState& state, Wanted wanted) {
  auto values = state.copy();
  for (std::size_t i = 0; i < values.size(); ++i) values[i].resize(state.layout().buffers[i]);
  for (const io::TensorPlace& place : state.layout().tensors) {
    const io::TensorInfo& info = place.info;
    const auto source = source_of(file, info, wanted);
    if (!source && is_needed(info))
      throw Error(Exit::incompatible_checkpoint, file.path().string(),
                  file.misfit(info) + ", which this model needs");
    if (source)
      file.read(*source,
                std::span(values[place.buffer]).subspan(place.offset, io::element_count(info)));
    if (info.name == loss_scale && info.shape == std::vector<std::uint64_t>{skipped_in_scale + 1})
      values[place.buffer].at(place.offset + skipped_in_scale) = read_skipped(file);
    if (info.name == skipped) values[place.buffer].at(place.offset) = read_skipped(file);
  }
  return values;
}

// Why what compression kept is of no use; empty where it is, or the state has none.
std::string why_dropped(const io::CheckpointFile& file, const TrainingState& state,
                        const std::vector<std::vector<float>>& values) {
  if (!state.complete()) return "";
  if (std::ranges::none_of(file.tensors(), is_kept)) return "the checkpoint has none of it";
  for (const io::TensorPlace& place : state.layout().tensors)
    if (is_kept(place.info) && !file.find(place.info))
      return "the checkpoint's is of other ranks, or of another --compress";
  const auto of_file = std::ranges::count_if(file.tensors(), is_kept);
  const auto of_state = std::ranges::count_if(
      state.layout().tensors, [](const io::TensorPlace& place) { return is_kept(place.info); });
  if (of_file != of_state) return "the checkpoint's is of other ranks, or of another --compress";
  if (values[*state.complete()].front() != 1)
    return "the ranks were killed before the checkpoint had all of it";
  return "";
}

// Only what the other ranks need travels: the rest of the metadata is the same on all.
std::string to_text(const io::CheckpointMetadata& m, const std::string& kept_dropped) {
  return nlohmann::json{{"step", m.step},          {"position", m.position},
                        {"world", m.world_size},   {"batch", m.global_batch},
                        {"config", m.config},      {"plans", m.plans},
                        {"dropped", kept_dropped}, {"unreadable", m.unreadable}}
      .dump();
}

Resumed resumed_from_text(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  Resumed resumed{.metadata = {}, .file = {}, .kept_dropped = json.at("dropped")};
  io::CheckpointMetadata& m = resumed.metadata;
  m.step = json.at("step");
  m.position = json.at("position");
  m.world_size = json.at("world");
  m.global_batch = json.at("batch");
  m.config = json.at("config");
  m.plans = json.at("plans");
  m.unreadable = json.at("unreadable").get<std::vector<std::uint64_t>>();
  return resumed;
}

// The file that resume() would take; only its index is looked at.
std::optional<io::CheckpointFile> peek(const config::Resume& how,
                                       const std::filesystem::path& directory,
                                       WorkProgress* progress) {
  if (how.from == config::Resume::From::file) return io::CheckpointFile::open(how.file, progress);
  if (how.from == config::Resume::From::scratch || directory.empty()) return std::nullopt;
  return io::peek_latest(directory, progress);
}

// A checkpoint's texts may be anybody's; empty: there is no such text in it.
std::string text_in(const std::string& config, const char* key) {
  const auto object = nlohmann::json::parse(config, nullptr, false);
  if (!object.is_object() || !object.contains(key) || !object[key].is_string()) return "";
  return object[key].get<std::string>();
}

}  // namespace

std::optional<io::CheckpointMetadata> saved_metadata(const config::Resume& how,
                                                     const std::filesystem::path& directory,
                                                     WorkProgress* progress) {
  const auto file = peek(how, directory, progress);
  return file ? std::optional(file->metadata()) : std::nullopt;
}

std::optional<SavedNetwork> saved_network(const config::Options& o, WorkProgress* progress) {
  const bool named = o.resume.from == config::Resume::From::file;
  if (!named && !(o.model.empty() && o.model_file.empty())) return std::nullopt;
  auto file = peek(o.resume, o.checkpoint_dir, progress);
  const bool goes_on = file.has_value();
  if (!file && !o.init_from.empty()) file = io::CheckpointFile::open(o.init_from, progress);
  if (!file) return std::nullopt;
  const io::CheckpointMetadata& m = file->metadata();
  const std::string identity = text_in(m.config, "model");
  return SavedNetwork{.checkpoint = file->path().string(),
                      .name = m.model,
                      .identity = identity.empty() ? m.model : identity,
                      .text = m.network,
                      .class_names = io::class_names_in(m.class_names),
                      .hash = m.model_hash,
                      .named = named,
                      .goes_on = goes_on};
}

std::optional<SavedNetwork> saved_network(const config::Options& options,
                                          const allreduce::MpiSession& session,
                                          WorkProgress* progress) {
  nlohmann::json found;
  if (session.rank() == 0) try {
      if (const auto network = saved_network(options, progress))
        found = {{"checkpoint", network->checkpoint},
                 {"name", network->name},
                 {"identity", network->identity},
                 {"text", network->text},
                 {"class_names", network->class_names},
                 {"hash", network->hash},
                 {"named", network->named},
                 {"goes_on", network->goes_on}};
    } catch (const Error& failure) {
      found = {{"failure", failure.what()}, {"code", static_cast<int>(failure.code())}};
    }
  found = nlohmann::json::parse(
      session.broadcast(found.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  if (found.is_null()) return std::nullopt;
  if (found.contains("failure"))
    throw Error(static_cast<Exit>(found["code"]), "read the network",
                found["failure"].get<std::string>());
  return SavedNetwork{found["checkpoint"],  found["name"], found["identity"], found["text"],
                      found["class_names"], found["hash"], found["named"],    found["goes_on"]};
}

bool saves_skipped(const config::Resume& how, const std::filesystem::path& directory,
                   WorkProgress* progress) {
  const auto file = peek(how, directory, progress);
  return file && std::ranges::any_of(file->tensors(), [](const io::TensorInfo& info) {
           return info.name == loss_scale || info.name == skipped;
         });
}

std::optional<Resumed> resume(const config::Resume& how, Wanted wanted,
                              const std::filesystem::path& directory, std::uint64_t model_hash,
                              const StateToLoad& to, const Say& say) {
  const auto& [state, communicator, session, progress] = to;
  std::string text, name, lineage;
  std::vector<std::vector<float>> values;
  if (session.rank() == 0) {
    if (const auto file = find(how, directory, say, progress)) {
      if (wanted == Wanted::everything) file->expect(expected(state, *file));
      if (lacks_averaged_statistics(*file) && has_averaged_statistics(state))
        say("its moving averages are of weights only: those of running statistics start from "
            "these");
      if (file->metadata().model_hash != model_hash)
        throw Error(Exit::incompatible_checkpoint, file->path().string(),
                    fmt::format("was saved by a {} whose layers differ from this one's",
                                brief(file->metadata().model)));
      if (how.from == config::Resume::From::file) file->verify();  // the newest one is
      if (wanted == Wanted::everything) require_place_for_skipped(*file, state);
      values = read_values(*file, state, wanted);
      text = to_text(file->metadata(), why_dropped(*file, state, values));
      name = file->path().filename().string();
      lineage = file->lineage();
    }
  }
  text = session.broadcast(text);
  if (text.empty()) return std::nullopt;
  const allreduce::MpiSession::Wait waiting = session.wait();
  Resumed resumed = resumed_from_text(text);
  resumed.file = name;
  resumed.lineage = lineage;
  state.share(std::move(values), resumed.kept_dropped.empty(), communicator, session);
  return resumed;
}

namespace {

constexpr std::size_t most_reported = 10;

bool is_weight(const io::TensorInfo& info) { return info.name.starts_with("weights/"); }
bool is_statistic(const io::TensorInfo& info) { return info.name.starts_with("statistics/"); }

// `weights/fc.bias` -> `fc.bias`
std::string without_folder(const std::string& name) { return name.substr(name.find('/') + 1); }

// The parameters of the layers whose outputs are logits.
std::set<std::string> heads_of(const model::Graph& graph) {
  std::set<compute::TensorId> logits;
  for (const model::Node& node : graph.nodes)
    if (std::holds_alternative<model::Loss>(node.operation)) logits.insert(node.inputs[0]);
  std::set<std::string> names;
  for (const model::Node& node : graph.nodes) {
    const auto* layer = std::get_if<model::MatrixProduct>(&node.operation);
    if (layer == nullptr || !logits.contains(node.output)) continue;
    names.insert(graph.parameters[layer->w].name);
    if (layer->b) names.insert(graph.parameters[*layer->b].name);
  }
  return names;
}

// The tensor of `file` that `info` starts from: its moving average, or itself.
std::optional<std::size_t> source_of(const io::CheckpointFile& file, const io::TensorInfo& info) {
  for (const char* folder : {"ema/", "weights/", "statistics/"})
    if (const auto found = file.find({folder + without_folder(info.name), info.shape}))
      return found;
  return std::nullopt;
}

// One reading of a file: the values it gives, and what it does not give.
struct Reading {
  std::vector<std::vector<float>> values;
  std::vector<std::string> misfits, drawn_anew;
};

Reading read(const io::CheckpointFile& file, Heads heads, const model::Graph& graph,
             const TrainingState& state) {
  const std::set<std::string> of_heads = heads_of(graph);
  Reading reading{state.copy(), {}, {}};
  for (const auto& [info, buffer, offset] : state.layout().tensors) {
    if (!is_weight(info) && !io::is_average(info) && !is_statistic(info)) continue;
    const bool may_differ =
        heads == Heads::may_differ && of_heads.contains(without_folder(info.name));
    if (const auto source = source_of(file, info))
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
    if ((is_weight(info) || is_statistic(info)) && !names.contains(info.name))
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

std::string told(const io::CheckpointFile& file, const Reading& reading) {
  const bool averaged = std::ranges::any_of(file.tensors(), io::is_average);
  std::string text =
      fmt::format("{}weights and running statistics from {} ({}, step {})",
                  averaged ? "moving averages of " : "", file.path().filename().string(),
                  brief(file.metadata().model), file.metadata().step);
  if (!reading.drawn_anew.empty())
    text += fmt::format("; drawn anew, because that file has no such: {}",
                        fmt::join(reading.drawn_anew, ", "));
  return text;
}

}  // namespace

std::string init_from(const std::filesystem::path& path, Heads heads, const model::Graph& graph,
                      const StateToLoad& to) {
  const auto& [state, communicator, session, progress] = to;
  std::string text;
  if (session.rank() == 0) {
    const io::CheckpointFile file = io::CheckpointFile::open(path, progress);
    file.verify();
    Reading reading = read(file, heads, graph, state);
    add_unused(file, state, reading.misfits);
    require_none(file, std::move(reading.misfits));
    text = told(file, reading);
    state.copy_from(reading.values);
  }
  const allreduce::MpiSession::Wait waiting = session.wait();
  for (std::size_t i = 0; i < state.buffers().size(); ++i)
    if (!state.has_shard(i) && !state.is_kept(i)) communicator.broadcast(state.buffers()[i], 0);
  return text;
}

}  // namespace ringtrain::train
