#include "train/checkpoint/resume.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/config/option_values.hpp"
#include "ringtrain/io/checkpoint/checkpoint_reader.hpp"
#include "ringtrain/io/weights/weights_file.hpp"

namespace ringtrain::train {
namespace {

using Say = std::function<void(const std::string&)>;

std::optional<io::CheckpointFile> find(const config::Resume& how, Wanted wanted,
                                       const std::filesystem::path& directory, const Say& say,
                                       WorkProgress* progress) {
  if (how.from == config::Resume::From::scratch) return std::nullopt;
  if (how.from == config::Resume::From::file) return io::CheckpointFile::open(how.file, progress);
  if (directory.empty()) return std::nullopt;
  io::LatestCheckpoint latest = io::find_latest(directory, progress);
  for (const std::string& reason : latest.rejected) say("not used: " + reason);
  const bool starts = !latest.file && wanted == Wanted::everything;
  say(latest.note + (starts ? ": training starts from scratch" : ""));
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
std::string averaged_name(const std::string& name) { return "ema/" + io::without_folder(name); }

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
  if (wanted == Wanted::evaluated || wanted == Wanted::average)
    if (const auto average = file.find({averaged_name(info.name), info.shape})) return average;
  if (is_averaged_statistic(info) && lacks_averaged_statistics(file))
    return file.find({"statistics/" + io::without_folder(info.name), info.shape});
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

void expect_layers(const NetworkToLoad& network, const io::CheckpointFile& file) {
  if (file.metadata().model_hash == network.hash) return;
  throw Error(Exit::incompatible_checkpoint, file.path().string(),
              fmt::format("holds {}, whose layers differ from those of {}: leave --model, "
                          "--model-file and --classes out, or give those it was trained with",
                          network_description(file.metadata().model, file.metadata().network),
                          network.text));
}

// Only what the other ranks need travels: the rest of the metadata is the same on all.
std::string to_text(const io::CheckpointMetadata& m, const std::string& kept_dropped) {
  return nlohmann::json{
      {"step", m.step},          {"position", m.position},     {"world", m.world_size},
      {"batch", m.global_batch}, {"config", m.config},         {"plans", m.plans},
      {"dropped", kept_dropped}, {"unreadable", m.unreadable}, {"best", m.best}}
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
  m.best = json.at("best");
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

std::optional<config::ValSplit> val_split_in(const std::string& config) try {
  const std::string text = text_in(config, "val-split");
  return text.empty() ? std::nullopt : std::optional(config::val_split_value().read(text));
} catch (const BadValue&) {
  return std::nullopt;
}

bool says_skipped(const io::TensorInfo& info) {
  return info.name == loss_scale || info.name == skipped;
}

void expect_network(const std::string& init_from) {
  if (io::WeightsFile::is_one(init_from))
    throw Error(Exit::usage, "--init-from " + brief(init_from),
                "such files hold weights, but do not say of which network: give --model or "
                "--model-file");
}

}  // namespace

std::optional<io::CheckpointMetadata> saved_metadata(const config::Resume& how,
                                                     const std::filesystem::path& directory,
                                                     WorkProgress* progress) {
  const auto file = peek(how, directory, progress);
  return file ? std::optional(file->metadata()) : std::nullopt;
}

void expect_some_format(const std::filesystem::path& path) {
  if (!io::begins_otherwise(path)) return;
  std::error_code unknown;
  throw Error(Exit::no_valid_checkpoint, "--init-from " + brief(path.string()),
              fmt::format("its {} bytes are neither a ringtrain checkpoint nor a file of "
                          "safetensors or torch.save(): ask whether its download is whole",
                          std::filesystem::file_size(path, unknown)));
}

void expect_weights(config::Weights weights, const io::CheckpointFile& file) {
  if (weights != config::Weights::ema || std::ranges::any_of(file.tensors(), io::is_average))
    return;
  throw Error(Exit::usage, "--weights ema",
              fmt::format("{} has no moving average of its weights, as its training had no --ema; "
                          "leave --weights out",
                          brief(file.path().filename().string())));
}

std::optional<SavedNetwork> saved_network(const config::Options& o, WorkProgress* progress) {
  const bool named = o.resume.from == config::Resume::From::file;
  const bool of_options = !(o.model.empty() && o.model_file.empty());
  const bool published = of_options && !o.init_from.empty() && io::WeightsFile::is_one(o.init_from);
  // It knows its classes, how images were divided and what is frozen, whoever names the network.
  std::optional<io::CheckpointFile> file = peek(o.resume, o.checkpoint_dir, progress);
  const bool goes_on = file.has_value();
  if (!file && published) return SavedNetwork{.checkpoint = o.init_from, .published = true};
  if (!file && !o.init_from.empty() && (!of_options || o.eval_only)) {
    expect_network(o.init_from);
    expect_some_format(o.init_from);
    file = io::CheckpointFile::open(o.init_from, progress);
  }
  if (!file) return std::nullopt;
  const io::CheckpointMetadata& m = file->metadata();
  const std::string identity = text_in(m.config, "model");
  return SavedNetwork{.checkpoint = file->path().string(),
                      .name = m.model,
                      .identity = identity.empty() ? m.model : identity,
                      .text = m.network,
                      .class_names = io::class_names_in(m.class_names),
                      .val_split = val_split_in(m.config),
                      .frozen = text_in(m.config, "freeze"),
                      .factors = config::factors_in(m.config),
                      .counts_skipped = std::ranges::any_of(file->tensors(), says_skipped),
                      .config = m.config,
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
                 {"class_names", io::class_names_text(network->class_names)},
                 {"config", network->config},
                 {"counts_skipped", network->counts_skipped},
                 {"hash", network->hash},
                 {"named", network->named},
                 {"goes_on", network->goes_on},
                 {"published", network->published}};
    } catch (const Error& failure) {
      found = {{"failure", failure.what()}, {"code", static_cast<int>(failure.code())}};
    }
  found = nlohmann::json::parse(
      session.broadcast(found.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  if (found.is_null()) return std::nullopt;
  if (found.contains("failure"))
    throw Error(static_cast<Exit>(found["code"]), "read the network",
                found["failure"].get<std::string>());
  const std::string config = found["config"];
  return SavedNetwork{found["checkpoint"],
                      found["name"],
                      found["identity"],
                      found["text"],
                      io::class_names_in(found["class_names"].get<std::string>()),
                      val_split_in(config),
                      text_in(config, "freeze"),
                      config::factors_in(config),
                      found["counts_skipped"],
                      config,
                      found["hash"],
                      found["named"],
                      found["goes_on"],
                      found["published"]};
}

std::optional<Resumed> resume(const config::Resume& how, Wanted wanted,
                              const std::filesystem::path& directory, const NetworkToLoad& network,
                              const StateToLoad& to, const Say& say) {
  const auto& [state, communicator, session, progress] = to;
  std::string text, name, lineage;
  std::vector<std::vector<float>> values;
  if (session.rank() == 0) {
    if (const auto file = find(how, wanted, directory, say, progress)) {
      if (wanted == Wanted::everything) file->expect(expected(state, *file));
      if (wanted == Wanted::average) expect_weights(config::Weights::ema, *file);
      if (lacks_averaged_statistics(*file) && has_averaged_statistics(state))
        say("its moving averages are of weights only: those of running statistics start from "
            "these");
      expect_layers(network, *file);
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

}  // namespace ringtrain::train
