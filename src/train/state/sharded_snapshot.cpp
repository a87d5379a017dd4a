#include "train/state/sharded_snapshot.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>

#include "ringtrain/base/error.hpp"
#include "ringtrain/host/network_interfaces.hpp"
#include "ringtrain/host/stream_copy.hpp"
#include "ringtrain/monitor/channel/rendezvous.hpp"

namespace ringtrain::train {

std::vector<View> copied_on_gpu(const TrainingState& state, int rank) {
  std::vector<View> views;
  for (std::size_t i = 0; i < state.buffers().size(); ++i) {
    const View buffer = state.buffers()[i];
    if (state.is_kept(i)) continue;
    if (!state.has_shard(i)) {
      if (rank == 0) views.push_back(buffer);
      continue;
    }
    if (rank != 0) {
      views.push_back(buffer);
      continue;
    }
    std::size_t place = 0;
    for (const Range& range : state.shards()->own()) {
      views.push_back(buffer.slice(place, range.count));
      place += range.count;
    }
  }
  return views;
}

ShardedSnapshotter::ShardedSnapshotter(const TrainingState& state, LastStep& last_step,
                                       const allreduce::MpiSession& session, bool saves,
                                       const std::string& interface, const GpuCopy& on_gpu)
    : state_(state), last_step_(last_step), session_(session), on_gpu_(on_gpu) {
  const std::vector<std::string> addresses = monitor::listening_addresses(session, interface);
  std::string text;
  if (session.rank() == 0 && saves) {
    const monitor::JobToken token = monitor::new_token();
    server_ = std::make_unique<ShardReceiver>(
        token, session.size(), addresses,
        [](const std::string& strangers) { offer_stderr("train: " + strangers + "\n"); });
    text = monitor::to_text({token, host::network_name(), server_->endpoints()});
  }
  text = session.broadcast(text);
  if (session.rank() == 0 || text.empty()) return;
  const monitor::Rendezvous rendezvous = monitor::rendezvous_from_text(text);
  sender_ = std::make_unique<ShardSender>(
      rendezvous.token, session.rank(), monitor::endpoints_from_here(rendezvous),
      [rank = session.rank()](const std::string& warning) {
        offer_stderr(fmt::format("train: rank {}: {}\n", rank, warning));
      });
  prepare_slice();
}

void ShardedSnapshotter::prepare_slice() {
  if (on_gpu_.copy == nullptr || state_.complete()) return;
  std::size_t size = 0;
  for (const View& view : copied_on_gpu(state_, session_.rank())) size += view.size();
  slice_.resize(size);
  const std::span<float> target(slice_);
  on_gpu_.copy->prepare({&target, 1});
}

// The GPU's copy may be under way to slice_.
ShardedSnapshotter::~ShardedSnapshotter() {
  sender_.reset();
  if (slice_.empty() || on_gpu_.copy == nullptr) return;
  try {
    on_gpu_.copy->release();
  } catch (const Error&) {  // of a GPU that is gone
  }
}

// As copied_on_gpu() of rank 0.
std::vector<std::span<float>> ShardedSnapshotter::targets_on_gpu(
    std::span<const std::span<float>> targets) const {
  std::vector<std::span<float>> others;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (state_.is_kept(i)) continue;
    if (!state_.has_shard(i)) {
      others.push_back(targets[i]);
      continue;
    }
    for (const Range& range : state_.shards()->own())
      others.push_back(targets[i].subspan(range.first, range.count));
  }
  return others;
}

void ShardedSnapshotter::prepare(std::span<const std::span<float>> targets) {
  if (on_gpu_.copy == nullptr || targets.empty()) return;
  std::vector<std::span<float>> whole;  // ranges may share pages, which are pinned once
  for (std::size_t i = 0; i < targets.size(); ++i)
    if (!state_.is_kept(i)) whole.push_back(targets[i]);
  on_gpu_.copy->prepare(whole);
}

void ShardedSnapshotter::start(std::span<const std::span<float>> targets) {
  ++save_;
  if (sender_) return send_own();
  if (targets.empty()) return;
  state_.refresh();
  expects(targets.size() == state_.buffers().size(), "Snapshotter: one target a buffer");
  copy_own(targets);
  server_->expect(save_, places(targets));
}

void ShardedSnapshotter::copy_own(std::span<const std::span<float>> targets) const {
  if (on_gpu_.copy != nullptr) on_gpu_.copy->start(targets_on_gpu(targets));
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (on_gpu_.copy != nullptr && !state_.is_kept(i)) continue;
    const std::span<const float> own = state_.buffers()[i].host();
    if (state_.has_shard(i))
      unpack(own, state_.shards()->own(), targets[i]);
    else
      host::stream_copy(own, targets[i]);
  }
}

std::vector<SlicePlaces> ShardedSnapshotter::places(
    std::span<const std::span<float>> targets) const {
  std::vector<SlicePlaces> all(static_cast<std::size_t>(session_.size()));
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    for (std::size_t i = 0; i < targets.size(); ++i)
      if (state_.has_shard(i))
        for (const Range& range : state_.shards()->ranges[rank])
          all[rank].push_back(targets[i].subspan(range.first, range.count));
  return all;
}

// The thread that sends waits for the copy, training does not.
void ShardedSnapshotter::send_own_from_gpu() {
  std::vector<std::span<float>> targets;
  std::size_t place = 0;
  for (const View& view : copied_on_gpu(state_, session_.rank())) {
    targets.push_back(std::span(slice_).subspan(place, view.size()));
    place += view.size();
  }
  if (slice_.empty()) return;
  on_gpu_.copy->start(targets);
  sender_->send(save_, slice_, [this] { return on_gpu_.copy->done(); });
}

void ShardedSnapshotter::send_own() {
  sender_->drop();
  if (on_gpu_.copy != nullptr && !state_.complete()) return send_own_from_gpu();
  state_.refresh();
  slice_.clear();
  for (std::size_t i = 0; i < state_.buffers().size(); ++i)
    if (const auto own = state_.buffers()[i].host(); state_.has_shard(i))
      slice_.insert(slice_.end(), own.begin(), own.end());
  if (!slice_.empty()) sender_->send(save_, slice_);
}

std::optional<Position> ShardedSnapshotter::copy_last(std::span<const std::span<float>> targets) {
  if (!state_.complete() || on_gpu_.copy != nullptr) return std::nullopt;
  const std::lock_guard held(last_step_.mutex);
  for (std::size_t i = 0; i < targets.size(); ++i)
    if (state_.has_shard(i) || i == *state_.complete())
      std::ranges::fill(targets[i], 0.0f);
    else
      std::ranges::copy(state_.buffers()[i].host(), targets[i].begin());
  return last_step_.position;
}

void ShardedSnapshotter::release() {
  const bool complete = done();
  if (server_) server_->forget();
  // A copy that goes on writes to targets that stay pinned until this object ends, and the next one
  // follows it on its stream.
  if (on_gpu_.copy != nullptr && complete) on_gpu_.copy->release();
}

std::string ShardedSnapshotter::lateness() {
  const std::vector<int> missing = server_->missing();
  if (missing.empty() && on_gpu_.copy != nullptr) return on_gpu_.copy->lateness();
  return fmt::format("the slices of {} from rank{} {} have not all come",
                     state_.complete() ? "what --compress left out" : "the optimizer's state",
                     missing.size() == 1 ? "" : "s", fmt::join(missing, ", "));
}

}  // namespace ringtrain::train
