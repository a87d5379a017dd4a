#include "ringtrain/allreduce/ring/ring.hpp"

#include <algorithm>

#include "allreduce/ring/half_link.hpp"
#include "allreduce/ring/sum_kernels.hpp"

namespace ringtrain::allreduce {
namespace {

constexpr std::size_t line = 16;  // floats of a cache line

std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

// The messages of one sum, as one rank sends them: its own part, then each part to its left as it
// comes in. So what it receives as message k it sends as message k + segments.
struct Messages {
  std::span<float> data;
  std::size_t rank, ranks;
  std::size_t segments;  // messages a part

  std::size_t received() const { return 2 * sums(); }
  /// Received messages below this are running sums, the rest final values.
  std::size_t sums() const { return (ranks - 1) * segments; }
  std::span<float> operator[](std::size_t k) const {
    const std::size_t steps = k / segments;
    const Range part = part_of(data.size(), (rank + 2 * ranks - steps) % ranks, ranks);
    const Range piece = part_of(part.count, k % segments, segments);
    return data.subspan(part.first + piece.first, piece.count);
  }
};

// Eight segments a part: then all but an eighth of the time to fill the pipeline is hidden. Fewer
// and larger ones cost less work.
std::size_t segments_of(std::size_t part, const RingTuning& tuning) {
  const std::size_t segment = std::clamp(part / 8, tuning.smallest_segment, tuning.largest_segment);
  return std::max<std::size_t>(1, divide_up(part, segment));
}

}  // namespace

Range part_of(std::size_t count, std::size_t k, std::size_t n) {
  const std::size_t lines = divide_up(count, line);
  const auto cut = [&](std::size_t i) { return std::min(count, lines * i / n * line); };
  return {cut(k), cut(k + 1) - cut(k)};
}

Ring::Ring(RingLink& link, RingTuning tuning) : link_(link), tuning_(tuning) {
  expects(tuning.window >= 1, "Ring: a window of at least one receive");
  expects(tuning.smallest_segment >= 1 && tuning.smallest_segment <= tuning.largest_segment,
          "Ring: 1 <= smallest segment <= largest segment");
}

Ring::~Ring() = default;

// A part goes on to the right until it has been everywhere: it is complete on its left neighbour.
Range Ring::own_part(std::size_t count, int rank, int ranks) {
  return part_of(count, static_cast<std::size_t>((rank + 1) % ranks),
                 static_cast<std::size_t>(ranks));
}

// Messages of 16-bit numbers have twice as many, and so as many bytes.
void Ring::allreduce(std::span<float> data, Element wire, const ReduceHook* hook) {
  RingTuning tuning = tuning_;
  tuning.smallest_segment *= sizeof(float) / bytes_of(wire);
  tuning.largest_segment *= sizeof(float) / bytes_of(wire);
  allreduce_through(link_through(wire), data, tuning, hook);
}

// Each rank sends on what it received last, first its own.
void Ring::gather(std::span<float> blocks) {
  const auto n = static_cast<std::size_t>(size()), r = static_cast<std::size_t>(rank());
  const std::size_t count = blocks.size() / n;
  const auto block = [&](std::size_t steps) {
    return blocks.subspan((r + n - steps) % n * count, count);
  };
  for (std::size_t step = 1; step < n && count > 0; ++step) {
    const auto received = link_.receive(block(step)), sent = link_.send(block(step - 1));
    link_.wait_received(received);
    link_.wait_sent(sent);
  }
}

RingLink& Ring::link_through(Element wire) {
  if (wire == Element::fp32) return link_;
  std::unique_ptr<RingLink>& narrow = wire == Element::fp16 ? fp16_ : bf16_;
  if (!narrow) narrow = std::make_unique<HalfLink>(link_, wire, 2 * tuning_.window + 2);
  return *narrow;
}

void Ring::allreduce_through(RingLink& link, std::span<float> data, const RingTuning& tuning,
                             const ReduceHook* hook) {
  const auto n = static_cast<std::size_t>(link.size());
  if (n == 1 || data.empty()) return;
  const std::size_t part = divide_up(divide_up(data.size(), line), n) * line;
  const Messages message{data, static_cast<std::size_t>(link.rank()), n, segments_of(part, tuning)};
  const std::size_t slot = divide_up(part / line, message.segments) * line;
  inbox_.resize(std::max(inbox_.size(), slot * tuning.window));

  const auto arrival = [&](std::size_t k) {
    const std::span<float> place = message[k + message.segments];
    if (k >= message.sums()) return place;
    return std::span(inbox_).subspan(k % tuning.window * slot, place.size());
  };
  RingLink::Ticket first_sent = 0, first_received = 0;
  std::size_t posted = 0, sent = 0;
  const auto post_up_to = [&](std::size_t end) {
    for (; posted < end; ++posted) {
      // A final value lands where a running sum was sent from, one turn of the ring ago.
      if (posted >= message.sums()) link.wait_sent(first_sent + posted - message.sums());
      const auto ticket = link.receive(arrival(posted));
      if (posted == 0) first_received = ticket;
    }
  };
  const auto send_up_to = [&](std::size_t end) {
    for (; sent < end; ++sent) {
      const auto ticket = link.send(message[sent]);
      if (sent == 0) first_sent = ticket;
    }
  };

  const std::size_t window = tuning.window, all = message.received();
  post_up_to(std::min(window, message.sums()));
  send_up_to(std::min(window, message.segments));
  for (std::size_t k = 0; k < all; ++k) {
    post_up_to(std::min({k + window, k + n * message.segments, all}));
    link.wait_received(first_received + k);
    if (k < message.sums()) {
      const std::span<float> running = message[k + message.segments];
      add(running, arrival(k));
      if (k + message.segments >= message.sums()) {  // it is complete
        if (hook != nullptr) (*hook)({running.data(), running.size()});
        link.as_received(running);
      }
    }
    // Message k may now go on; but a neighbour that is slow is not flooded.
    send_up_to(std::min({k + 1 + window, k + 1 + message.segments, all}));
  }
  link.wait_sent(first_sent + all - 1);
}

std::vector<float> ring_order_sum(std::span<const std::vector<float>> ranks) {
  const std::size_t n = ranks.size();
  std::vector<float> sum(ranks.front().size());
  for (std::size_t p = 0; p < n; ++p) {
    const Range part = part_of(sum.size(), p, n);
    for (std::size_t i = part.first; i < part.end(); ++i) {
      sum[i] = ranks[p][i];
      for (std::size_t step = 1; step < n; ++step) sum[i] += ranks[(p + step) % n][i];
    }
  }
  return sum;
}

}  // namespace ringtrain::allreduce
