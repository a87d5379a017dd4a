#include "allreduce/hierarchical/ring_communicator.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "allreduce/compression/compressed_ring.hpp"
#include "allreduce/hierarchical/hierarchical_allreduce.hpp"
#include "allreduce/hierarchical/mpi_link.hpp"
#include "allreduce/hierarchical/shared_memory.hpp"
#include "allreduce/hierarchical/sum_thread.hpp"

namespace ringtrain::allreduce {
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
// cores to take from the computation. Between hosts threads sum while the caller computes.
class RingCommunicator final : public Communicator {
 public:
  RingCommunicator(const MpiSession& session, const Topology& here,
                   const CommunicatorOptions& options);
  ~RingCommunicator() override { abort(); }

  Memory& memory() override;
  void broadcast(View values, int root) override;
  void start_allreduce(View values, const SumOptions& options) override;
  void finish() override;
  CompressionState* compression_state() override;
  void abort() noexcept override;

 private:
  struct BetweenHosts {
    MpiLink link;
    Ring ring;
    std::optional<CompressedRing> compressed = {};
    BetweenHosts(MPI_Comm lane, int track, const RingTuning& tuning, const std::stop_token& stop,
                 std::atomic<int>& waiting)
        : link(lane, stop, track, waiting), ring(link, tuning) {}
  };

  // What one sum at a time needs. Sums of several tracks are under way at once.
  struct Track {
    int number;
    Buffer desk_memory;
    std::unique_ptr<BetweenHosts> between_hosts;  // null: one host, or no lane of this rank
    HierarchicalAllreduce all_ranks;
    Buffer copies = {};                    // of views from elsewhere
    std::optional<SumThread> thread = {};  // last: it uses the others
  };

  MPI_Comm make_lane() const;
  std::unique_ptr<Track> make_track(MPI_Comm lane, int number, const CommunicatorOptions& options);
  std::vector<HostDesk*> desks_in(const Buffer& memory) const;
  std::unique_ptr<BetweenHosts> make_between_hosts(MPI_Comm lane, int number,
                                                   const CommunicatorOptions& options);
  PendingSum pending_sum(Track& track, View values, const SumOptions& options);
  Track& next_track();
  void wait_for_sums();
  void allreduce(Track& track, std::span<const PendingSum> started);
  void allreduce_pending(Track& track, std::span<const PendingSum> started);
  void allreduce_copy(Track& track, const PendingSum& sum);

