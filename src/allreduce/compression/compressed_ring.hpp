#pragma once
#include <memory>
#include <vector>

#include "allreduce/compression/compressor.hpp"

namespace ringtrain::allreduce {

/// One lane's sums of compressed gradients between hosts: it sums whole matrices, which are dealt
/// out to the lanes so that each has about as much.
class CompressedRing {
 public:
  /// `ring` joins this lane of all hosts and outlives this object.
  CompressedRing(const CompressedGradients& gradients, int lane, int lanes, Ring& ring);
  /// Which parts of gradients `part` this lane sums, counted from its first. `part` cuts no matrix.
  std::vector<Range> slices(Range part) const;
  /// Sums these slices of `part`, whose gradients are at `values`, over the hosts. Collective.
  void allreduce(Range part, float* values);
  /// What was left out of this lane's matrices.
  CompressionState& state() { return *compressor_; }

 private:
  std::vector<GradientMatrix> matrices_;
  Ring& ring_;
  std::unique_ptr<Compressor> compressor_;
};

}  // namespace ringtrain::allreduce
