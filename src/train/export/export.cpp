#include "train/export/export.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "ringtrain/base/atomic_file.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/config/option_values.hpp"
#include "ringtrain/io/checkpoint/checkpoint_reader.hpp"
#include "ringtrain/io/weights/save_weights.hpp"
#include "ringtrain/io/weights/weights_file.hpp"
#include "ringtrain/model/imagenet.hpp"
#include "ringtrain/model/onnx.hpp"
#include "ringtrain/model/torch_state.hpp"
#include "train/checkpoint/warm_start.hpp"
#include "train/plan/run_plan.hpp"

namespace ringtrain::train {
namespace {

using Json = nlohmann::json;

/// What is exported: a network and its numbers.
class Trained {
 public:
  Trained(const config::Options& options, const std::optional<SavedNetwork>& saved)
      : plan_(plan_without_data(ModelSource(options, saved), options, 1)),
        parameters_(memory_.allocate(graph().parameter_count())),
        statistics_(memory_.allocate(graph().statistic_count())),
        state_(graph(), memory_, parameters_, statistics_, {}) {
    // of which published files may lack tensors
    if (std::ranges::any_of(graph().nodes, is_auxiliary))
      model::initialise(graph(), options.seed, parameters_.view().host(),
                        statistics_.view().host());
  }

  const RunPlan& plan() const { return plan_; }
  /// As evaluation has it, at its size of images.
  const model::Graph& graph() const { return plan_.graph(model::Mode::evaluation); }
  const TrainingState& state() const { return state_; }
  std::span<const float> parameters() const { return parameters_.view().host(); }
  std::span<const float> statistics() const { return statistics_.view().host(); }

 private:
  static bool is_auxiliary(const model::Node& node) {
    const auto* loss = std::get_if<model::Loss>(&node.operation);
    return loss != nullptr && loss->auxiliary;
  }

  HostMemory memory_;
  RunPlan plan_;
  Buffer parameters_, statistics_;
  TrainingState state_;
};

// That the checkpoint stands at: how many batches its BatchNorms have seen.
std::uint64_t step_of(const std::string& file) {
  return io::WeightsFile::is_one(file) ? 0 : io::CheckpointFile::open(file).metadata().step;
}

std::vector<std::string> class_names(const RunPlan& plan,
                                     const std::optional<SavedNetwork>& saved) {
  std::vector<std::string> names = saved ? saved->class_names : std::vector<std::string>();
  const auto imagenet = model::imagenet_classes();
  const bool knows = saved && saved->published && plan.model.recipe.imagenet_labels;
  if (names.empty() && knows && plan.model.classes == static_cast<int>(imagenet.size()))
    for (const model::ImagenetClass& each : imagenet) names.emplace_back(each.name);
  return names;
}

// What the numbers are good for, as docs/guide/export.md says.
std::map<std::string, std::string> metadata_of(const RunPlan& plan,
                                               const std::optional<SavedNetwork>& saved) {
  std::map<std::string, std::string> metadata{{"model", plan.model.name},
                                              {"input", input_text(plan)}};
  if (const auto names = class_names(plan, saved); !names.empty())
    metadata["class_names"] = Json(names).dump(-1, ' ', false, Json::error_handler_t::replace);
  return metadata;
}

std::vector<io::TensorToSave> tensors_of(const Trained& trained, std::uint64_t step) {
  using Values = model::TorchTensor::Values;
  std::vector<io::TensorToSave> tensors;
  for (const model::TorchTensor& tensor : model::torch_state(trained.graph())) {
    io::TensorToSave saved{{tensor.name, {tensor.dims.begin(), tensor.dims.end()}},
                           nullptr,
                           static_cast<std::int64_t>(step)};
    const auto values =
        tensor.values == Values::statistics ? trained.statistics() : trained.parameters();
    if (tensor.values == Values::ones)
      saved.fill = [](std::span<float> to) { std::ranges::fill(to, 1.f); };
    else if (tensor.values != Values::counter)
      saved.fill = [=](std::span<float> to) {
        model::to_torch_layout(values.subspan(tensor.place.first, tensor.place.count), tensor.row,
                               to);
      };
    tensors.push_back(std::move(saved));
  }
  return tensors;
}

using Write = std::function<void(std::ostream&)>;

Write writer_of(const config::Export& what, const Trained& trained,
                std::map<std::string, std::string> metadata, std::uint64_t step) {
  using enum config::ExportFormat;
  if (what.format == onnx)
    return [=, &trained](std::ostream& out) {
      model::write_onnx(out, trained.graph(), {trained.parameters(), trained.statistics()},
                        {.fold_batch_norm = what.fold_batch_norm,
                         .uint8_input = what.uint8_input,
                         .name = trained.plan().model.name,
                         .metadata = metadata});
    };
  const auto tensors = tensors_of(trained, step);
  if (what.format == torch) return [=](std::ostream& out) { io::write_torch_zip(out, tensors); };
  metadata["format"] = "pt";  // where readers of PyTorch look
  return [=](std::ostream& out) { io::write_safetensors(out, tensors, metadata); };
}

std::string done_line(const config::Export& what, const Trained& trained) {
  std::error_code unknown;
  const auto bytes = std::filesystem::file_size(what.file, unknown);
  return fmt::format("exported {} for {} classes to {} ({}, {:.1f} MB)", trained.plan().model.name,
                     trained.plan().model.classes, brief(what.file),
                     config::enumerator<config::ExportFormat>().write(what.format),
                     unknown ? 0 : double(bytes) / mega);
}

}  // namespace

void export_network(config::Options options, const config::Export& what,
                    const std::function<void(const std::string&)>& tell) {
  options.eval_only = true;  // no training begins, so classes stay
  options.checkpoint_dir.clear();
  if (const std::string reason = why_unwritable(what.file); !reason.empty())
    throw Error(Exit::storage, "--export to " + brief(what.file), reason);
  const auto saved = saved_network(options);
  const Trained trained(options, saved);
  for (const std::string& line : load_weights(options.init_from, options.weights, Heads::must_fit,
                                              trained.plan().model.graph, trained.state()))
    tell(line);
  const Write write =
      writer_of(what, trained, metadata_of(trained.plan(), saved), step_of(options.init_from));
  if (const std::string reason = write_output(what.file, Durable::yes, write); !reason.empty())
    throw Error(Exit::storage, "--export to " + brief(what.file), reason);
  tell(done_line(what, trained));
}

}  // namespace ringtrain::train
