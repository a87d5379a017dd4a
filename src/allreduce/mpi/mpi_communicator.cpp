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
  explicit MpiCommunicator(const MpiSession& session)
      : Communicator({session.rank(), session.size()}), session_(session) {}
  Memory& memory() override { return memory_; }
  void broadcast(View values, int root) override {
    session_.broadcast(std::as_writable_bytes(values.host()), root);
  }
  void start_allreduce(View values, const SumOptions& options) override {
    refuse_hook(options);
    started_.push_back(values);
  }
  void finish() override {
    for (const View values : started_) sum(values);
    started_.clear();
  }

 private:
  static void sum(View values) {
    constexpr std::size_t most = std::size_t{1} << 30;  // MPI counts in int
    for (std::size_t at = 0; at < values.size(); at += most)
      mpi::check(MPI_Allreduce(MPI_IN_PLACE, values.data() + at,
                               static_cast<int>(std::min(most, values.size() - at)), MPI_FLOAT,
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
