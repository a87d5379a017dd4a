#include "allreduce/ring/half_link.hpp"

#include <utility>

#include "allreduce/ring/half_codec.hpp"

namespace ringtrain::allreduce {
namespace {

std::size_t packed_size(std::size_t count) { return 1 + (count + 1) / 2; }

}  // namespace

HalfLink::HalfLink(RingLink& link, Element element, std::size_t most_unsent)
    : link_(link), element_(element), most_unsent_(most_unsent) {
  expects(bytes_of(element) == 2, "HalfLink: 16-bit numbers");
}

RingLink::Ticket HalfLink::receive(std::span<float> in) {
  Message& message = incoming_.emplace_back(Message{0, room_for(in.size()), in});
  return message.ticket = link_.receive(message.packed);
}

RingLink::Ticket HalfLink::send(std::span<const float> out) {
  if (outgoing_.size() == most_unsent_) wait_sent(outgoing_.front().ticket);
  Message& message = outgoing_.emplace_back(Message{0, room_for(out.size()), {}});
  pack(out, message.packed);
  return message.ticket = link_.send(message.packed);
}

void HalfLink::wait_received(Ticket last) {
  link_.wait_received(last);
  for (; !incoming_.empty() && incoming_.front().ticket <= last; incoming_.pop_front()) {
    Message& message = incoming_.front();
    unpack(message.packed, message.in);
    free_.push_back(std::move(message.packed));
  }
}

void HalfLink::wait_sent(Ticket last) {
  link_.wait_sent(last);
  for (; !outgoing_.empty() && outgoing_.front().ticket <= last; outgoing_.pop_front())
    free_.push_back(std::move(outgoing_.front().packed));
}

void HalfLink::as_received(std::span<float> values) {
  Packed packed = room_for(values.size());
  pack(values, packed);
  unpack(packed, values);
  free_.push_back(std::move(packed));
}

HalfLink::Packed HalfLink::room_for(std::size_t count) {
  Packed packed;
  if (!free_.empty()) {
    packed = std::move(free_.back());
    free_.pop_back();
  }
  packed.resize(packed_size(count));
  return packed;
}

void HalfLink::pack(std::span<const float> values, Packed& packed) const {
  packed.front() = scale_for(element_, values);
  narrow(element_, packed.front(), values, reinterpret_cast<std::uint16_t*>(packed.data() + 1));
}

void HalfLink::unpack(const Packed& packed, std::span<float> values) const {
  widen(element_, packed.front(), reinterpret_cast<const std::uint16_t*>(packed.data() + 1),
        values);
}

}  // namespace ringtrain::allreduce
