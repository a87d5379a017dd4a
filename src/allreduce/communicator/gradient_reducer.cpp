#include "ringtrain/allreduce/communicator/gradient_reducer.hpp"

#include <algorithm>
#include <utility>

#include "ringtrain/allreduce/communicator/compression.hpp"

namespace ringtrain::allreduce {
namespace {

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

GradientReducer::GradientReducer(Communicator& communicator, View values, std::size_t bucket_bytes,
                                 std::size_t head, const SumOptions& gradients,
                                 const Buckets& buckets)
    : communicator_(communicator),
      values_(values),
      bucket_(std::max<std::size_t>(1, bucket_bytes / sizeof(float))),
      head_(head),
      gradients_(gradients),
      cut_(buckets),
      bucketed_(values.size()) {
  expects(!cut_.scattered || (values.size() - head) % cut_.unit == 0,
          "GradientReducer: scattered gradients end at a whole unit");
}

GradientReducer::~GradientReducer() {
  if (bucketed_ != values_.size()) communicator_.abort();
}

void GradientReducer::final_from(std::size_t first) {
  expects(first <= bucketed_, "GradientReducer: what was final stays final");
  if (fills_bucket(bound(first), bucketed_)) close_bucket(bound(first));
}

// What lies between `first` and there goes with the bucket before.
std::size_t GradientReducer::bound(std::size_t first) const {
  if (first <= head_) return first;
  const std::size_t units = (first - head_ + cut_.unit - 1) / cut_.unit;
  return std::min(head_ + units * cut_.unit, values_.size());
}

std::vector<std::uint64_t> GradientReducer::starts(std::span<const std::size_t> firsts) const {
  std::vector<std::uint64_t> starts;
  std::size_t end = values_.size();
  for (const std::size_t first : firsts) {
    if (!fills_bucket(bound(first), end)) continue;
    starts.push_back(first);
    end = bound(first);
  }
  return starts;
}

std::vector<std::uint64_t> GradientReducer::bounds(std::span<const std::size_t> firsts) const {
  std::vector<std::uint64_t> bounds{values_.size()};
  for (const std::size_t first : starts(firsts)) bounds.push_back(bound(first));
  if (bounds.back() != 0) bounds.push_back(0);
  std::ranges::reverse(bounds);
  return bounds;
}

void GradientReducer::finish() {
  close_bucket(0);
  if (late_)
    for (const Bucket& bucket : buckets_) start_sum(bucket.range, gradients_);
  communicator_.finish();
  bucketed_ = values_.size();
}

void GradientReducer::sum(const Range& bucket) {
  SumOptions options = gradients_;
  options.hook = nullptr;
  const bool scattered = std::exchange(cut_.scattered, false);
  const std::size_t before = std::exchange(bucketed_, bucket.first);  // unfinished from here on
  start_sum(bucket, options);
  communicator_.finish();
  cut_.scattered = scattered;
  bucketed_ = before;
}

void GradientReducer::accept() {
  if (CompressionState* const state = communicator_.compression_state()) state->accept();
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
  if (bucketed_ == values_.size()) buckets_.clear();
  buckets_.push_back({{first, bucketed_ - first}, std::chrono::steady_clock::now()});
  bucketed_ = first;
  if (!late_) start_sum(buckets_.back().range, gradients_);
}

// The bucket at the front has the head, which goes by itself where gradients lose something.
void GradientReducer::start_sum(const Range& bucket, SumOptions options) {
  if (cut_.scattered && bucket.first > 0)
    return communicator_.start_reduce_scatter(values_.slice(bucket));
  const bool exact = options.wire == Element::fp32 && !options.compressed;
  const std::size_t cut = exact ? bucket.first : std::clamp(head_, bucket.first, bucket.end());
  options.first = cut - std::min(cut, head_);
  if (cut < bucket.end())
    communicator_.start_allreduce(values_.slice(cut, bucket.end() - cut), options);
  if (cut > bucket.first)
    communicator_.start_allreduce(values_.slice(bucket.first, cut - bucket.first));
}

}  // namespace ringtrain::allreduce
