#pragma once
#include <deque>
#include <vector>

#include "ringtrain/allreduce/ring/ring.hpp"

namespace ringtrain::allreduce {

/// A link whose messages travel as 16-bit numbers over another one. What it delivers is what
/// as_received() makes of what was sent, to the bit, however often it is passed on.
class HalfLink final : public RingLink {
 public:
  /// `link` outlives this object; `most_unsent`: messages that may be under way to the right, more
  /// than twice the window of the ring.
  HalfLink(RingLink& link, Element element, std::size_t most_unsent);
  int rank() const override { return link_.rank(); }
  int size() const override { return link_.size(); }
  Ticket receive(std::span<float> in) override;
  /// Unlike other links' it takes a copy: `out` may be written at once. Waits while too many are
  /// under way.
  Ticket send(std::span<const float> out) override;
  void wait_received(Ticket last) override;
  void wait_sent(Ticket last) override;
  void as_received(std::span<float> values) override;

 private:
  // The scale as it is, then the numbers.
  using Packed = std::vector<float>;
  struct Message {
    Ticket ticket = 0;
    Packed packed;
    std::span<float> in;  // of a message to the left: where its numbers go
  };

  Packed room_for(std::size_t count);
  void pack(std::span<const float> values, Packed& packed) const;
  void unpack(const Packed& packed, std::span<float> values) const;

  RingLink& link_;
  const Element element_;
  const std::size_t most_unsent_;
  std::deque<Message> incoming_, outgoing_;
  std::vector<Packed> free_;
};

}  // namespace ringtrain::allreduce
