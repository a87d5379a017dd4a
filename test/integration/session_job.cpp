// Under mpirun: the control plane, or (by argument) one of the ways a job ends.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include "ringtrain/allreduce/communicator/gradient_reducer.hpp"
#include "ringtrain/allreduce/make_communicator.hpp"
#include "ringtrain/allreduce/mpi/session.hpp"
#include "support/job.hpp"

using namespace ringtrain;
using test::require;

namespace {

void check_control_plane(const allreduce::MpiSession& session) {
  const int rank = session.rank(), size = session.size();
  const auto text_of = [](int r) {
    return std::string(static_cast<std::size_t>(r) * 3, static_cast<char>('a' + r));
  };

  const allreduce::JobLaunch launch = allreduce::launch_from_environment();
  require(launch.rank == rank && launch.size == size, "the launcher's word on rank and size");
  require(session.local_rank() < session.local_size(), "the place on this host");
  require(static_cast<int>(session.host_of().size()) == size, "a host for every rank");

  const auto texts = session.gather(text_of(rank));
  require(texts.size() == (rank == 0 ? static_cast<std::size_t>(size) : 0),
          "gather on rank 0 only");
  for (std::size_t r = 0; r < texts.size(); ++r)
    require(texts[r] == text_of(static_cast<int>(r)), "gather in order of rank");

  for (int root = 0; root < size; ++root)
    require(session.broadcast(text_of(rank), root) == text_of(root),
            "broadcast of the root's text");

  // 1e16 + 1 is 1e16: only sums in order of rank give this.
  double values[2] = {rank == 0 ? 1e16 : 1.0, double(rank)};
  session.sum(values);
  require(values[0] == 1e16 && values[1] == size * (size - 1) / 2, "sum in order of rank");
  double largest[2] = {double(rank), -double(rank)};
  session.maximum(largest);
  require(largest[0] == size - 1 && largest[1] == 0, "the largest of each value");

  require(session.all_equal("same"), "all_equal of equal texts");
  require(session.all_equal(text_of(rank == 1)) == (size == 1), "all_equal of different texts");
  require(session.waits() % 2 == 0 && (size == 1 || session.waits() > 0), "waits() counts waits");
  {
    const auto waiting = session.wait();
    session.barrier();
    require(session.waits() % 2 == 1, "waits() is odd in a wait, whatever ends within it");
  }
  require(session.waits() % 2 == 0, "waits() is even after it");
}

// From here on, writing to standard error waits for ever.
void block_stderr() {
  int ends[2];
  check_errno(::pipe(ends), "pipe");
  check_errno(::fcntl(ends[1], F_SETFL, O_NONBLOCK), "fcntl");
  while (::write(ends[1], "x", 1) == 1) continue;
  check_errno(::fcntl(ends[1], F_SETFL, 0), "fcntl");
  check_errno(::dup2(ends[1], STDERR_FILENO), "dup2");
}

// Rank 0 unwinds its gradients while a thread sums them and the others wait for it.
void fail_amid_a_sum(const allreduce::MpiSession& session, int ranks_a_host) {
  const auto communicator =
      allreduce::make_communicator("ring", session, {.ranks_a_host = ranks_a_host});
  const Buffer gradients = communicator->memory().allocate(4'000'000);
  allreduce::GradientReducer reducer(*communicator, gradients);
  for (std::size_t first : {3'000'000u, 2'000'000u, 1'000'000u}) reducer.final_from(first);
  if (session.rank() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    throw Error(Exit::not_finite, "loss", "NaN in step 3");
  }
  reducer.finish();
}

// Rank 1 gets messages shorter than it expects. Rank 0 keeps what it finds to itself.
void sum_different_sizes(const allreduce::MpiSession& session) {
  const auto communicator = allreduce::make_communicator("ring", session, {.ranks_a_host = 1});
  const Buffer gradients = communicator->memory().allocate(session.rank() == 0 ? 900 : 1000);
  try {
    communicator->start_allreduce(gradients);
    communicator->finish();
  } catch (const Error&) {
    if (session.rank() == 1) throw;
  }
  session.barrier();
}

void end(const allreduce::MpiSession& session, std::string_view how) {
  if (how == "one rank fails" && session.rank() == session.size() - 1)
    throw Error(Exit::data, "read batch 7", "file is short");
  if (how == "all ranks fail") throw Error(Exit::storage, "open /nowhere", "no such directory");
  if (how == "nobody reads the reason") {
    block_stderr();
    throw Error(Exit::data, "read batch 7", "file is short");
  }
  if (how == "sums differ in size") sum_different_sizes(session);
  if (how == "all agree") session.fail_together("--model resnet51: unknown", Exit::usage);
  if (how == "fails amid a sum") fail_amid_a_sum(session, 1);
  if (how == "fails amid a sum of pairs") fail_amid_a_sum(session, 2);
  session.barrier();
  while (how == "one rank never leaves" && session.rank() == 1) ::pause();  // by hand: 90 s
}

}  // namespace

int main(int argc, char** argv) {
  test::run_job([&](const allreduce::MpiSession& session) {
    if (argc > 1)
      end(session, argv[1]);
    else
      check_control_plane(session);
  });
}
