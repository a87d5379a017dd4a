#include "ringtrain/io/loader/loader.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "io/loader/batch_filler.hpp"

namespace ringtrain::io {
namespace {

constexpr std::size_t events_kept = 10;

void check(const LoaderOptions& o) {
  expects(o.threads >= 1 && o.slots >= 0, "a loader has at least one thread");
  expects(
      o.share.first >= 0 && o.share.count >= 1 && o.share.first + o.share.count <= o.global_batch,
      "a rank's share is a part of the global batch and not empty");
  const Extent output = o.augmentation.output, base = o.augmentation.natural();
  const auto* crop = o.augmentation.find<RandomCrop>();
  const int padding = crop != nullptr ? 2 * crop->padding : 0;
  expects(output.height >= 1 && output.width >= 1, "images have at least one pixel");
  expects(base.height + padding >= output.height && base.width + padding >= output.width,
          "the scaled and padded image covers the output");
}

std::uint64_t batches_of(const Dataset& dataset, const LoaderOptions& options) {
  if (options.mode == Split::training) return options.most_batches;
  const auto global_batch = static_cast<std::uint64_t>(options.global_batch);
  return (dataset.size() + global_batch - 1) / global_batch;
}

Sampler sampler_of(const Dataset& dataset, const LoaderOptions& options) {
  if (!options.balance) return {dataset.size(), options.seed, options.augmentation.repeats};
  std::vector<int> labels(dataset.size());
  for (std::uint64_t i = 0; i < labels.size(); ++i) labels[i] = dataset.label(i);
  return Sampler::balanced(labels, options.seed);
}

}  // namespace

BatchShard share_of(int global_batch, int rank, int ranks) {
  const int each = global_batch / ranks, more = global_batch % ranks;
  return {rank * each + std::min(rank, more), each + (rank < more ? 1 : 0)};
}

// Batch `n` is made in slot n % slots. A thread claims the next number once the slot's last batch
// has been recycled, so at most `slots` batches exist and they leave in order.
class Loader::Impl {
 public:
  Impl(const Dataset& dataset, const LoaderOptions& options);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  // all at once: stopped one by one as they are joined, each would finish another sample first
  ~Impl() {
    retries_.end();
    for (std::jthread& thread : threads_) thread.request_stop();
  }

  const Batch* next();
  std::uint64_t batches() const { return batches_; }
  const std::set<std::uint64_t>& unreadable() const { return unreadable_; }
  const std::vector<std::uint64_t>& new_unreadable() const { return new_unreadable_; }
  std::vector<std::uint64_t> take_unreadable() { return std::exchange(new_unreadable_, {}); }
  void add_unreadable(std::span<const std::uint64_t> samples) {
    unreadable_.insert(samples.begin(), samples.end());
  }
  std::vector<std::string> take_events() { return std::exchange(events_, {}); }
  const std::string& last_event() const { return last_event_; }
  std::string why_unreadable(std::uint64_t sample) const;

 private:
  struct Slot {
    Batch batch;
    BatchReport report;
    std::exception_ptr failure;
    bool ready = false;  // guarded by mutex_; the rest is a loader thread's until then
  };

  void work(const std::stop_token& stop, int thread, BatchFiller& filler);
  std::optional<std::uint64_t> claim(const std::stop_token& stop);
  void make(std::uint64_t number, const std::stop_token& stop, BatchFiller& filler);
  void recycle();
  void wait_for(const Slot& slot);
  void account(const BatchReport& report);
  Slot& slot_of(std::uint64_t number) { return slots_[number % slots_.size()]; }

  const std::uint64_t batches_;
  const int places_;
  const Sampler sampler_;
  const std::function<void(int, const TimeSpan&)> on_batch_;
  const std::function<void()> on_retry_;
  ReadRetries retries_;

  std::mutex mutex_;
  std::condition_variable_any recycled_;
  std::condition_variable filled_;
  std::uint64_t claimed_ = 0;   // batches begun; guarded by mutex_
  std::uint64_t returned_ = 0;  // batches the trainer is done with; guarded by mutex_
  std::vector<Slot> slots_;

  std::uint64_t delivered_ = 0;
  std::set<std::uint64_t> unreadable_;
  std::vector<std::uint64_t> new_unreadable_;
  std::vector<std::string> events_;
  std::string last_event_;

