#include "allreduce/compression/compressed_ring.hpp"

#include <algorithm>

#include "ringtrain/base/error.hpp"

namespace ringtrain::allreduce {
namespace {

// Each goes to the lane that has least so far.
std::vector<GradientMatrix> dealt(std::span<const GradientMatrix> matrices, int lane, int lanes) {
  std::vector<std::size_t> loads(static_cast<std::size_t>(lanes));
  std::vector<GradientMatrix> mine;
  for (const GradientMatrix& matrix : matrices) {
    const auto least = std::ranges::min_element(loads);
    *least += matrix.count();
    if (least - loads.begin() == lane) mine.push_back(matrix);
  }
  return mine;
}

bool overlap(const Range& a, const Range& b) { return a.first < b.end() && b.first < a.end(); }

}  // namespace

CompressedRing::CompressedRing(const CompressedGradients& gradients, int lane, int lanes,
                               Ring& ring)
    : matrices_(dealt(gradients.matrices, lane, lanes)),
      ring_(ring),
      compressor_(gradients.how.kind == Compression::Kind::powersgd
                      ? make_powersgd(gradients.how, matrices_, gradients.threads)
                      : make_topk(gradients.how, matrices_, gradients.threads)) {}

std::vector<Range> CompressedRing::slices(Range part) const {
  std::vector<Range> slices;
  for (const GradientMatrix& matrix : matrices_) {
    if (!overlap(matrix.range(), part)) continue;
    expects(matrix.first >= part.first && matrix.range().end() <= part.end(),
            "CompressedLane: matrices are summed whole");
    slices.push_back({matrix.first - part.first, matrix.count()});
  }
  return slices;
}

void CompressedRing::allreduce(Range part, float* values) {
  std::vector<Piece> pieces;
  for (std::size_t m = 0; m < matrices_.size(); ++m)
    if (overlap(matrices_[m].range(), part))
      pieces.push_back({m, values + (matrices_[m].first - part.first)});
  compressor_->allreduce(pieces, ring_);
}

}  // namespace ringtrain::allreduce
