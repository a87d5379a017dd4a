#include "train/engine/schedule.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <utility>
#include <variant>

#include "ringtrain/allreduce/mpi/agreement.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/io/loader/loader.hpp"
#include "ringtrain/model/layer_groups.hpp"
#include "ringtrain/model/whitening.hpp"

namespace ringtrain::train {

namespace {

// Without parts of BatchNorm inside convolutions where `fusion` is off: then each BatchNorm stays
// whole, because none of its pieces has a place of its own.
model::Supports allowed(config::ConvolutionFusion fusion, model::Supports supports) {
  if (fusion == config::ConvolutionFusion::automatic) return supports;
  return [supports = std::move(supports)](const compute::Schedule& tensors,
                                          const compute::Step& step) {
    return !std::holds_alternative<compute::BatchNormStatistics>(step) && supports(tensors, step);
  };
}

// Of training, auxiliary heads included: an evaluation's loss is the cross-entropy of all samples
// alike.
void set_losses(compute::Schedule& schedule, const RunPlan& plan) {
  const model::Recipe& recipe = plan.model.recipe;
  for (compute::Step& step : schedule.steps)
    if (auto* loss = std::get_if<compute::SoftmaxCrossEntropy>(&step)) {
      loss->class_weights = plan.class_weights;
      if (recipe.bce_loss)
        loss->binary = {recipe.bce_sum, static_cast<float>(recipe.bce_target_threshold)};
    }
}

}  // namespace

compute::Schedule make_schedule(const RunPlan& plan, const model::Supports& supports,
                                model::Mode mode, std::optional<int> images) {
  compute::Schedule schedule = model::make_schedule(
      plan.graph(mode), images.value_or(plan.share.count), mode,
      static_cast<float>(*plan.options.label_smoothing), allowed(plan.options.fusion, supports),
      true,
      plan.batch_norms_together() ? model::BatchNorms::all_ranks : model::BatchNorms::each_rank);
  if (mode == model::Mode::training) set_losses(schedule, plan);
  return schedule;
}

compute::Schedule make_schedule(const RunPlan& plan, const compute::Backend& backend,
                                model::Mode mode, std::optional<int> images) {
  const auto supports = [&](const compute::Schedule& tensors, const compute::Step& step) {
    return backend.supports(tensors, step);
  };
  return make_schedule(plan, supports, mode, images);
}

namespace {

// Made of the first images that training draws, as an evaluation sees them.
std::vector<double> whitening_filters(const RunPlan& plan, const model::Parameter& parameter,
                                      WorkProgress* progress) {
  constexpr std::uint64_t most_images = 5000;  // airbench's
  const auto& input = std::get<model::ImageInput>(plan.model.graph.nodes[0].operation);
  const int channels = plan.model.input.channels;
  if (input.normalisation == compute::Normalisation::standardise_image ||
      parameter.dims[3] != static_cast<std::size_t>(channels))
    throw Error(Exit::usage, parameter.name + ": init=whitening",
                "is for a layer that reads the input, which has mean and deviation");
  model::WhiteningFilters filters(static_cast<int>(parameter.dims[1]),
                                  static_cast<int>(parameter.dims[2]), channels);
  io::LoaderOptions options = plan.loader(io::Split::training);
  options.augmentation = plan.evaluated;
  options.balance = false;
  options.global_batch = 100;
  options.share = {0, options.global_batch};
  options.most_batches = most_images / 100;
  options.on_retry = [progress] { advance(progress); };
  io::Loader loader(*plan.training, options);
  while (const Batch* batch = loader.next()) {
    const std::span images(batch->images);
    for (int i = 0; i < batch->size(); ++i)
      filters.add(images.subspan(i * batch->image_bytes(), batch->image_bytes()), batch->height,
                  batch->width);
    advance(progress);
  }
  const auto of_channels = [&](std::vector<float> numbers) {
    numbers.resize(channels, numbers[0]);
    return numbers;
  };
  return filters.filters(of_channels(input.mean), of_channels(input.deviation),
                         parameter.initial.value);
}

// A head over trained weights is drawn within 1/sqrt(features), as torch's Linear is, which takes
// its place there. EfficientNet's own, within 1/sqrt(classes), spoils few classes' first steps.
void narrow_heads(model::Graph& graph) {
  for (const model::ParameterId id : model::head_parameters(graph)) {
    model::Parameter& parameter = graph.parameters[id];
    model::Initialiser& initial = parameter.initial;
    if (parameter.dims.size() == 2 && initial.kind == model::Initialiser::Kind::uniform)
      initial.value =
          std::min(initial.value, 1 / std::sqrt(static_cast<double>(parameter.dims[1])));
  }
}

}  // namespace

InitialValues initial_values(const RunPlan& plan, WorkProgress* progress) {
  model::Graph graph = plan.model.graph;
  if (!plan.options.init_from.empty()) narrow_heads(graph);
  InitialValues values{std::vector<float>(graph.parameter_count()),
                       std::vector<float>(graph.statistic_count())};
  model::initialise(graph, plan.options.seed, values.parameters, values.statistics, progress);
  const std::vector<Range> ranges = graph.parameter_ranges();
  for (std::size_t p = 0; p < ranges.size(); ++p) {
    const model::Parameter& parameter = graph.parameters[p];
    if (parameter.initial.kind != model::Initialiser::Kind::whitening) continue;
    if (!plan.training || plan.goes_on) continue;  // weights of a file take their place
    const std::vector<double> filters = whitening_filters(plan, parameter, progress);
    for (std::size_t i = 0; i < filters.size(); ++i)
      values.parameters[ranges[p].first + i] = static_cast<float>(filters[i]);
  }
  return values;
}

std::vector<std::size_t> final_places(const compute::Schedule& training,
                                      const ReductionBuffer& sums) {
  std::vector<std::size_t> places;
  for (const std::size_t first : compute::finality(training))
    if (first > 0) places.push_back(sums.place_of(first));
  return places;
}

std::vector<double> final_leads(const compute::Schedule& training, const ReductionBuffer& sums,
                                std::span<const std::uint64_t> bounds) {
  const std::vector<std::size_t> finals = compute::finality(training);
  const std::size_t steps = training.steps.size();
  std::vector<double> leads;
  for (std::size_t b = bounds.size(); b-- > 1;) {
    std::size_t s = training.backward;  // after which the bucket that begins there is final
    while (s + 1 < steps && (finals[s] == 0 || sums.place_of(finals[s]) > bounds[b - 1])) ++s;
    leads.push_back(double(steps - 1 - s) / double(steps - training.backward));
  }
  return leads;
}

namespace {

// A line each: pattern, shape and reason, with tabs between.
std::string text_of(const std::vector<compute::GpuRefusal>& refusals) {
  std::string text;
  for (compute::GpuRefusal r : refusals) {
    std::ranges::replace_if(
        r.why, [](char c) { return c == '\n' || c == '\t'; }, ' ');
    text += fmt::format("{}\t{}\t{}\n", r.pattern, r.shape, r.why);
  }
  return text;
}

std::vector<compute::GpuRefusal> refusals_of(const std::string& text) {
  std::vector<compute::GpuRefusal> refusals;
  std::istringstream lines(text);
  for (compute::GpuRefusal r; std::getline(lines, r.pattern, '\t') &&
                              std::getline(lines, r.shape, '\t') && std::getline(lines, r.why);)
    refusals.push_back(r);
  return refusals;
}

// On every rank, what any rank refuses.
std::vector<compute::GpuRefusal> refused_by_any(const std::vector<compute::GpuRefusal>& mine,
                                                const allreduce::MpiSession& session) {
  std::string all;
  for (const std::string& rank : session.gather(text_of(mine))) all += rank;
  return refusals_of(session.broadcast(all));
}

}  // namespace

compute::Schedule checked_schedule(const RunPlan& plan, compute::GpuBackend& backend,
                                   const allreduce::MpiSession& session,
                                   std::vector<compute::GpuRefusal>& refused) {
  for (;;) {
    compute::Schedule schedule = make_schedule(plan, backend, model::Mode::training);
    const auto mine =
        allreduce::all_or_none([&] { return backend.check_fusions(schedule); }, session);
    const std::vector<compute::GpuRefusal> all = refused_by_any(mine, session);
    if (all.empty()) return schedule;
    backend.refuse(all);
    for (const compute::GpuRefusal& r : all)
      if (std::ranges::none_of(refused, [&](const compute::GpuRefusal& known) {
            return known.pattern == r.pattern && known.shape == r.shape;
          }))
        refused.push_back(r);
  }
}

}  // namespace ringtrain::train
