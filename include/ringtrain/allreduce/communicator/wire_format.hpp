#pragma once
#include "ringtrain/allreduce/communicator/communicator.hpp"

namespace ringtrain::allreduce {

/// Has gradients summed by start_rounded_sum(), and what lies in front of them as it is: between
/// hosts of CPUs, where they need no buffer of their own for that (see HalfCommunicator).
class RoundingCommunicator final : public Communicator {
 public:
  /// `values`: what start_sum() gets parts of, a head of so many numbers first. `sums` outlives
  /// this object.
  RoundingCommunicator(Communicator& sums, Element element, View values, std::size_t head)
      : sums_(sums), element_(element), gradients_(values.data() + head) {}

  int rank() const override { return sums_.rank(); }
  int size() const override { return sums_.size(); }
  Memory& memory() override { return sums_.memory(); }
  void broadcast(View values, int root) override { sums_.broadcast(values, root); }
  void start_sum(View part) override;
  void finish() override { sums_.finish(); }
  bool overlaps() const override { return sums_.overlaps(); }
  void check() override { sums_.check(); }
  void close() override { sums_.close(); }
  void cancel() noexcept override { sums_.cancel(); }

 private:
  Communicator& sums_;
  const Element element_;
  const float* const gradients_;
};

/// Has gradients summed by start_compressed_sum(), and what lies in front of them as it is.
class CompressingCommunicator final : public Communicator {
 public:
  /// `values`: what start_sum() gets parts of, a head of so many numbers first. `sums` outlives
  /// this object.
  CompressingCommunicator(Communicator& sums, View values, std::size_t head)
      : sums_(sums), gradients_(values.data() + head) {}

  int rank() const override { return sums_.rank(); }
  int size() const override { return sums_.size(); }
  Memory& memory() override { return sums_.memory(); }
  void broadcast(View values, int root) override { sums_.broadcast(values, root); }
  void start_sum(View part) override;
  void finish() override { sums_.finish(); }
  void accept() override { sums_.accept(); }
  std::size_t kept_count() const override { return sums_.kept_count(); }
  void read_kept(std::span<float> values) const override { sums_.read_kept(values); }
  void write_kept(std::span<const float> values) override { sums_.write_kept(values); }
  bool overlaps() const override { return sums_.overlaps(); }
  void check() override { sums_.check(); }
  void close() override { sums_.close(); }
  void cancel() noexcept override { sums_.cancel(); }

 private:
  Communicator& sums_;
  const float* const gradients_;
};

}  // namespace ringtrain::allreduce
