#pragma once
#include <cuda_runtime_api.h>

#include <algorithm>

#include "compute/cuda/kernels/device/lanes.hpp"
#include "compute/cuda/program.hpp"
#include "compute/reference/state.hpp"
#include "ringtrain/compute/gpu.hpp"
#include "support/kernel_case.hpp"
#include "support/step_cases.hpp"

namespace ringtrain {

/// Some steps, run by the CUDA backend and by the reference on the same random tensors and
/// parameters, rounded to the element type.
class GpuComparison {
 public:
  /// `first_written` and all tensors after it are results, those before are random.
  GpuComparison(Element element, std::vector<compute::Shape> tensors,
                compute::TensorId first_written, const std::vector<compute::Step>& steps,
                std::size_t parameters = 0, std::size_t statistics = 0)
      : element_(element),
        first_written_(first_written),
        count_(static_cast<compute::TensorId>(tensors.size())),
        steps_(steps) {
    schedule_.tensors = std::move(tensors);
    schedule_.parameters = parameters;
    schedule_.statistics = statistics;
    schedule_.batch = schedule_.tensors[0].batch;
    for (std::uint32_t n = 0; n < static_cast<std::uint32_t>(schedule_.batch); ++n)
      batch_.samples.push_back({100 + n, n % 2, {0}});
  }

  GpuComparison(Element element, StepCase of)
      : GpuComparison(element, std::move(of.tensors), of.first_written, of.steps, of.parameters,
                      of.statistics) {}

  Batch& batch() { return batch_; }
  /// Applied to every random value: to make ties, say.
  void map_inputs(float (*map)(float)) { map_ = map; }

  /// Their extents; unless set, there are none.
  void set_vectors(std::vector<int> extents) { schedule_.vectors = std::move(extents); }
  /// Makes `id` part of a random tensor, which is then a result, too: in other channels it stays as
  /// it was.
  void lay(compute::TensorId id, compute::Slice place) { schedule_.slices[id] = place; }

  /// Runs both and checks every result by its norm.
  void check(double fp32_tolerance = 1e-5) {
    keep_all();
    const auto backend = compute::make_gpu_backend({.element = element_});
    Memory& memory = backend->memory();
    const Buffer parameters = memory.allocate(schedule_.parameters),
                 gradients = memory.allocate(schedule_.parameters),
                 statistics = memory.allocate(schedule_.statistics),
                 batch_statistics = memory.allocate(schedule_.statistics);
    compute::reference::State state(schedule_, seed);
    state.batch = &batch_;
    state.sample_weight = 0.5;
    fill(state.parameters, 1000);
    fill(state.statistics, 2000);
    for (double& v : state.statistics) v = std::abs(v) + 1;  // variances are positive
    memory.write({floats(state.parameters)}, parameters);
    memory.write({floats(state.statistics)}, statistics);
    const auto program =
        backend->compile(schedule_, {parameters, gradients, statistics, batch_statistics}, seed);
    const auto& cuda = dynamic_cast<const compute::cuda::CudaProgram&>(*program);
    for (compute::TensorId id = 0; id < first_written_; ++id) {
      fill(state[id], id);
      if (!schedule_.is_slice(id)) write(cuda, id, state[id]);
    }

    const compute::StepResult result = program->run(batch_, state.sample_weight, nullptr);
    for (const compute::Step& step : schedule_.steps) compute::reference::run_step(step, state);

    const double tolerance = element_ == Element::fp32   ? fp32_tolerance
                             : element_ == Element::fp16 ? 1e-2
                                                         : 3e-2;
    for (compute::TensorId id = 0; id < count_; ++id) {
      if (schedule_.is_slice(id) || (id < first_written_ && !has_slices(id))) continue;
      CAPTURE(id);
      CHECK(relative_norm(read(cuda, id), state[id]) < tolerance);
    }
    CHECK(relative_norm(read(memory, gradients), state.gradients) < tolerance);
    CHECK(relative_norm(read(memory, batch_statistics), state.batch_statistics) < tolerance);
    CHECK(result.loss == Approx(state.result.loss).epsilon(tolerance));
    CHECK(result.samples == state.result.samples);
    if (element_ == Element::fp32) CHECK(result.top1 == state.result.top1);
  }

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

  // With numbers that the element type holds.
  void fill(std::span<double> values, std::uint64_t stream) const {
    Philox random(stream, Purpose::initialise);
    compute::cuda::kernels::with_type(element_, [&]<class T>(T) {
      for (double& v : values)
        v = static_cast<float>(static_cast<T>(map_(static_cast<float>(random.normal()))));
    });
  }
  static std::vector<float> floats(const std::vector<double>& values) {
    return {values.begin(), values.end()};
  }
  void write(const compute::cuda::CudaProgram& program, compute::TensorId id,
             const std::vector<double>& values) {
    DeviceTensor host(element_, values.size());
    host.write(values);
    REQUIRE(cudaMemcpy(program.at(id), host.data(), host.bytes().size(), cudaMemcpyHostToDevice) ==
            cudaSuccess);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  }
  std::vector<double> read(const compute::cuda::CudaProgram& program, compute::TensorId id) const {
    DeviceTensor host(element_, schedule_.tensors[id].elements());
    REQUIRE(cudaMemcpy(host.data(), program.at(id), host.bytes().size(), cudaMemcpyDeviceToHost) ==
            cudaSuccess);
    return host.read();
  }
  static std::vector<double> read(const Memory& memory, View view) {
    std::vector<float> values(view.size());
    memory.read(view, values);
    return {values.begin(), values.end()};
  }

  const Element element_;
  compute::Schedule schedule_;
  compute::TensorId first_written_, count_;
  std::vector<compute::Step> steps_;
  Batch batch_;
  float (*map_)(float) = [](float v) { return v; };
};

}  // namespace ringtrain
