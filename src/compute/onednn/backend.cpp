#include <dnnl_debug.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <type_traits>
#include <variant>

#include "compute/onednn/plan.hpp"
#include "compute/onednn/program.hpp"
#include "compute/onednn/tensor.hpp"
#include "compute/onednn/winograd/winograd.hpp"
#include "ringtrain/compute/memory_plan.hpp"

namespace ringtrain::compute::onednn {
namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void Frame::sum_over_ranks(View values) const {
  if (!sum) return;
  const double from = seconds();
  sum(values);
  result.ranks_seconds += seconds() - from;
}

namespace {

// Calls f and translates oneDNN's exceptions.
template <class F>
auto at_border(const char* doing, std::size_t s, const Step& step, F f) {
  try {
    return f();
  } catch (const dnnl::error& error) {
    const std::string what = fmt::format("{} step {} ({}) with oneDNN", doing, s, name_of(step));
    if (error.status == dnnl_out_of_memory) throw Error(Exit::limit, what, reason_of(ENOMEM));
    throw Error(what, fmt::format("{}, {}", error.what(), dnnl_status2str(error.status)));
  }
}

// Pieces of BatchNorms are for themselves or in Winograd convolutions.
template <class Kind>
bool has_plan(const Kind& kind, const TensorOf& tensor, Isa isa) {
  if constexpr (requires { kind.window.dilation; })
    if (kind.window.dilation != 1) return false;
  if constexpr (requires { takes_norms(kind, tensor, isa); })
    return takes_norms(kind, tensor, isa);
  else if constexpr (requires { kind.prologue; })
    if (kind.prologue) return false;
  if constexpr (std::is_same_v<Kind, MaxPoolBackward>)
    if (kind.dy2 != no_tensor || kind.epilogue) return false;
  if constexpr (std::is_same_v<Kind, BatchNormFinalize>) return kind.first == 0;
  if constexpr (std::is_same_v<Kind, BatchNormApply>)
    return kind.how.residual_scale == no_vector && kind.how.y == no_tensor;
  if constexpr (std::is_same_v<Kind, BatchNormBackwardReduce>)
    return kind.how.residual == no_tensor;
  if constexpr (std::is_same_v<Kind, BatchNormBackwardApply>) return kind.dx2 == no_tensor;
  return true;
}

template <class Kind>
Action plan_if_any(const Kind& kind, Planner& planner) {
  const TensorOf tensor = [&](TensorId id) { return planner.tensor(id); };
  if (has_plan(kind, tensor, planner.isa())) return plan(kind, planner);
  throw Error(fmt::format("plan {} with oneDNN", name_of(kind)), "this form of it has no plan");
}

class PlannedProgram final : public OnednnProgram {
 public:
  /// `memory` gives activations and workspace.
  PlannedProgram(const Schedule& schedule, const Buffers& buffers, std::uint64_t seed, Isa isa,
                 Element element, Memory& memory, WorkProgress* progress)
      : memory_(memory),
        progress_(progress),
        schedule_(schedule),
        tensors_(choose_layouts(schedule, block_of(isa), element)),
        final_from_(finality(schedule)),
        step_seconds_(schedule.steps.size()) {
    place_tensors();
    plan_steps(buffers, seed, isa);
  }

  StepResult run(const Batch& batch, double sample_weight, const Final& final,
                 const SumOverRanks& sum) override;
  std::vector<float> logits() const override { return read(schedule_.logits); }
  std::size_t bytes() const override { return needs_.activations + needs_.workspace; }
  const HostNeeds& needs() const { return needs_; }

  const std::vector<std::string>& implementations() const override { return implementations_; }
  std::span<const double> step_seconds() const override { return step_seconds_; }
  void write(TensorId id, std::span<const float> values) override;
  std::vector<float> read(TensorId id) const override;
  bool padding_is_zero(TensorId id) const override;

 private:
  void place_tensors();
  void plan_steps(const Buffers& buffers, std::uint64_t seed, Isa isa);
  void check(const Batch& batch) const;

