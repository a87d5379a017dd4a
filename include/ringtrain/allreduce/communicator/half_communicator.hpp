#pragma once
#include "ringtrain/allreduce/communicator/communicator.hpp"

namespace ringtrain::allreduce {

/// Sums gradients in 16 bits: half the bytes between the ranks. They are rounded into a buffer of
/// their own, summed there, and widened in finish(). What lies in front of them stays fp32.
class HalfCommunicator final : public Communicator {
 public:
  /// `values`: what start_sum() gets all of, in parts, before each finish(). The first `head` stay
  /// as they are; the rest travels as `element`, times the ranks and averaged: the sum. All outlive
  /// this object. Collective where the memory of `sums` is.
  HalfCommunicator(Communicator& sums, Rounding& rounding, Element element, View values,
                   std::size_t head);

  int rank() const override { return sums_.rank(); }
  int size() const override { return sums_.size(); }
  Memory& memory() override { return sums_.memory(); }
  void broadcast(View values, int root) override { sums_.broadcast(values, root); }
  void start_sum(View part) override;
  void start_average(NarrowView gradients) override { sums_.start_average(gradients); }
  void finish() override;
  bool overlaps() const override { return sums_.overlaps(); }
  void check() override { sums_.check(); }
  void close() override { sums_.close(); }
  void cancel() noexcept override { sums_.cancel(); }

 private:
  void start_narrow_sum(Range gradients);

  Communicator& sums_;
  Rounding& rounding_;
  const View head_, gradients_;
  const Buffer memory_;
  const NarrowView rounded_;  // one number a gradient
};

}  // namespace ringtrain::allreduce
