#include "compute/onednn/planner.hpp"

#include <omp.h>

#include <algorithm>

namespace ringtrain::compute::onednn {

using dnnl::memory;

BoundPrimitive::BoundPrimitive(dnnl::primitive primitive, const dnnl::stream& stream,
                               const std::vector<std::pair<int, memory>>& arguments)
    : primitive_(std::move(primitive)), stream_(stream) {
  for (const auto& [name, value] : arguments) {
    memories_.push_back(value);
    arguments_.push_back({name, value.get()});
  }
}

void BoundPrimitive::operator()() const {
  dnnl::error::wrap_c_api(
      dnnl_primitive_execute(primitive_.get(), stream_.get(), static_cast<int>(arguments_.size()),
                             arguments_.data()),
      "could not execute a primitive");
}

Planner::Planner(std::span<const Tensor> tensors, const Buffers& buffers, std::uint64_t seed,
                 Isa isa, bool training, Memory& memory)
    : memory_(memory),
      tensors_(tensors),
      buffers_(buffers),
      seed_(seed),
      isa_(isa),
      training_(training),
      threads_(omp_get_max_threads()) {}

Scratch Planner::scratch(std::size_t bytes) {
  const Scratch result(step_scratch_);
  step_scratch_ += (bytes + 63) / 64 * 64;
  scratch_bytes_ = std::max(scratch_bytes_, step_scratch_);
  return result;
}

float* Planner::keep(Kept what, TensorId of, std::size_t count) {
  Buffer& buffer = kept_[{what, of}];
  if (buffer.view().size() == 0) buffer = memory_.allocate(count);
  expects(buffer.view().size() == count, "all that keep one thing agree on its size");
  return buffer.view().data();
}

float* Planner::kept(Kept what, TensorId of) const {
  const auto found = kept_.find({what, of});
  expects(found != kept_.end(), "a backward step comes after its forward step");
  return found->second.view().data();
}

std::vector<Buffer> Planner::take_kept() {
  std::vector<Buffer> result;
  for (auto& [key, buffer] : kept_) result.push_back(std::move(buffer));
  return result;
}

memory Planner::memory(const Tensor& tensor) const { return memory(desc_of(tensor), tensor.data); }

memory Planner::memory(const memory::desc& desc, void* data) const {
  return dnnl::memory(desc, engine_, data);
}

memory Planner::memory(const memory::desc& desc, Scratch place) {
  dnnl::memory result(desc, engine_, nullptr);
  waiting_.emplace_back(result, place.offset());
  return result;
}

void Planner::finish(std::byte* scratch) {
  for (auto& [memory, offset] : waiting_) memory.set_data_handle(scratch + offset);
}

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr result;
  result.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return result;
}

memory::desc desc_of(const Tensor& tensor) {
  using tag = memory::format_tag;
  const Shape& s = tensor.shape;
  if (tensor.channels_last)
    return {{s.batch, tensor.padded_channels(), s.height, s.width},
            data_type_of(tensor.element),
            tag::nhwc};
  return {{s.batch, s.channels, s.height, s.width},
          data_type_of(tensor.element),
          tensor.block == 16  ? tag::nChw16c
          : tensor.block == 8 ? tag::nChw8c
                              : tag::nchw};
}

Action padding_zeroed(Activation f, TensorId y, Action run, const Planner& planner) {
  const Tensor t = planner.tensor(y);
  const int used = t.shape.channels % t.block;
  if (facts_of(f).keeps_zero || used == 0) return run;
  return [t, used, run = std::move(run), threads = planner.threads()](const Frame& frame) {
    run(frame);
    with_type(t.element, [&]<class T>(T zero) {
      for_each_item(threads, t.shape.batch, [&](std::size_t n) {
        for (std::size_t pixel = 0; pixel < t.pixels(); ++pixel)
          std::fill_n(t.run<T>(n, t.blocks() - 1, pixel).first + used, t.block - used, zero);
      });
    });
  };
}

}  // namespace ringtrain::compute::onednn
