#include "ringtrain/allreduce/hierarchical/tune_ring.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>

#include "allreduce/hierarchical/hierarchical_allreduce.hpp"
#include "allreduce/hierarchical/mpi_link.hpp"
#include "ringtrain/base/statistics.hpp"

namespace ringtrain::allreduce {
namespace {

constexpr std::size_t kib = 256;  // floats
constexpr std::size_t most_floats = 512 * kib;
constexpr std::size_t block = 31 * kib;
constexpr std::size_t streamed = 64;  // blocks
constexpr double most_s = 1;          // then there is no further round
constexpr std::size_t most_rounds = 3;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// What this rank gives to the sums between hosts, as HierarchicalAllreduce has it: the ranks of a
// host share its link.
class OwnLane {
 public:
  OwnLane(const Topology& here, std::size_t floats) : place_(here.place), floats_(floats) {
    const bool on_a_lane = place_.rank < place_.lanes;
    const MPI_Comm lane =
        mpi::split(MPI_COMM_WORLD, on_a_lane ? place_.rank : MPI_UNDEFINED, here.host);
    if (on_a_lane) link_ = std::make_unique<MpiLink>(lane, std::stop_token(), 0, waiting_);
  }
  void sum(const RingTuning& tuning) {
    if (link_) Ring(*link_, tuning).allreduce(first(part(floats_)));
  }
  void sum_of_nothing() {
    if (link_) Ring(*link_).allreduce(first(1));
  }
  // All hosts send to the next at the same time. Returns seconds a float, of the second half:
  // TCP has opened its window by then.
  double stream() {
    if (!link_) return 0;
    const auto half = std::max<std::size_t>(1, streamed / 2 / std::size_t(place_.lanes));
    const auto begin = std::chrono::steady_clock::now();
    std::vector<RingLink::Ticket> received;
    RingLink::Ticket sent = 0;
    for (std::size_t at = 0; at < 2 * half; ++at) {
      received.push_back(link_->receive(std::span(incoming_).subspan(at * block, block)));
      sent = link_->send(first(block));
    }
    link_->wait_received(received[half - 1]);
    const double first_s = seconds_since(begin);
    link_->wait_received(received.back());
    const double all_s = seconds_since(begin);
    link_->wait_sent(sent);
    // Both may have come before the first look.
    return std::max(all_s - first_s, all_s / 8) / double(half * block) / place_.lanes;
  }

 private:
  std::size_t part(std::size_t all) const {
    return part_of(all, std::size_t(place_.rank), std::size_t(place_.lanes)).count;
  }
  std::span<float> first(std::size_t count) { return std::span(values_).first(count); }

  const HostPlace place_;
  const std::size_t floats_;
  std::vector<float> values_ = std::vector<float>(most_floats);
  std::vector<float> incoming_ = std::vector<float>(streamed * block);
  std::atomic<int> waiting_{0};
  std::unique_ptr<MpiLink> link_;
};

std::vector<RingTrial> candidates() {
  std::vector<RingTrial> trials{{RingTuning(), 0}};
  for (const std::size_t floats : {8 * kib, 31 * kib, 62 * kib})
    trials.push_back({{.largest_segment = floats, .smallest_segment = floats}, 0});
  return trials;
}

template <class Work>
double seconds_of(Work work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return seconds_since(begin);
}

// What a round measures, in this order; then each trial.
enum Column : std::size_t { spent_s, around_s, float_s, trials_s };

// Each follows the one before at once, so that a late start of a rank is no part of it.
std::vector<double> round_of(OwnLane& lane) {
  std::vector<double> row(trials_s);
  row[spent_s] = seconds_of([&] {
    lane.sum_of_nothing();
    row[around_s] = seconds_of([&] { lane.sum_of_nothing(); });
    row[float_s] = lane.stream();
    for (const RingTrial& trial : candidates())
      row.push_back(seconds_of([&] { lane.sum(trial.tuning); }));
  });
  return row;
}

using Rounds = std::vector<std::vector<double>>;

std::vector<double> column(const Rounds& rounds, std::size_t which) {
  std::vector<double> values;
  for (const auto& row : rounds) values.push_back(row[which]);
  std::ranges::sort(values);
  return values;
}

// What else the machines do only makes sums slower; a stream can seem faster than it is.
RingTable table_of(int hosts, std::size_t floats, const Rounds& rounds) {
  const std::vector<double> streams = column(rounds, float_s);
  RingTable table{.hosts = hosts,
                  .hop_s = column(rounds, around_s).front() / (2 * (hosts - 1)),
                  .bytes_a_second = sizeof(float) / streams[streams.size() / 2],
                  .bytes = double(floats * sizeof(float)),
                  .trials = candidates()};
  for (std::size_t t = 0; t < table.trials.size(); ++t)
    table.trials[t].seconds = column(rounds, trials_s + t).front();
  return table;
}

}  // namespace

// A place in the ring of hosts; of a host, its first rank has it.
class HostLinks::Lane {
 public:
  explicit Lane(const MpiSession& session)
      : here_(topology_of(session.rank(), session.host_of(), 0)) {
    const bool first = here_.place.rank == 0;
    const MPI_Comm ranks = mpi::split(MPI_COMM_WORLD, first ? 0 : MPI_UNDEFINED, here_.host);
    if (!first) return;
    values_.resize(window * block);
    link_ = std::make_unique<MpiLink>(ranks, std::stop_token(), 0, waiting_);
  }
  std::size_t hosts() const { return static_cast<std::size_t>(here_.hosts); }
  /// The link into this host; none where another rank takes part.
  std::optional<std::size_t> incoming() const {
    if (!link_) return std::nullopt;
    return (own() + hosts() - 1) % hosts();
  }
  std::optional<std::size_t> outgoing() const {
    return link_ ? std::optional(own()) : std::nullopt;
  }
  void send(std::size_t blocks) {
    for (std::size_t i = 0; i < blocks; ++i) {
      const RingLink::Ticket sent = link_->send(std::span(values_).first(block));
      link_->wait_sent(i + 1 == blocks ? sent : sent - std::min<RingLink::Ticket>(sent, window));
    }
  }
  /// Returns seconds a block, from the first that came on.
  double receive(std::size_t blocks) {
    const auto begin = std::chrono::steady_clock::now();
    double first_s = 0;
    RingLink::Ticket first = 0;
    for (std::size_t i = 0; i < blocks + window; ++i) {
      if (i >= window) link_->wait_received(first + i - window);
      if (i == window) first_s = seconds_since(begin);
      if (i >= blocks) continue;
      const auto ticket = link_->receive(std::span(values_).subspan(i % window * block, block));
      if (i == 0) first = ticket;
    }
    const double all_s = seconds_since(begin);
    // All may have come before the first look.
    return std::max(all_s - first_s, all_s / 8) / double(blocks - 1);
  }

