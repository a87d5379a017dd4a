#pragma once
// Room `allreduce/mpi`: all that knows MPI but the ring's links. MpiSession starts and ends it, and
// has the small exchanges between ranks: broadcasts, maxima, texts, agreement on a plan. A rank
// that fails ends the job through abort(). `mpi_communicator` is MPI_Allreduce, for comparison.
//
// Threads: main, but for abort().
// Collective: everything, unless a contract says otherwise.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ringtrain/base/error.hpp"

namespace ringtrain::allreduce {

/// What the launcher's environment says about this process, before MPI is up: who prints usage
/// errors, who starts the checkpoint writer.
struct JobLaunch {
  bool mpi = false;  ///< started by something that MPI_Init can talk to
  int rank = 0, size = 1;
};

/// Reads the variables of mpirun, PMIx, PMI and Slurm. Throws Error(Exit::usage) when Slurm started
/// several tasks without a way to find each other.
JobLaunch launch_from_environment();

class Guard;

/// MPI's lifetime. Exactly one lives, in main(). Without a launcher it is a job of one rank and
/// never touches MPI.
///
/// Its collectives are the control plane: small, collective over all ranks, on the main thread, and
/// only while no sum is in flight (but for communicators of their own, MPI is used by one thread at
/// a time).
class MpiSession {
 public:
  /// `interface`: the network interfaces or subnets to use between hosts ("eth0", "10.0.0.0/16");
  /// empty leaves the choice to MPI.
  /// A rank that waits for the others for more than five minutes to start, or for 90 s to leave,
  /// ends the job (72).
  explicit MpiSession(const std::string& interface = {});
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(host_of_.size()); }
  const std::string& host() const { return host_; }
  /// This rank among those that share memory with it, in order of rank().
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  int hosts() const { return hosts_; }
  /// The host of each rank, numbered from 0 in order of their first ranks.
  const std::vector<int>& host_of() const { return host_of_; }

  /// While one lives, this rank waits for the others; one within another changes nothing.
  class Wait {
   public:
    explicit Wait(std::atomic<std::uint64_t>& waits) : waits_(waits), outer_(waits % 2 == 0) {
      waits_ += outer_;
    }
    ~Wait() { waits_ += outer_; }
    Wait(const Wait&) = delete;

   private:
    std::atomic<std::uint64_t>& waits_;
    const bool outer_;
  };
  /// For what ranks do together outside of the session's own collectives, which do so themselves.
  [[nodiscard]] Wait wait() const { return Wait(waits_); }
  /// Grows when this rank begins to wait for the others, and when it ends to: odd while it waits.
  /// From any thread.
  std::uint64_t waits() const { return waits_; }
  /// How often this rank has come to meet the others of its host in a sum, where there is one host:
  /// one that stays away can so be told from those that wait for it. From any thread.
  std::atomic<std::uint64_t>& meetings() const { return meetings_; }

  /// Whether two threads may use MPI at the same time, each a communicator of its own.
  bool threads_share_mpi() const;

  /// Every rank's text on rank 0, in order of rank; nothing elsewhere.
  std::vector<std::string> gather(std::string_view text) const;
  /// Root's text on every rank.
  std::string broadcast(std::string_view text, int root = 0) const;
  /// Copies root's bytes to every rank; the sizes agree.
  void broadcast(std::span<std::byte> bytes, int root) const;
  /// Sums in place over all ranks, in order of rank. Each rank holds what all gave: for few values.
  void sum(std::span<double> values) const;
  /// A sum of few values over all ranks, in order of rank, that goes on while this rank does other
  /// work.
  class SumUnderWay {
   public:
    virtual ~SumUnderWay() = default;
    /// Whether it is over, which it is once every rank has started it. Never waits; to be called
    /// until it is, and once only after that.
    virtual bool done() = 0;
    /// Once it is over.
    virtual std::vector<double> values() const = 0;
  };
  /// One at a time. Collective, but does not wait.
  std::unique_ptr<SumUnderWay> start_sum(std::span<const double> values) const;
  /// The largest of each over all ranks, in place.
  void maximum(std::span<double> values) const;
  /// Whether all ranks have the same text.
  bool all_equal(std::string_view text) const;
  void barrier() const;
  /// Waits as barrier() does, but sleeps up to 1 ms between looks at the others: that leaves core
  /// and memory to those that still work.
  void barrier_asleep() const;

  /// For a failure that other ranks may not know of: prints it with rank and host, once in the job
  /// even when several ranks fail, with the line for programs (base/error.hpp), and ends every rank
  /// with its exit code. From any thread.
  [[noreturn]] void abort(const std::exception& failure) const noexcept;
  /// Writes lines for the user to standard error, with rank and host. From any thread, also when
  /// the session is gone.
  std::function<void(const std::string&)> reporter() const;
  /// For a failure that all ranks found alike: rank 0 prints it, likewise, and all end with
  /// `code`. Collective.
  [[noreturn]] void fail_together(std::string_view message, Exit code) const;
  /// Ends this process with `code` after that time, whatever its threads wait for by then.
  void end_within(std::chrono::seconds time, Exit code) const noexcept;
  /// What the line for programs says of the run; the run keeps it up to date.
  FaultContext& fault_context() const { return context_; }
  /// Whether abort() or fail_together() was called: this rank is about to end. From any thread.
  bool ending() const { return ending_; }

 private:
  Guard guard_against_a_hang(std::chrono::seconds limit, const char* what, const char* why) const;
  /// Prints it, once in the job; returns the exit code. Not for long: this process ends soon.
  int report(const std::exception& failure) const noexcept;
  /// "rank 1/4 on host: ", before a line of this rank's; empty in a job of one.
  std::string who() const;
  void join();
  void find_hosts();

  mutable std::atomic<bool> ending_{false};
  mutable FaultContext context_;
  mutable std::atomic<std::uint64_t> waits_{0}, meetings_{0};
  std::atomic<bool> mpi_{false};
  int rank_ = 0, local_rank_ = 0, local_size_ = 1, hosts_ = 1;
  std::string host_;
  std::vector<int> host_of_{0};
  // whether a rank of this host has told why the job fails; null where that cannot be shared
  std::unique_ptr<std::atomic<std::uint32_t>, void (*)(std::atomic<std::uint32_t>*)> reported_{
      nullptr, nullptr};
};

}  // namespace ringtrain::allreduce
