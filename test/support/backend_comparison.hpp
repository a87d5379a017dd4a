#pragma once
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "compute/onednn/program.hpp"
#include "compute/reference/state.hpp"
#include "ringtrain/base/memory/view.hpp"
#include "ringtrain/base/philox.hpp"
#include "support/step_cases.hpp"

namespace ringtrain {

/// Largest difference, by the largest value.
template <class A, class B>
double relative_error(const A& actual, const B& expected) {
  double difference = 0, largest = 1e-30;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (!std::isfinite(actual[i]) || !std::isfinite(expected[i])) {
      if (actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i]))) continue;
      return INFINITY;
    }
    difference = std::max(difference, std::abs(double(actual[i]) - double(expected[i])));
    largest = std::max(largest, std::abs(double(expected[i])));
  }
  return difference / largest;
}

/// The element of activations that this run of the tests is of: RINGTRAIN_TEST_ELEMENT, or fp32.
inline Element tested_element() {
  const char* name = std::getenv("RINGTRAIN_TEST_ELEMENT");
  if (name == nullptr || std::string_view(name) != "bf16") return Element::fp32;
  if (!compute::cpu_trains_in(Element::bf16)) skip_test("this CPU has neither AVX512_BF16 nor AMX");
  return Element::bf16;
}
/// A tolerance of fp32, or what the rounding of each result to bf16 takes.
inline double tolerance_of(Element element, double of_fp32) {
  return element == Element::bf16 ? 1e-2 : of_fp32;
}

/// Some steps, run by oneDNN and by the reference on the same random tensors and parameters.
class BackendComparison {
 public:
  /// `first_written` and all tensors after it are results, those before are random.
  BackendComparison(std::vector<compute::Shape> tensors, compute::TensorId first_written,
                    std::vector<compute::Step> steps, std::size_t parameters = 0,
                    std::size_t statistics = 0)
      : first_written_(first_written),
        count_(static_cast<compute::TensorId>(tensors.size())),
        steps_(std::move(steps)) {
    schedule_.tensors = tensors;
    schedule_.parameters = parameters;
    schedule_.statistics = statistics;
    schedule_.batch = tensors[0].batch;
    for (std::uint32_t n = 0; n < static_cast<std::uint32_t>(schedule_.batch); ++n)
      batch_.samples.push_back({100 + n, n % 2, {0}});
  }

  explicit BackendComparison(StepCase of)
      : BackendComparison(std::move(of.tensors), of.first_written, std::move(of.steps),
                          of.parameters, of.statistics) {
    schedule_.vectors = std::move(of.vectors);
  }

  Batch& batch() { return batch_; }
  /// Applied to every random value: to make ties, say.
  void map_inputs(float (*map)(float)) { map_ = map; }

  /// Makes `id` part of a random tensor, which is then a result, too: in other channels it stays as
  /// it was.
  void lay(compute::TensorId id, compute::Slice place) { schedule_.slices[id] = place; }