 private:
  std::size_t own() const { return static_cast<std::size_t>(here_.host); }

  static constexpr std::size_t window = 64;  // blocks under way

  const Topology here_;
  std::vector<float> values_;
  std::atomic<int> waiting_{0};
  std::unique_ptr<MpiLink> link_;
};

HostLinks::HostLinks(const MpiSession& session)
    : session_(session), lane_(std::make_unique<Lane>(session)) {}

HostLinks::~HostLinks() = default;

std::size_t HostLinks::turn_of(std::size_t link, std::size_t links) {
  return links % 2 == 1 && link + 1 == links ? 2 : link % 2;
}

std::vector<double> HostLinks::time_blocks(const std::vector<std::size_t>& blocks) {
  const std::size_t links = blocks.size();
  std::vector<double> block_s(links);
  for (std::size_t turn = 0; turn < turns; ++turn) {
    const auto in_turn = [&](std::optional<std::size_t> link) {
      return link && blocks[*link] > 0 && turn_of(*link, links) == turn;
    };
    if (const auto out = lane_->outgoing(); in_turn(out)) lane_->send(blocks[*out]);
    if (const auto in = lane_->incoming(); in_turn(in)) block_s[*in] = lane_->receive(blocks[*in]);
    session_.barrier_asleep();
  }
  session_.maximum(block_s);
  return block_s;
}

// Twice as many blocks until they take long enough on that link: TCP has opened its window by then.
std::vector<double> HostLinks::measure() {
  constexpr double enough_s = 0.02;
  constexpr std::size_t least_blocks = 16, most_blocks = 8192, samples = 3;
  const std::size_t links = lane_->hosts();
  std::vector<std::size_t> enough(links);
  std::vector<std::vector<double>> block_s(links);
  for (std::size_t blocks = least_blocks; blocks <= most_blocks; blocks *= 2) {
    std::vector<std::size_t> asked(links);
    for (std::size_t l = 0; l < links; ++l) asked[l] = enough[l] > 0 ? 0 : blocks;
    if (std::ranges::max(asked) == 0) break;
    const std::vector<double> now = time_blocks(asked);
    for (std::size_t l = 0; l < links; ++l) {
      if (asked[l] == 0) continue;
      if (now[l] * double(blocks) < enough_s && 2 * blocks <= most_blocks) continue;
      enough[l] = blocks;
      block_s[l].push_back(now[l]);
    }
  }
  while (block_s.front().size() < samples) {
    const std::vector<double> now = time_blocks(enough);
    for (std::size_t l = 0; l < links; ++l) block_s[l].push_back(now[l]);
  }
  std::vector<double> speeds;
  for (const auto& seconds : block_s)
    speeds.push_back(sizeof(float) * double(block) / median_of(seconds));
  return speeds;
}

RingTable measure_ring(const MpiSession& session, double bucket_bytes) {
  const Topology here = topology_of(session.rank(), session.host_of(), 0);
  if (here.hosts == 1) return {};
  const MpiSession::Wait waiting = session.wait();
  const auto floats =
      static_cast<std::size_t>(std::clamp(bucket_bytes / sizeof(float), 1.0, double(most_floats)));
  OwnLane lane(here, floats);
  lane.stream();  // connects, and opens TCP's windows
  Rounds rounds;
  for (double spent = 0; spent < most_s && rounds.size() < most_rounds;
       spent += rounds.back()[spent_s]) {
    rounds.push_back(round_of(lane));
    session.broadcast(std::as_writable_bytes(std::span(rounds.back())), 0);
  }
  return table_of(here.hosts, floats, rounds);
}

}  // namespace ringtrain::allreduce
