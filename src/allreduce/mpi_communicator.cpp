#include <algorithm>

#include "allreduce/communicators.hpp"
#include "allreduce/mpi.hpp"

namespace ringtrain {
namespace {

// MPI's own sum, at once: what the ring is measured against.
class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(const MpiSession& session) : session_(session) {}
  int rank() const override { return session_.rank(); }
  int size() const override { return session_.size(); }
  Memory& memory() override { return memory_; }
  void broadcast(View values, int root) override {
    session_.broadcast(std::as_writable_bytes(values.host()), root);
  }
  void start_sum(View gradients) override {
    constexpr std::size_t most = std::size_t{1} << 30;  // MPI counts in int
    for (std::size_t at = 0; at < gradients.size(); at += most)
      mpi::check(MPI_Allreduce(MPI_IN_PLACE, gradients.data() + at,
                               static_cast<int>(std::min(most, gradients.size() - at)), MPI_FLOAT,
                               MPI_SUM, MPI_COMM_WORLD),
                 "MPI_Allreduce");
  }
  void finish() override {}

 private:
  const MpiSession& session_;
  HostMemory memory_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(const MpiSession& session) {
  return std::make_unique<MpiCommunicator>(session);
}

}  // namespace ringtrain
