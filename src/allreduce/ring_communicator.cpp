#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "allreduce/communicators.hpp"
#include "allreduce/host_sum.hpp"
#include "allreduce/mpi_link.hpp"
#include "allreduce/shared_memory.hpp"
#include "allreduce/sum_thread.hpp"
#include "allreduce/topology.hpp"

namespace ringtrain {
namespace {

// The heap. As in SharedMemory, released buffers can be made to stay.
class OwnMemory final : public Memory {
 public:
  Buffer allocate(std::size_t count) override {
    if (count == 0) return heap_.allocate(0);
    auto buffer = std::make_unique<Buffer>(heap_.allocate(count));
    const View view = *buffer;
    return Buffer(view, [this, buffer = buffer.release()](float*) {
      if (!keep_all_) delete buffer;
    });
  }
  void keep_all() noexcept { keep_all_ = true; }

 private:
  HostMemory heap_;
  bool keep_all_ = false;
};

// Sums on one host happen in finish(), on the calling thread: there is no idle wait to hide, only
// cores to take from the computation. Between hosts a thread sums while the caller computes.
class RingCommunicator final : public Communicator {
 public:
  RingCommunicator(const MpiSession& session, const Topology& here,
                   const CommunicatorOptions& options);
  ~RingCommunicator() override { cancel(); }

  int rank() const override { return session_.rank(); }
  int size() const override { return session_.size(); }
  Memory& memory() override;
  void broadcast(View values, int root) override;
  void start_sum(View gradients) override { start({gradients}); }
  void start_rounded_sum(View gradients, Element wire) override { start({gradients, wire}); }
  void start_replaced_sum(View gradients, const Replace& replace) override {
    start({gradients, Element::fp32, &replace});
  }
  std::vector<Range> own_parts(std::span<const std::size_t> counts, int rank) const override;
  void finish() override;
  bool overlaps() const override { return thread_.has_value(); }
  void cancel() noexcept override;

 private:
  struct BetweenHosts {
    MpiLink link;
    Ring ring;
    BetweenHosts(MPI_Comm lane, const RingTuning& tuning, const std::stop_token& stop)
        : link(lane, stop), ring(link, tuning) {}
  };

  std::vector<HostDesk*> make_desks();
  std::unique_ptr<BetweenHosts> make_between_hosts(const RingTuning& tuning);
  void start(const StartedSum& sum);
  bool in_place(View view) const;
  void sum(std::span<const StartedSum> started);
  void sum_all(std::span<const StartedSum> started);
  void sum_copied(const StartedSum& started);

