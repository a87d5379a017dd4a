#include "ringtrain/allreduce/gradient_reducer.hpp"

#include <algorithm>

namespace ringtrain {
namespace {

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

GradientReducer::GradientReducer(Communicator& communicator, View gradients,
                                 std::size_t bucket_bytes, const Replace* replace)
    : communicator_(communicator),
      gradients_(gradients),
      bucket_(std::max<std::size_t>(1, bucket_bytes / sizeof(float))),
      replace_(replace),
      started_(gradients.size()) {}

GradientReducer::~GradientReducer() {
  if (started_ != gradients_.size()) communicator_.cancel();
}

void GradientReducer::final_from(std::size_t first) {
  expects(first <= started_, "GradientReducer: what was final stays final");
  if (fills_bucket(first, started_)) start_sum_from(first);
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
  start_sum_from(0);
  communicator_.finish();
  started_ = gradients_.size();
}

// The last sum is started by finish().
std::vector<double> GradientReducer::leads_s() const {
  std::vector<double> leads;
  for (const auto start : starts_) leads.push_back(seconds_between(start, starts_.back()));
  return leads;
}

double GradientReducer::first_lead_s() const {
  return starts_.empty() ? 0 : seconds_between(starts_.front(), starts_.back());
}

void GradientReducer::start_sum_from(std::size_t first) {
  if (first == started_) return;
  if (started_ == gradients_.size()) starts_.clear();
  starts_.push_back(std::chrono::steady_clock::now());
  start_sum(gradients_.slice(first, started_ - first));
  started_ = first;
}

void GradientReducer::start_sum(View bucket) {
  if (replace_ != nullptr)
    communicator_.start_replaced_sum(bucket, *replace_);
  else
    communicator_.start_sum(bucket);
}

}  // namespace ringtrain