  std::deque<BatchFiller> fillers_;
  std::vector<std::jthread> threads_;  // last: they stop and end before what they use
};

Loader::Impl::Impl(const Dataset& dataset, const LoaderOptions& options)
    : batches_(batches_of(dataset, options)),
      places_(options.share.count),
      sampler_(sampler_of(dataset, options)),
      on_batch_(options.on_batch),
      on_retry_(options.on_retry),
      retries_(options.report ? options.report : ReadRetries::report_on_stderr),
      slots_(options.slots > 0 ? options.slots : options.threads + 2) {
  for (int t = 0; t < options.threads; ++t) {
    BatchFiller& filler = fillers_.emplace_back(dataset, sampler_, options, retries_);
    threads_.emplace_back(
        [this, t, &filler](const std::stop_token& stop) { work(stop, t, filler); });
  }
}

void Loader::Impl::work(const std::stop_token& stop, int thread, BatchFiller& filler) {
  while (const auto number = claim(stop)) {
    const auto begin = TimeSpan::Clock::now();
    make(*number, stop, filler);
    if (on_batch_) on_batch_(thread, {begin, TimeSpan::Clock::now(), *number});
  }
}

std::optional<std::uint64_t> Loader::Impl::claim(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto may_begin = [&] {
    return claimed_ < batches_ && claimed_ - returned_ < slots_.size();
  };
  if (!recycled_.wait(lock, stop, may_begin)) return std::nullopt;
  return claimed_++;
}

void Loader::Impl::make(std::uint64_t number, const std::stop_token& stop, BatchFiller& filler) {
  Slot& slot = slot_of(number);
  try {
    slot.report = {};
    filler.shape(slot.batch);
    for (int place = 0; place < places_ && !stop.stop_requested(); ++place)
      filler.fill(number, place, slot.batch, slot.report);
  } catch (...) {
    slot.failure = std::current_exception();
  }
  const std::scoped_lock lock(mutex_);
  slot.ready = true;
  filled_.notify_one();
}

const Batch* Loader::Impl::next() {
  recycle();
  if (delivered_ == batches_) return nullptr;
  Slot& slot = slot_of(delivered_);
  wait_for(slot);
  if (slot.failure) std::rethrow_exception(slot.failure);
  ++delivered_;
  account(slot.report);
  return &slot.batch;
}

void Loader::Impl::recycle() {
  const std::scoped_lock lock(mutex_);
  if (returned_ == delivered_) return;
  slot_of(returned_++).ready = false;
  recycled_.notify_one();
}

void Loader::Impl::wait_for(const Slot& slot) {
  std::unique_lock lock(mutex_);
  for (std::uint64_t seen = retries_.count();
       !filled_.wait_for(lock, std::chrono::seconds(1), [&] { return slot.ready; });)
    if (const std::uint64_t now = retries_.count(); std::exchange(seen, now) != now && on_retry_)
      on_retry_();
}

void Loader::Impl::account(const BatchReport& report) {
  for (const auto& [sample, message, reason] : report.unreadable) {
    if (!unreadable_.insert(sample).second) continue;
    new_unreadable_.push_back(sample);
    if (message.empty()) continue;
    last_event_ = message;
    if (events_.size() < events_kept) events_.push_back(message);
  }
}

std::string Loader::Impl::why_unreadable(std::uint64_t sample) const {
  expects(delivered_ > 0, "why_unreadable() is of a batch that next() returned");
  const auto& of_batch = slots_[(delivered_ - 1) % slots_.size()].report.unreadable;
  const auto found = std::ranges::find(of_batch, sample, &BatchReport::Unreadable::sample);
  return found == of_batch.end() ? "" : found->reason;
}

Loader::Loader(const Dataset& dataset, const LoaderOptions& options) {
  check(options);
  impl_ = std::make_unique<Impl>(dataset, options);
}
Loader::~Loader() = default;

const Batch* Loader::next() { return impl_->next(); }
std::uint64_t Loader::evaluation_batches() const { return impl_->batches(); }
const std::set<std::uint64_t>& Loader::unreadable() const { return impl_->unreadable(); }
bool Loader::has_new_unreadable() const { return !impl_->new_unreadable().empty(); }
std::vector<std::uint64_t> Loader::take_unreadable() { return impl_->take_unreadable(); }
void Loader::add_unreadable(std::span<const std::uint64_t> samples) {
  impl_->add_unreadable(samples);
}
std::vector<std::string> Loader::take_events() { return impl_->take_events(); }
const std::string& Loader::last_event() const { return impl_->last_event(); }
std::string Loader::why_unreadable(std::uint64_t sample) const {
  return impl_->why_unreadable(sample);
}

}  // namespace ringtrain::io
