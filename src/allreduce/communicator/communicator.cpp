#include "ringtrain/allreduce/communicator/communicator.hpp"

#include <memory>

#include "ringtrain/base/error.hpp"

namespace ringtrain::allreduce {
namespace {

class SoloCommunicator final : public Communicator {
 public:
  SoloCommunicator() : Communicator({}) {}

  Memory& memory() override { return memory_; }
  void broadcast(View, int) override {}
  void start_allreduce(View, const SumOptions& options) override { refuse_hook(options); }
  void finish() override {}

 private:
  HostMemory memory_;
};

}  // namespace

void Communicator::start_reduce_scatter(View) {
  throw Error("sum in parts", "only NCCL scatters sums");
}

void Communicator::start_allgather(std::span<const View>) {
  throw Error("gather parts", "only NCCL gathers them");
}

std::unique_ptr<Communicator> make_solo_communicator() {
  return std::make_unique<SoloCommunicator>();
}

}  // namespace ringtrain::allreduce
