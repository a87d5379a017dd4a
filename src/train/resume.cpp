#include "train/resume.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/io/checkpoint_reader.hpp"

namespace ringtrain {
namespace {

using Say = std::function<void(const std::string&)>;

std::optional<CheckpointFile> find(const Resume& how, const std::filesystem::path& directory,
                                   const Say& say) {
  if (how.from == Resume::From::scratch) return std::nullopt;
  if (how.from == Resume::From::file) return CheckpointFile::open(how.file);
  if (directory.empty()) return std::nullopt;
  LatestCheckpoint latest = find_latest(directory);
  for (const std::string& reason : latest.rejected) say("not used: " + reason);
  say(latest.note);
  return std::move(latest.file);
}

// Training in another precision keeps none, or starts anew.
constexpr std::string_view loss_scale = "optimizer/loss_scale";

bool is_needed(const TensorInfo& info) { return info.name != loss_scale; }

// What `file` must hold: the state's tensors, with or without a loss scale.
std::vector<TensorInfo> expected(const TrainingState& state, const CheckpointFile& file) {
  std::vector<TensorInfo> result;
  for (const TensorPlace& place : state.layout().tensors)
    if (is_needed(place.info)) result.push_back(place.info);
  for (const TensorInfo& info : file.tensors())
    if (!is_needed(info)) result.push_back(info);
  return result;
}

// "weights/fc.bias" -> "ema/fc.bias"; likewise of statistics/.
std::string averaged_name(const std::string& name) { return "ema" + name.substr(name.find('/')); }

// The state as `file`, verified, has it; with what it need not have as it is.
std::vector<std::vector<float>> read_values(const CheckpointFile& file, const TrainingState& state,
                                            Wanted wanted) {
  auto values = state.copy();
  for (const TensorPlace& place : state.layout().tensors) {
    const TensorInfo& info = place.info;
    auto source = file.find(info);
    if (wanted == Wanted::evaluated)
      if (const auto average = file.find({averaged_name(info.name), info.shape})) source = average;
    if (!source && is_needed(info))
      throw Error(Exit::incompatible_checkpoint, file.path().string(),
                  "has no " + describe(info) + ", which this model needs");
    if (source)
      file.read(*source,
                std::span(values[place.buffer]).subspan(place.offset, element_count(info)));
  }
  return values;
}

// Only what the other ranks need travels: the rest of the metadata is the same on all.
std::string to_text(const CheckpointMetadata& m) {
  return nlohmann::json{{"step", m.step},        {"position", m.position},
                        {"world", m.world_size}, {"batch", m.global_batch},
                        {"config", m.config},    {"plans", m.plans}}
      .dump();
}

CheckpointMetadata from_text(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  CheckpointMetadata m;
  m.step = json.at("step");
  m.position = json.at("position");
  m.world_size = json.at("world");
  m.global_batch = json.at("batch");
  m.config = json.at("config");
  m.plans = json.at("plans");
  return m;
}

}  // namespace

std::optional<Resumed> resume(const Resume& how, Wanted wanted,
                              const std::filesystem::path& directory, std::uint64_t model_hash,
                              const TrainingState& state, Communicator& communicator,
                              const MpiSession& session, const Say& say) {
  std::string text, name;
  if (session.rank() == 0) {
    if (const auto file = find(how, directory, say)) {
      if (wanted == Wanted::everything) file->expect(expected(state, *file));
      if (file->metadata().model_hash != model_hash)
        throw Error(Exit::incompatible_checkpoint, file->path().string(),
                    fmt::format("was saved by a {} whose layers differ from this one's",
                                file->metadata().model));
      if (how.from == Resume::From::file) file->verify();  // the newest one is
      state.copy_from(read_values(*file, state, wanted));
      text = to_text(file->metadata());
      name = file->path().filename().string();
    }
  }
  text = session.broadcast(text);
  if (text.empty()) return std::nullopt;
  for (const View& buffer : state.buffers()) communicator.broadcast(buffer, 0);
  return Resumed{from_text(text), name};
}

}  // namespace ringtrain