  Memory& memory_;
  WorkProgress* const progress_;
  const Schedule schedule_;
  std::vector<Tensor> tensors_;
  const std::vector<std::size_t> final_from_;
  std::vector<double> step_seconds_;
  Buffer arena_, scratch_;
  std::vector<Buffer> kept_;
  std::vector<Action> actions_;
  std::vector<std::string> implementations_;
  HostNeeds needs_;
};

Buffer allocate(Memory& memory, std::size_t bytes) {
  return memory.allocate((bytes + sizeof(float) - 1) / sizeof(float));
}

void PlannedProgram::place_tensors() {
  std::vector<std::size_t> sizes;
  for (const Tensor& tensor : tensors_) sizes.push_back(tensor.bytes());
  const MemoryPlan places = plan_memory(schedule_, sizes);
  needs_.activations = places.bytes;
  arena_ = allocate(memory_, places.bytes);
  for (std::size_t id = 0; id < tensors_.size(); ++id)
    tensors_[id].data = reinterpret_cast<std::byte*>(arena_.view().data()) + places.offset[id];
  for (const auto& [id, place] : schedule_.slices) {
    Tensor& part = tensors_[id];
    part.held_blocks = tensors_[place.of].blocks();
    part.data = static_cast<std::byte*>(part.data) +
                place.first / part.block * part.block_step() * bytes_of(part.element);
  }
}

void PlannedProgram::plan_steps(const Buffers& buffers, std::uint64_t seed, Isa isa) {
  Planner planner(tensors_, buffers, seed, isa, schedule_.backward < schedule_.steps.size(),
                  memory_);
  for (std::size_t s = 0; s < schedule_.steps.size(); ++s) {
    const Step& step = schedule_.steps[s];
    planner.next_step();
    actions_.push_back(at_border("plan", s, step, [&] {
      return std::visit([&](const auto& kind) { return plan_if_any(kind, planner); }, step);
    }));
    advance(progress_);
  }
  needs_.workspace = planner.scratch_bytes();
  scratch_ = allocate(memory_, planner.scratch_bytes());
  planner.finish(reinterpret_cast<std::byte*>(scratch_.view().data()));
  kept_ = planner.take_kept();
  for (const Buffer& buffer : kept_) needs_.workspace += buffer.view().size() * sizeof(float);
  implementations_ = planner.take_implementations();
  needs_.kernels = implementations_;
}

void PlannedProgram::check(const Batch& batch) const {
  expects(batch.size() == schedule_.batch, "Program::run: the batch has the schedule's size");
  for (const Step& step : schedule_.steps)
    if (const auto* input = std::get_if<Input>(&step))
      expects(batch.images.size() == schedule_.tensors[input->y].elements(),
              "Program::run: the images have the schedule's extents");
}

StepResult PlannedProgram::run(const Batch& batch, double sample_weight, const Final& final,
                               const SumOverRanks& sum) {
  check(batch);
  StepResult result;
  const Frame frame{batch, sample_weight, result,
                    reinterpret_cast<std::byte*>(scratch_.view().data()), sum};
  std::size_t final_from = schedule_.parameters;
  const double begin = seconds();
  double mark = begin;
  for (std::size_t s = 0; s < actions_.size(); ++s) {
    const double summed = result.ranks_seconds;
    at_border("run", s, schedule_.steps[s], [&] { actions_[s](frame); });
    const double now = seconds();
    step_seconds_[s] = now - mark - (result.ranks_seconds - summed);
    (s < schedule_.backward ? result.forward_seconds : result.backward_seconds) += step_seconds_[s];
    mark = now;
    if (s < schedule_.backward) result.backward_at_s = now - begin;
    if (s < schedule_.backward || final_from_[s] >= final_from) continue;
    final_from = final_from_[s];
    if (final) final(final_from);
    mark = seconds();
  }
  return result;
}

void PlannedProgram::write(TensorId id, std::span<const float> values) {
  const Tensor& t = tensors_[id];
  expects(values.size() == t.shape.elements(), "OnednnProgram::write: a value an element");
  expects(!schedule_.is_slice(id), "OnednnProgram::write: no slice");
  with_type(t.element, [&]<class T>(T) {
    std::fill_n(t.as<T>(), t.elements(), T(0));
    for (std::size_t i = 0; i < values.size(); ++i) t.as<T>()[t.place(i)] = values[i];
  });
}

std::vector<float> PlannedProgram::read(TensorId id) const {
  const Tensor& t = tensors_[id];
  std::vector<float> values(t.shape.elements());
  with_type(t.element, [&]<class T>(T) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = t.as<T>()[t.place(i)];
  });
  return values;
}

bool PlannedProgram::padding_is_zero(TensorId id) const {
  const Tensor& t = tensors_[id];
  const int used = t.shape.channels % t.block;
  if (used == 0) return true;
  return with_type(t.element, [&]<class T>(T) {
    for (int n = 0; n < t.shape.batch; ++n)
      for (std::size_t pixel = 0; pixel < t.pixels(); ++pixel) {
        const T* lanes = t.run<T>(n, t.blocks() - 1, pixel).first;
        if (std::any_of(lanes + used, lanes + t.block, [](float v) { return v != 0; }))
          return false;
      }
    return true;
  });
}

// Whether the BatchNorm of this piece is faster in pieces than as a whole: where all that read its
// result make it anew, and where a residual has its gradient written anyway, so that the
// convolutions around take in all that they can.
bool gains_in_pieces(const Schedule& schedule, const BatchNormApply& apply, const TensorOf& tensor,
                     Isa isa) {
  const AppliedNorm how{.then = apply.how.then};
  bool sums = false, all = true, any = false;
  for (const Step& step : schedule.steps) {
    if (const auto* made = std::get_if<ConvolutionForward>(&step); made && made->y == apply.x) {
      ConvolutionForward fused = *made;
      fused.sums = 0;
      sums = takes_norms(fused, tensor, isa);
    }
    const bool takes = std::visit(
        [&](auto kind) {
          if constexpr (requires { takes_norms(kind, tensor, isa), kind.prologue; }) {
            kind.prologue = how;
            return kind.x == apply.y && takes_norms(kind, tensor, isa);
          }
          return false;
        },
        step);
    for_each_tensor(step, [&](TensorId id, Access access) {
      if (id != apply.y || access == Access::write) return;
      any = any || takes;
      all = all && takes;
    });
  }
  return any && (apply.how.residual == no_tensor ? all : sums);
}

class OnednnBackend final : public Backend {
 public:
  OnednnBackend(WorkProgress* progress, Element element) : progress_(progress), element_(element) {
    if (!cpu_trains_in(element))
      throw Error(fmt::format("compute in {} with oneDNN", name_of(element)),
                  "this CPU does not multiply such numbers");
  }
  std::string name() const override { return "onednn"; }
  bool supports(const Schedule& schedule, const Step& step) const override {
    const Isa isa = effective_isa();
    const TensorOf tensor = [&](TensorId id) {
      return Tensor{schedule.tensors[id], block_of(isa), element_, element_ == Element::bf16};
    };
    return takes_slices(schedule, step, block_of(isa)) && pieces_know_only_relu(step) &&
           std::visit([&](const auto& kind) { return has_plan(kind, tensor, isa); }, step) &&
           (!std::holds_alternative<BatchNormApply>(step) ||
            gains_in_pieces(schedule, std::get<BatchNormApply>(step), tensor, isa));
  }
  std::unique_ptr<Program> compile(const Schedule& schedule, const Buffers& buffers,
                                   std::uint64_t seed) override {
    return std::make_unique<PlannedProgram>(schedule, buffers, seed, effective_isa(), element_,
                                            memory_, progress_);
  }
  Memory& memory() override { return memory_; }

 private:
  WorkProgress* const progress_;
  const Element element_;
  HostMemory memory_;
};

}  // namespace
}  // namespace ringtrain::compute::onednn

namespace ringtrain::compute {

bool cpu_trains_in(Element element) {
  return element == Element::fp32 || (element == Element::bf16 && onednn::multiplies_bf16());
}

std::unique_ptr<Backend> make_onednn_backend(WorkProgress* progress, Element element) {
  return std::make_unique<onednn::OnednnBackend>(progress, element);
}

HostNeeds host_needs(const Schedule& schedule, WorkProgress* progress, Element element) {
  ReservedMemory memory;
  const Buffer parameters = memory.allocate(schedule.parameters),
               statistics = memory.allocate(schedule.statistics);
  const Buffers buffers{parameters, parameters, statistics, statistics};
  return onednn::PlannedProgram(schedule, buffers, 0, onednn::effective_isa(), element, memory,
                                progress)
      .needs();
}

LibraryVersion onednn_version() {
  const dnnl_version_t* here = dnnl_version();
  return {"oneDNN",
          fmt::format("{}.{}.{}", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH),
          fmt::format("{}.{}.{}", here->major, here->minor, here->patch)};
}

}  // namespace ringtrain::compute
