#include "allreduce/mpi/mpi_communicator.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include "allreduce/mpi/mpi_check.hpp"

namespace ringtrain::allreduce {
namespace {

// MPI's own sum, without overlap: what the ring is measured against.
class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(const MpiSession& session) : session_(session) {}
  int rank() const override { return session_.rank(); }
  int size() const override { return session_.size(); }
  Memory& memory() override { return memory_; }
  void broadcast(View values, int root) override {
    session_.broadcast(std::as_writable_bytes(values.host()), root);
  }
  void start_sum(View gradients) override { started_.push_back(gradients); }
  void finish() override {
    for (const View gradients : started_) sum(gradients);
    started_.clear();
  }

 private:
  static void sum(View gradients) {
    constexpr std::size_t most = std::size_t{1} << 30;  // MPI counts in int
    for (std::size_t at = 0; at < gradients.size(); at += most)
      mpi::check(MPI_Allreduce(MPI_IN_PLACE, gradients.data() + at,
                               static_cast<int>(std::min(most, gradients.size() - at)), MPI_FLOAT,
                               MPI_SUM, MPI_COMM_WORLD),
                 "MPI_Allreduce");
  }

  const MpiSession& session_;
  HostMemory memory_;
  std::vector<View> started_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(const MpiSession& session) {
  return std::make_unique<MpiCommunicator>(session);
}

}  // namespace ringtrain::allreduce
