#include <algorithm>
#include <chrono>
#include <memory>
#include <variant>

#include "compute/reference/state.hpp"

namespace ringtrain::compute::reference {

State::State(const Schedule& schedule, std::uint64_t dropout_seed)
    : shapes(schedule.tensors),
      slices(schedule.slices),
      parameters(schedule.parameters),
      gradients(schedule.parameters),
      statistics(schedule.statistics),
      batch_statistics(schedule.statistics),
      seed(dropout_seed) {
  for (const Shape& shape : shapes) tensors.emplace_back(shape.elements());
  for (const int extent : schedule.vectors) vectors.emplace_back(extent);
}

namespace {

// Calls f(element of the slice, element of the tensor that it is part of).
template <class F>
void for_each_element(TensorId id, const Slice& place, State& s, F f) {
  const std::size_t channels = s.shape(id).channels, all = s.shape(place.of).channels;
  for (std::size_t i = 0; i < s[id].size(); ++i)
    f(s[id][i], s[place.of][i / channels * all + place.first + i % channels]);
}

}  // namespace

void State::sum_over_ranks(std::vector<double>& values) const {
  if (!sum) return;
  std::vector<float> floats(values.begin(), values.end());
  sum({floats.data(), floats.size()});
  std::ranges::copy(floats, values.begin());
}

void run_step(const Step& step, State& state) {
  const auto with_slices = [&](Access wanted, auto f) {
    for_each_tensor(step, [&](TensorId id, Access access) {
      const auto slice = state.slices.find(id);
      if (access == wanted && slice != state.slices.end())
        for_each_element(id, slice->second, state, f);
    });
  };
  with_slices(Access::read, [](double& own, const double& there) { own = there; });
  std::visit([&](const auto& kind) { run(kind, state); }, step);
  with_slices(Access::write, [](const double& own, double& there) { there = own; });
}

namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class ReferenceProgram final : public Program {
 public:
  ReferenceProgram(const Schedule& schedule, const Buffers& buffers, std::uint64_t seed)
      : schedule_(schedule),
        buffers_(buffers),
        final_from_(finality(schedule)),
        state_(schedule, seed) {}

  StepResult run(const Batch& batch, double sample_weight, const Final& final,
                 const SumOverRanks& sum) override {
    expects(batch.size() == schedule_.batch, "Program::run: the batch has the schedule's size");
    load(batch, sample_weight);
    state_.sum = sum;
    double mark = seconds();
    for (std::size_t s = 0; s < schedule_.steps.size(); ++s) {
      if (s == schedule_.backward) {
        state_.result.forward_seconds = state_.result.backward_at_s = seconds() - mark;
        mark = seconds();
      }
      reference::run_step(schedule_.steps[s], state_);
      publish(s, final);
    }
    const bool trained = schedule_.backward < schedule_.steps.size();
    (trained ? state_.result.backward_seconds : state_.result.forward_seconds) = seconds() - mark;
    return state_.result;
  }

  std::vector<float> logits() const override {
    const std::vector<double>& values = state_.tensors.at(schedule_.logits);
    return {values.begin(), values.end()};
  }

  std::size_t bytes() const override {
    std::size_t sum = 0;
    for (const auto& tensor : state_.tensors) sum += tensor.size() * sizeof(double);
    return sum;
  }

 private:
  void load(const Batch& batch, double sample_weight) {
    std::ranges::copy(buffers_.parameters.host(), state_.parameters.begin());
    std::ranges::copy(buffers_.statistics.host(), state_.statistics.begin());
    state_.batch = &batch;
    state_.sample_weight = sample_weight;
    state_.result = {};
  }

  // Hands out what the step at `s` made final.
  void publish(std::size_t s, const Final& final) {
    const std::size_t known = s == 0 ? schedule_.parameters : final_from_[s - 1];
    if (s < schedule_.backward) return;
    if (s == schedule_.backward)
      std::ranges::copy(std::span(state_.batch_statistics).first(buffers_.batch_statistics.size()),
                        buffers_.batch_statistics.data());
    for (std::size_t i = final_from_[s]; i < known; ++i)
      buffers_.gradients.data()[i] = static_cast<float>(state_.gradients[i]);
    if (final_from_[s] < known && final) final(final_from_[s]);
  }

  const Schedule schedule_;
  const Buffers buffers_;
  const std::vector<std::size_t> final_from_;
  State state_;
};

class ReferenceBackend final : public Backend {
 public:
  std::string name() const override { return "reference"; }
  bool supports(const Schedule&, const Step&) const override { return true; }
  std::unique_ptr<Program> compile(const Schedule& schedule, const Buffers& buffers,
                                   std::uint64_t seed) override {
    return std::make_unique<ReferenceProgram>(schedule, buffers, seed);
  }
  Memory& memory() override { return memory_; }

 private:
  HostMemory memory_;
};

}  // namespace
}  // namespace ringtrain::compute::reference

namespace ringtrain::compute {

std::unique_ptr<Backend> make_reference_backend() {
  return std::make_unique<reference::ReferenceBackend>();
}

}  // namespace ringtrain::compute
