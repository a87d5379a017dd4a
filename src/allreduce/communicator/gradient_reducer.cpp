#include "ringtrain/allreduce/communicator/gradient_reducer.hpp"

#include <algorithm>

namespace ringtrain::allreduce {
namespace {

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

GradientReducer::GradientReducer(Communicator& communicator, View gradients,
                                 std::size_t bucket_bytes, const ReduceHook* replace)
    : communicator_(communicator),
      gradients_(gradients),
      bucket_(std::max<std::size_t>(1, bucket_bytes / sizeof(float))),
      replace_(replace),
      bucketed_(gradients.size()) {}

GradientReducer::~GradientReducer() {
  if (bucketed_ != gradients_.size()) communicator_.cancel();
}

void GradientReducer::final_from(std::size_t first) {
  expects(first <= bucketed_, "GradientReducer: what was final stays final");
  if (fills_bucket(first, bucketed_)) close_bucket(first);
}

std::vector<std::uint64_t> GradientReducer::bounds(std::span<const std::size_t> firsts) const {
  std::vector<std::uint64_t> bounds{gradients_.size()};
  for (const std::size_t first : firsts)
    if (fills_bucket(first, bounds.back())) bounds.push_back(first);
  if (bounds.back() != 0) bounds.push_back(0);
  std::ranges::reverse(bounds);
  return bounds;
}

void GradientReducer::finish() {
  close_bucket(0);
  if (late_)
    for (const Bucket& bucket : buckets_) start_sum(bucket);
  communicator_.finish();
  bucketed_ = gradients_.size();
}

// The last one is full in finish().
std::vector<double> GradientReducer::leads_s() const {
  std::vector<double> leads;
  for (const Bucket& bucket : buckets_)
    leads.push_back(seconds_between(bucket.full, buckets_.back().full));
  return leads;
}

double GradientReducer::first_lead_s() const {
  if (late_ || buckets_.empty()) return 0;
  return seconds_between(buckets_.front().full, buckets_.back().full);
}

void GradientReducer::close_bucket(std::size_t first) {
  if (first == bucketed_) return;
  if (bucketed_ == gradients_.size()) buckets_.clear();
  buckets_.push_back({first, bucketed_, std::chrono::steady_clock::now()});
  bucketed_ = first;
  if (!late_) start_sum(buckets_.back());
}

void GradientReducer::start_sum(const Bucket& bucket) {
  const View sum = gradients_.slice(bucket.first, bucket.end - bucket.first);
  if (replace_ != nullptr)
    communicator_.start_replaced_sum(sum, *replace_);
  else
    communicator_.start_sum(sum);
}

}  // namespace ringtrain::allreduce
