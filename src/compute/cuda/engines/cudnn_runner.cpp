#include "compute/cuda/engines/cudnn_runner.hpp"

#include <vector>

namespace ringtrain::compute::cuda {
namespace {

using Handle = UniqueHandle<cudnnHandle_t, cudnnDestroy>;

Handle create_handle() {
  cudnnHandle_t raw = nullptr;
  check(cudnnCreate(&raw), "cudnnCreate");
  return Handle(raw);
}

class LibraryRunner final : public CudnnRunner {
 public:
  explicit LibraryRunner(cudaStream_t stream) : handle_(create_handle()) {
    check(cudnnSetStream(handle_.get(), stream), "cudnnSetStream");
  }

  PlanTarget target() const override { return PlanTarget(handle_.get()); }
  bool compiles() const override { return true; }
  std::function<void()> bind(const Engine& engine, const OperationGraph& graph,
                             std::span<void* const> data, void* workspace) override;

 private:
  Handle handle_;
};

std::function<void()> LibraryRunner::bind(const Engine& engine, const OperationGraph& graph,
                                          std::span<void* const> data, void* workspace) {
  std::vector<std::int64_t> identifiers;
  std::vector<Address> pointers;
  for (std::size_t i = 0; i < graph.values().size(); ++i) {
    if (!graph.values()[i].operand) continue;
    identifiers.push_back(static_cast<std::int64_t>(i + 1));
    pointers.push_back({data[i]});
  }
  // std::function wants something that can be copied.
  auto pack = std::make_shared<Descriptor>(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack->set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const std::int64_t>(identifiers))
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::span<const Address>(pointers))
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, Address{workspace})
      .finalize();
  return [this, &engine, pack] {
    check(cudnnBackendExecute(handle_.get(), engine.plan.get(), pack->get()),
          "cudnnBackendExecute");
  };
}

}  // namespace

std::unique_ptr<CudnnRunner> make_cudnn_runner(cudaStream_t stream) {
  return std::make_unique<LibraryRunner>(stream);
}

}  // namespace ringtrain::compute::cuda