  const MpiSession& session_;
  const Topology here_;
  const int ranks_a_host_;
  const OnSpan on_sum_;
  std::stop_source stop_;  // ends the waits of the thread
  SharedMemory shared_;
  OwnMemory own_;
  Buffer desk_memory_;
  std::unique_ptr<BetweenHosts> between_hosts_;
  HostSum host_sum_;
  Buffer copies_;                    // for views from elsewhere
  std::vector<StartedSum> pending_;  // without a thread: started, not yet summed
  std::vector<ReplicaSum> sums_;
  bool in_flight_ = false;           // started, not finished
  std::optional<SumThread> thread_;  // last: it uses the others
};

bool crowded(const Topology& here, const CommunicatorOptions& options) {
  const bool computes_meanwhile = options.overlap && here.hosts > 1;
  return computes_meanwhile || options.crowded;
}

RingCommunicator::RingCommunicator(const MpiSession& session, const Topology& here,
                                   const CommunicatorOptions& options)
    : session_(session),
      here_(here),
      ranks_a_host_(options.ranks_a_host),
      on_sum_(options.on_sum),
      shared_(mpi::split(MPI_COMM_WORLD, here.host, here.place.rank)),
      between_hosts_(make_between_hosts(options.ring)),
      host_sum_(here.place, make_desks(), crowded(here, options),
                between_hosts_ ? &between_hosts_->ring : nullptr, stop_.get_token(),
                here.hosts == 1 ? &session.meetings() : nullptr) {
  if (here.hosts > 1 && options.overlap)
    thread_.emplace([this](const StartedSum& next) { sum(std::span(&next, 1)); });
}

std::vector<HostDesk*> RingCommunicator::make_desks() {
  static_assert(sizeof(HostDesk) % sizeof(float) == 0);
  desk_memory_ = shared_.allocate(sizeof(HostDesk) / sizeof(float));
  const Replicas all = *shared_.replicas(desk_memory_);
  std::vector<HostDesk*> desks;
  for (int rank = 0; rank < all.count; ++rank)
    desks.push_back(reinterpret_cast<HostDesk*>(all.of(rank)));
  return desks;
}

std::unique_ptr<RingCommunicator::BetweenHosts> RingCommunicator::make_between_hosts(
    const RingTuning& tuning) {
  const bool on_a_lane = here_.place.rank < here_.place.lanes;
  const MPI_Comm lane =
      mpi::split(MPI_COMM_WORLD, on_a_lane ? here_.place.rank : MPI_UNDEFINED, here_.host);
  if (!on_a_lane || here_.hosts == 1) return nullptr;
  return std::make_unique<BetweenHosts>(lane, tuning, stop_.get_token());
}

Memory& RingCommunicator::memory() {
  if (here_.place.size == 1) return own_;
  return shared_;
}

void RingCommunicator::broadcast(View values, int root) {
  finish();
  session_.broadcast(std::as_writable_bytes(values.host()), root);
}

std::vector<Range> RingCommunicator::own_parts(std::span<const std::size_t> counts,
                                               int rank) const {
  const Topology there = topology_of(rank, session_.host_of(), ranks_a_host_);
  std::vector<Range> parts;
  for (const std::size_t count : counts) parts.push_back(own_part(count, there));
  return parts;
}

bool RingCommunicator::in_place(View view) const {
  return here_.place.size == 1 || shared_.replicas(view);
}

void RingCommunicator::start(const StartedSum& sum) {
  const std::size_t size = sum.gradients.size();
  if (size == 0) return;
  in_flight_ = true;
  if (!in_place(sum.gradients) && copies_.view().size() < size) {
    finish();  // the thread may be using the old ones, and MPI
    copies_ = shared_.allocate(size);
  }
  if (thread_)
    thread_->start(sum);
  else
    pending_.push_back(sum);
}

void RingCommunicator::finish() {
  if (thread_) thread_->finish();
  sum(pending_);
  pending_.clear();
  in_flight_ = false;
}

// MPI may go on with the messages under way, also inside MPI_Abort, and sends cannot be taken back:
// all memory they may lie in stays until the process ends.
void RingCommunicator::cancel() noexcept {
  if (!in_flight_) return;
  stop_.request_stop();
  thread_.reset();
  shared_.keep_all();
  own_.keep_all();
  static_cast<void>(between_hosts_.release());
  in_flight_ = false;
}

void RingCommunicator::sum(std::span<const StartedSum> started) {
  if (!on_sum_ || started.empty()) return sum_all(started);
  std::uint64_t bytes = 0;
  for (const StartedSum& one : started) bytes += one.gradients.size() * sizeof(float);
  const auto begin = TimeSpan::Clock::now();
  sum_all(started);
  on_sum_({begin, TimeSpan::Clock::now(), bytes});
}

// Neighbours that lie in shared memory are summed in one meeting of the host's ranks.
void RingCommunicator::sum_all(std::span<const StartedSum> started) {
  sums_.clear();
  const auto sum_collected = [&] {
    if (!sums_.empty()) host_sum_.sum(sums_);
    sums_.clear();
  };
  for (const StartedSum& each : started) {
    const View view = each.gradients;
    if (here_.place.size == 1) {
      sums_.push_back({Replicas{view.data(), 0, 1}, view.size(), each.wire, each.replace});
    } else if (const auto replicas = shared_.replicas(view)) {
      sums_.push_back({*replicas, view.size(), each.wire, each.replace});
    } else {
      sum_collected();
      sum_copied(each);
    }
  }
  sum_collected();
}

void RingCommunicator::sum_copied(const StartedSum& started) {
  expects(started.replace == nullptr, "start_replaced_sum: a view of memory()");
  const View view = started.gradients, copy = copies_.view().slice(0, view.size());
  std::ranges::copy(view.host(), copy.data());
  const ReplicaSum sum{*shared_.replicas(copy), view.size(), started.wire};
  host_sum_.sum(std::span(&sum, 1));
  std::ranges::copy(copy.host(), view.data());
}

}  // namespace

std::unique_ptr<Communicator> make_ring_communicator(const MpiSession& session,
                                                     const CommunicatorOptions& options) {
  const Topology here = topology_of(session.rank(), session.host_of(), options.ranks_a_host);
  return std::make_unique<RingCommunicator>(session, here, options);
}

}  // namespace ringtrain
