#pragma once
// In bf16 (--precision bf16) the tensors of a schedule are bf16, and each convolution and matrix
// product rounds its weights to bf16 before it runs, but for our Winograd and depthwise
// convolutions and those of small groups. Parameters, their gradients, BatchNorm's statistics and
// the loss are fp32, and kernels compute in fp32: they load and store bf16. There is no loss scale,
// as bf16 has the range of fp32.
//
// Tensors then lie with channels last, padded to whole blocks of 16, because oneDNN uses AMX in no
// other layout; matrix products are 1x1 convolutions there. A 1x1 convolution sees all pixels of
// the batch as one image with long rows, its weight gradient as images of one long row each: AMX's
// kernels are up to four times as fast with those.
#include <dnnl.hpp>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compute/onednn/isa.hpp"
#include "compute/onednn/tensor.hpp"
#include "ringtrain/compute/backend.hpp"

namespace ringtrain::compute::onednn {

/// What one run() hands to every step.
struct Frame {
  const Batch& batch;
  double sample_weight;
  StepResult& result;
  std::byte* scratch;
  const Program::SumOverRanks& sum;

  /// Over all ranks, and counts the time.
  void sum_over_ranks(View values) const;
};

/// Bytes of the scratch memory that all steps share, valid while the step that asked for them runs.
class Scratch {
 public:
  explicit Scratch(std::size_t offset = 0) : offset_(offset) {}
  std::size_t offset() const { return offset_; }
  template <class T = float>
  T* in(const Frame& frame) const {
    return reinterpret_cast<T*>(frame.scratch + offset_);
  }

 private:
  std::size_t offset_;
};

/// A planned step. Running it allocates nothing of ours.
using Action = std::function<void(const Frame&)>;

/// A oneDNN primitive with its arguments bound once, in the form its C interface takes: the C++
/// interface would copy them into a new vector on every call.
class BoundPrimitive {
 public:
  BoundPrimitive(dnnl::primitive primitive, const dnnl::stream& stream,
                 const std::vector<std::pair<int, dnnl::memory>>& arguments);
  void operator()() const;

 private:
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  std::vector<dnnl::memory> memories_;  // keep what arguments_ points at
  std::vector<dnnl_exec_arg_t> arguments_;
};

/// What a step leaves for later ones besides tensors. Moments and count are named by the place of a
/// BatchNorm's beta, winners by a tensor; the others, of BatchNorms in pieces, by a vector.
enum class Kept { moments, count, winners, moments_of_pieces, sums, coefficients };

/// What planning a step may use; collects what all steps need together.
class Planner {
 public:
  /// `tensors` are placed already. `training`: forward steps keep what backward needs, in `memory`.
  Planner(std::span<const Tensor> tensors, const Buffers& buffers, std::uint64_t seed, Isa isa,
          bool training, Memory& memory);

  const Tensor& tensor(TensorId id) const { return tensors_[id]; }
  float* parameters(ParameterRange range) const { return buffers_.parameters.slice(range).data(); }
  float* gradients(ParameterRange range) const { return buffers_.gradients.slice(range).data(); }
  /// Null where there is no bias or gamma.
  float* parameters(const std::optional<ParameterRange>& range) const {
    return range ? parameters(*range) : nullptr;
  }
  float* gradients(const std::optional<ParameterRange>& range) const {
    return range ? gradients(*range) : nullptr;
  }
  const Buffers& buffers() const { return buffers_; }
  std::uint64_t seed() const { return seed_; }
  bool training() const { return training_; }
  Isa isa() const { return isa_; }
  int threads() const { return threads_; }

  /// The next bytes of the scratch memory of the step being planned, on a 64-byte boundary.
  Scratch scratch(std::size_t bytes);
  /// Zeroed floats that live as long as the program, for a forward step to leave something in.
  float* keep(Kept what, TensorId of, std::size_t count);
  /// What a forward step planned before keeps there; throws Error when there is none.
  float* kept(Kept what, TensorId of) const;

  const dnnl::engine& engine() const { return engine_; }
  /// A tensor as oneDNN sees it.
  dnnl::memory memory(const Tensor& tensor) const;
  dnnl::memory memory(const dnnl::memory::desc& desc, void* data) const;
  /// Memory in scratch; its address is set by finish().
  dnnl::memory memory(const dnnl::memory::desc& desc, Scratch place);
  /// `primitive` with its arguments, and the scratch memory it asks for.
  template <class Primitive>
  BoundPrimitive bind(const typename Primitive::primitive_desc& desc,
                      std::vector<std::pair<int, dnnl::memory>> arguments) {
    implementations_.emplace_back(desc.impl_info_str());
    const dnnl::memory::desc workspace = desc.scratchpad_desc();
    arguments.emplace_back(DNNL_ARG_SCRATCHPAD, memory(workspace, scratch(workspace.get_size())));
    return {Primitive(desc), stream_, std::move(arguments)};
  }

  /// Begins the next step: it may use all scratch memory again.
  void next_step() { step_scratch_ = 0; }
  /// Bytes of scratch memory that the greediest step needs.
  std::size_t scratch_bytes() const { return scratch_bytes_; }
  /// Tells every primitive where the scratch memory lies.
  void finish(std::byte* scratch);
  /// A kernel of ours beside oneDNN's.
  void add_implementation(std::string name) { implementations_.push_back(std::move(name)); }
  /// oneDNN's names of the kernels it chose, and ours.
  std::vector<std::string> take_implementations() { return std::move(implementations_); }
  std::vector<Buffer> take_kept();

 private:
  Memory& memory_;
  std::span<const Tensor> tensors_;
  Buffers buffers_;
  std::uint64_t seed_;
  Isa isa_;
  bool training_;
  int threads_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::size_t step_scratch_ = 0, scratch_bytes_ = 0;
  std::vector<std::pair<dnnl::memory, std::size_t>> waiting_;  // scratch memory and its offset
  std::map<std::pair<Kept, TensorId>, Buffer> kept_;
  std::vector<std::string> implementations_;
};

/// The attributes of all primitives: scratch memory comes from the planner.
dnnl::primitive_attr attributes();
constexpr dnnl::memory::data_type data_type_of(Element element) {
  return element == Element::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}
/// As oneDNN sees it; where channels are last, with their padding.
dnnl::memory::desc desc_of(const Tensor& tensor);

}  // namespace ringtrain::compute::onednn