  const MpiSession& session_;
  const Topology here_;
  const OnSpan on_sum_;
  std::stop_source stop_;  // ends the waits of the threads
  std::atomic<int> waiting_{0};
  SharedMemory shared_;
  OwnMemory own_;
  std::vector<PendingSum> pending_;             // without a thread: started, not yet summed
  std::size_t started_ = 0;                     // since finish()
  std::vector<std::unique_ptr<Track>> tracks_;  // last: their threads use the others
};

bool crowded(const Topology& here, const CommunicatorOptions& options) {
  const bool computes_meanwhile = options.overlap && here.hosts > 1;
  return computes_meanwhile || options.crowded;
}

CommunicatorFacts facts_of(const MpiSession& session, const Topology& here,
                           const CommunicatorOptions& options) {
  const auto own_parts = [all = topologies_of(session.host_of(), options.ranks_a_host)](auto counts,
                                                                                        int rank) {
    std::vector<Range> parts;
    for (const std::size_t count : counts)
      parts.push_back(own_part(count, all.at(static_cast<std::size_t>(rank))));
    return parts;
  };
  return {session.rank(), session.size(), here.hosts > 1 && options.overlap, own_parts};
}

RingCommunicator::RingCommunicator(const MpiSession& session, const Topology& here,
                                   const CommunicatorOptions& options)
    : Communicator(facts_of(session, here, options)),
      session_(session),
      here_(here),
      on_sum_(options.on_sum),
      shared_(mpi::split(MPI_COMM_WORLD, here.host, here.place.rank)) {
  const MPI_Comm lane = make_lane();
  // What compression leaves out is one state for all sums.
  const bool several = overlaps() && session.threads_share_mpi() && !options.compressed.how;
  const int tracks = several ? std::max(1, options.at_once) : 1;
  for (int number = 0; number < tracks; ++number) {
    Track& track = *tracks_.emplace_back(make_track(lane, number, options));
    if (overlaps())
      track.thread.emplace(
          [this, on = &track](const PendingSum& next) { allreduce(*on, std::span(&next, 1)); });
  }
}

// Of the ranks at this one's place on all hosts; null where there is none.
MPI_Comm RingCommunicator::make_lane() const {
  const bool on_a_lane = here_.place.rank < here_.place.lanes;
  const MPI_Comm lane =
      mpi::split(MPI_COMM_WORLD, on_a_lane ? here_.place.rank : MPI_UNDEFINED, here_.host);
  return here_.hosts == 1 ? MPI_COMM_NULL : lane;
}

std::unique_ptr<RingCommunicator::Track> RingCommunicator::make_track(
    MPI_Comm lane, int number, const CommunicatorOptions& options) {
  static_assert(sizeof(HostDesk) % sizeof(float) == 0);
  Buffer desk_memory = shared_.allocate(sizeof(HostDesk) / sizeof(float));
  std::unique_ptr<BetweenHosts> between_hosts = make_between_hosts(lane, number, options);
  CompressedRing* const compressed =
      between_hosts && between_hosts->compressed ? &*between_hosts->compressed : nullptr;
  HierarchicalAllreduce all_ranks(here_.place, desks_in(desk_memory), crowded(here_, options),
                                  between_hosts ? &between_hosts->ring : nullptr, stop_.get_token(),
                                  here_.hosts == 1 ? &session_.meetings() : nullptr, compressed);
  return std::unique_ptr<Track>(
      new Track{number, std::move(desk_memory), std::move(between_hosts), std::move(all_ranks)});
}

std::unique_ptr<RingCommunicator::BetweenHosts> RingCommunicator::make_between_hosts(
    MPI_Comm lane, int number, const CommunicatorOptions& options) {
  if (lane == MPI_COMM_NULL) return nullptr;
  auto between =
      std::make_unique<BetweenHosts>(lane, number, options.ring, stop_.get_token(), waiting_);
  if (options.compressed.how)
    between->compressed.emplace(options.compressed, here_.place.rank, here_.place.lanes,
                                between->ring);
  return between;
}

CompressionState* RingCommunicator::compression_state() {
  expects(started_ == 0, "RingCommunicator: compression_state() between sums");
  const auto& between = tracks_.front()->between_hosts;
  return between && between->compressed ? &between->compressed->state() : nullptr;
}

std::vector<HostDesk*> RingCommunicator::desks_in(const Buffer& memory) const {
  const Replicas all = *shared_.replicas(memory);
  std::vector<HostDesk*> desks;
  for (int rank = 0; rank < all.count; ++rank)
    desks.push_back(reinterpret_cast<HostDesk*>(all.of(rank)));
  return desks;
}

Memory& RingCommunicator::memory() {
  if (here_.place.size == 1) return own_;
  return shared_;
}

void RingCommunicator::broadcast(View values, int root) {
  finish();
  session_.broadcast(std::as_writable_bytes(values.host()), root);
}

void RingCommunicator::start_allreduce(View values, const SumOptions& options) {
  if (values.size() == 0) return;
  Track& track = next_track();
  const PendingSum sum = pending_sum(track, values, options);
  ++started_;
  if (track.thread)
    track.thread->start(sum);
  else
    pending_.push_back(sum);
}

PendingSum RingCommunicator::pending_sum(Track& track, View values, const SumOptions& options) {
  if (here_.place.size == 1) return {{values.data(), 0, 1}, values.size(), options};
  if (const auto replicas = shared_.replicas(values)) return {*replicas, values.size(), options};
  expects(options.hook == nullptr, "RingCommunicator: a hook for views of memory()");
  if (track.copies.view().size() < values.size()) {
    wait_for_sums();  // a thread may be using the old ones, and MPI
    track.copies = shared_.allocate(values.size());
  }
  const View copy = track.copies.view().slice(0, values.size());
  return {*shared_.replicas(copy), values.size(), options, values};
}

// In turn, and so the same ones on all ranks.
RingCommunicator::Track& RingCommunicator::next_track() {
  return *tracks_[started_ % tracks_.size()];
}

void RingCommunicator::finish() {
  wait_for_sums();
  started_ = 0;
}

void RingCommunicator::wait_for_sums() {
  for (const auto& track : tracks_)
    if (track->thread) track->thread->finish();
  allreduce(*tracks_.front(), pending_);
  pending_.clear();
}

// MPI may go on with the messages under way, also inside MPI_Abort, and sends cannot be taken back:
// all memory they may lie in stays until the process ends.
void RingCommunicator::abort() noexcept {
  if (started_ == 0) return;
  stop_.request_stop();
  shared_.keep_all();
  own_.keep_all();
  for (const auto& track : tracks_) {
    track->thread.reset();
    static_cast<void>(track->between_hosts.release());
  }
  started_ = 0;
}

void RingCommunicator::allreduce(Track& track, std::span<const PendingSum> started) {
  if (!on_sum_ || started.empty()) return allreduce_pending(track, started);
  std::uint64_t bytes = 0;
  for (const PendingSum& one : started) bytes += one.count * sizeof(float);
  const auto begin = TimeSpan::Clock::now();
  allreduce_pending(track, started);
  on_sum_(track.number, {begin, TimeSpan::Clock::now(), bytes});
}

// Neighbours that lie in shared memory are summed in one meeting of the host's ranks.
void RingCommunicator::allreduce_pending(Track& track, std::span<const PendingSum> started) {
  const auto is_copied = [](const PendingSum& sum) { return sum.elsewhere.size() > 0; };
  while (!started.empty()) {
    const auto copied = std::ranges::find_if(started, is_copied);
    const auto in_place = static_cast<std::size_t>(copied - started.begin());
    if (in_place > 0)
      track.all_ranks.allreduce(started.first(in_place));
    else
      allreduce_copy(track, started.front());
    started = started.subspan(std::max<std::size_t>(1, in_place));
  }
}

void RingCommunicator::allreduce_copy(Track& track, const PendingSum& sum) {
  const std::span<float> copy(sum.replicas.of(here_.place.rank), sum.count);
  std::ranges::copy(sum.elsewhere.host(), copy.begin());
  track.all_ranks.allreduce(std::span(&sum, 1));
  std::ranges::copy(copy, sum.elsewhere.data());
}

}  // namespace

std::unique_ptr<Communicator> make_ring_communicator(const MpiSession& session,
                                                     const CommunicatorOptions& options) {
  const Topology here = topology_of(session.rank(), session.host_of(), options.ranks_a_host);
  return std::make_unique<RingCommunicator>(session, here, options);
}

}  // namespace ringtrain::allreduce
