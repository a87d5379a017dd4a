// Which of cuDNN's proposals may be used.
#include <algorithm>

#include "compute/cuda/bind/launches.hpp"
#include "compute/cuda/runtime/device.hpp"
#include "ringtrain/model/passes.hpp"
#include "ringtrain/model/zoo.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::compute::cuda;

namespace {

constexpr std::size_t any = std::size_t(1) << 40;

compute::Schedule schedule_of(const std::string& model, model::Mode mode, Element element,
                              Engines& engines) {
  const model::Model made = model::make_model(model);
  return model::make_schedule(made.graph, 256, mode, 0.1f,
                              [&](const compute::Schedule& s, const compute::Step& step) {
                                return supports(s, step, element, engines);
                              });
}

Engines engines_of(const EngineRules& rules) {
  return Engines(describe_device(device_json("h100")), rules);
}

// Of a 3x3 convolution of 64 channels on 32 images of 28x28 pixels.
Request weight_gradient(Element element) {
  compute::Schedule s;
  s.tensors = {{32, 28, 28, 64}, {32, 28, 28, 64}};
  s.parameters = 3 * 3 * 64 * 64;
  s.batch = 32;
  const compute::Window window{3, 3, 1, 1, 1, 1, 1, 1};
  return request(s, compute::ConvolutionWeightGradient{window, 0, 1, {0, s.parameters}}, element);
}

std::vector<std::size_t> places(const Engines& engines, const Request& request) {
  std::vector<std::size_t> places;
  for (const Engine& engine : engines.candidates(request.graph(), 1000, any))
    places.push_back(engine.place);
  return places;
}

}  // namespace

TEST_CASE("every step of every model has a plan that gives the same bits every time") {
  const auto element = GENERATE(Element::fp16, Element::bf16, Element::fp32);
  Engines engines = engines_of({.deterministic = true});
  std::vector<std::string> names = model::model_names();
  names.resize(12);  // of the others one: they have the same operations
  names.emplace_back("efficientnet_b0");
  for (const std::string& model : names)
    for (const model::Mode mode : {model::Mode::training, model::Mode::evaluation}) {
      CAPTURE(model, mode == model::Mode::training, name_of(element));
      const compute::Schedule schedule = schedule_of(model, mode, element, engines);
      Launches launches(schedule, element, engines);

      for (const compute::Step& step : schedule.steps) CHECK_FALSE(launches.of(step).empty());
    }
}

TEST_CASE("statistics inside a convolution are passed over when bits must repeat") {
  Engines engines = engines_of({.deterministic = true});

  const compute::Schedule schedule =
      schedule_of("resnet50", model::Mode::training, Element::fp16, engines);

  for (const compute::Step& step : schedule.steps) {
    const auto* forward = std::get_if<compute::ConvolutionForward>(&step);
    const auto* backward = std::get_if<compute::ConvolutionInputGradient>(&step);
    CHECK((!forward || forward->sums == compute::no_vector));
    CHECK((!backward || !backward->epilogue));
  }
}

TEST_CASE("a fused engine's workspace moves no more than the fusion saves") {
  const std::string gpu = GENERATE("h100", "a100", "rtx4090");
  Engines engines(describe_device(device_json(gpu)));
  const compute::Schedule schedule =
      schedule_of("resnet50", model::Mode::training, Element::fp16, engines);

  int fused = 0;
  for (const compute::Step& step : schedule.steps) {
    const auto request = fused_request(schedule, step, Element::fp16);
    if (!request) continue;
    ++fused;
    CAPTURE(gpu, request->pattern, request->shape);
    CHECK(request->saved_bytes > 0);
    CHECK(2 * engines.ask(*request).engine->workspace <= request->saved_bytes);
  }
  // Off Hopper, input gradients want too much.
  CHECK(fused > 60);
  CHECK((fused == 132) == (gpu == "h100"));
}

TEST_CASE("engines that add in any order are passed over when bits must repeat") {
  // In 16 bits, those of cuDNN 9.19 also round their sums, so that they are never used.
  const Request request = weight_gradient(Element::fp32);
  const auto all = places(engines_of({}), request);

  const auto repeating = places(engines_of({.deterministic = true}), request);

  CHECK_FALSE(repeating.empty());
  CHECK(repeating.size() < all.size());
  CHECK(std::ranges::includes(all, repeating));
}

TEST_CASE("the first choice is the first of the candidates") {
  const bool deterministic = GENERATE(false, true);
  Engines engines = engines_of({.deterministic = deterministic});
  const Request request = weight_gradient(Element::fp16);

  const auto all = places(engines, request);

  CHECK(engines.ask(request).engine->place == all.at(0));
  CHECK(std::ranges::is_sorted(all));
}