  /// Runs both and checks every result, and that oneDNN's padding is zero.
  void check(double tolerance = 1e-5) {
    const Element element = tested_element();
    tolerance = tolerance_of(element, tolerance);
    keep_all();
    HostMemory memory;
    Buffer parameters = memory.allocate(schedule_.parameters),
           gradients = memory.allocate(schedule_.parameters),
           statistics = memory.allocate(schedule_.statistics),
           batch_statistics = memory.allocate(schedule_.statistics);
    compute::reference::State state(schedule_, seed);
    state.batch = &batch_;
    state.sample_weight = 0.5;
    fill(parameters.view().host(), state.parameters, 1000);
    if (element == Element::bf16) round(parameters.view().host(), state.parameters);
    fill(statistics.view().host(), state.statistics, 2000);
    std::ranges::fill(gradients.view().host(), 7.f);  // overwritten, never added to
    std::ranges::fill(state.gradients, 7.);
    for (std::size_t i = 0; i < state.statistics.size(); ++i)  // variances are positive
      state.statistics[i] = statistics.view().data()[i] = std::abs(statistics.view().data()[i]) + 1;
    const auto program =
        compute::make_onednn_backend(nullptr, element)
            ->compile(schedule_, {parameters, gradients, statistics, batch_statistics}, seed);
    auto& onednn = dynamic_cast<compute::onednn::OnednnProgram&>(*program);
    for (compute::TensorId id = 0; id < first_written_; ++id) {
      std::vector<float> values(schedule_.tensors[id].elements());
      fill(values, state[id], id);
      if (element == Element::bf16) round(values, state[id]);
      if (!schedule_.is_slice(id)) onednn.write(id, values);
    }

    own_convolutions = std::ranges::count(onednn.implementations(), "winograd");
    own_gradients = std::ranges::count(onednn.implementations(), "amx");
    implementations = onednn.implementations();
    const compute::StepResult result = program->run(batch_, state.sample_weight, nullptr);
    for (const compute::Step& step : schedule_.steps) compute::reference::run_step(step, state);

    results.clear();
    for (compute::TensorId id = 0; id < count_; ++id) {
      if (id < first_written_ && !has_slices(id)) continue;
      CAPTURE(id);
      results.push_back(onednn.read(id));
      CHECK(relative_error(results.back(), state[id]) < tolerance);
      CHECK(onednn.padding_is_zero(id));
    }
    results.emplace_back(gradients.view().host().begin(), gradients.view().host().end());
    results.emplace_back(batch_statistics.view().host().begin(),
                         batch_statistics.view().host().end());
    gradient_error = relative_error(gradients.view().host(), state.gradients);
    CHECK(gradient_error < tolerance);
    CHECK(relative_error(batch_statistics.view().host(), state.batch_statistics) < tolerance);
    CHECK(result.loss == Approx(state.result.loss).epsilon(tolerance));
    CHECK(result.samples == state.result.samples);
    CHECK(result.top1 == state.result.top1);
    CHECK(result.top5 == state.result.top5);
  }

  /// Convolutions that were not oneDNN's, once checked.
  std::ptrdiff_t own_convolutions = 0, own_gradients = 0;  // Winograd's, and those by AMX
  /// The kernels' names, oneDNN's and ours.
  std::vector<std::string> implementations;
  double gradient_error = 0;
  /// What oneDNN made: tensors, then the gradients and the batch statistics.
  std::vector<std::vector<float>> results;

 private:
  static constexpr std::uint64_t seed = 7;

  // Steps that touch every tensor before and after, so that none gives its memory to another.
  void keep_all() {
    std::vector<compute::Step> touch;
    for (compute::TensorId id = 0; id < count_; ++id) {
      schedule_.tensors.push_back(schedule_.tensors[id]);
      if (schedule_.is_slice(id)) continue;
      touch.push_back(compute::Add{id, id, count_ + id});
    }
    schedule_.steps = touch;
    schedule_.steps.insert(schedule_.steps.end(), steps_.begin(), steps_.end());
    schedule_.steps.insert(schedule_.steps.end(), touch.begin(), touch.end());
    schedule_.backward = touch.size();
  }

  bool has_slices(compute::TensorId id) const {
    return std::ranges::any_of(schedule_.slices,
                               [&](const auto& slice) { return slice.second.of == id; });
  }

  void fill(std::span<float> single, std::span<double> exact, std::uint64_t stream) const {
    Philox random(stream, Purpose::initialise);
    for (std::size_t i = 0; i < single.size(); ++i)
      exact[i] = single[i] = map_(static_cast<float>(random.normal()));
  }

  static void round(std::span<float> single, std::span<double> exact) {
    for (std::size_t i = 0; i < single.size(); ++i) exact[i] = single[i] = Bf16(single[i]);
  }

  compute::Schedule schedule_;
  compute::TensorId first_written_;
  compute::TensorId count_;
  std::vector<compute::Step> steps_;
  Batch batch_;
  float (*map_)(float) = [](float v) { return v; };
};

}  // namespace ringtrain
