#include "compute/cuda/training.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

#include "compute/cuda/kernels/arguments/clock.hpp"
#include "compute/cuda/kernels/arguments/elementwise.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::compute::cuda {
namespace {

// Longer than the watchdog allows any phase of a step, so that its verdict, which knows all
// ranks, comes first.
constexpr std::chrono::seconds longest_step(1000);

// loss_scale() is these three.
using State = kernels::UpdateState;
static_assert(offsetof(State, good_steps) == offsetof(State, loss_scale) + sizeof(float) &&
              offsetof(State, skipped) == offsetof(State, good_steps) + sizeof(float));

DeviceBytes narrow_copy(const View& parameters, Element element) {
  return DeviceBytes(element == Element::fp32 ? 0 : parameters.size() * bytes_of(element));
}

const float* scale_of(const DeviceBytes& record, std::size_t offset, Element element) {
  if (element != Element::fp16) return nullptr;
  return reinterpret_cast<const float*>(record.data() + offset);
}

double seconds(std::uint64_t from, std::uint64_t to) {
  return to > from ? double(to - from) * 1e-9 : 0;
}

}  // namespace

CudaTraining::CudaTraining(const Schedule& schedule, const Buffers& buffers, std::uint64_t seed,
                           const CudaProgram::Parts& parts, const GpuStepSums& sums,
                           const GpuTrainingSettings& settings)
    : parts_(parts),
      buffers_(buffers),
      sums_(sums),
      settings_(settings),
      learning_(std::min(schedule.learning, buffers.parameters.size())),
      narrow_parameters_(narrow_copy(buffers.parameters, parts.element)),
      record_(sizeof(Record)),
      decays_(settings.decays.size() * sizeof(DecaySegment)),
      workspace_(kernels::update_workspace(settings.decays.size())),
      program_(schedule, buffers, seed, parts,
               parts.element == Element::fp32 ? buffers.parameters.data()
                                              : static_cast<void*>(narrow_parameters_.data()),
               scale_of(record_, offsetof(Record, update.loss_scale), parts.element)),
      batches_(program_.block(), parts.stream, [this](const Event& event) { wait_for(event); }),
      captures_(settings.graph) {
  expects(!settings.decays.empty() && settings.decays.back().end == learning_,
          "GpuTraining: decays cover the parameters that learn");
  write_and_wait(decays_.data(), settings.decays.data(), decays_.size());
  if (sums.sum_over_ranks)
    program_.set_sum_over_ranks(
        [this](View values) { sum([this, values] { sums_.sum_over_ranks(values); }); });
  program_.set_bucket_starts(bucket_starts());
  add_slots();
  if (settings.accumulates) accumulated_ = memory_.allocate(gradients().size());
  for (auto& record : records_) record = PinnedBytes(sizeof(Record));
  for (Event& event : recorded_) event = make_event();
  reset();
}

CudaTraining::~CudaTraining() {
  // What is queued uses memory that goes now.
  batches_.drain();
  static_cast<void>(cudaStreamSynchronize(parts_.stream));
}

View CudaTraining::gradients() const { return sums_.all.slice(sums_.head, learning_); }

// Among the gradients. The last bucket begins with them.
std::vector<std::size_t> CudaTraining::bucket_starts() const {
  if (sums_.starts.empty()) return {};
  std::vector<std::size_t> starts{0};
  for (const std::size_t place : sums_.starts)
    if (place > sums_.head) starts.push_back(place - sums_.head);
  return starts;
}

void CudaTraining::refresh() {
  if (narrow_parameters_.size() > 0)
    kernels::convert(Element::fp32, parts_.element, buffers_.parameters.size(),
                     buffers_.parameters.data(), narrow_parameters_.data(), parts_.stream);
  check(cudaStreamSynchronize(parts_.stream), "cudaStreamSynchronize");
}

void CudaTraining::queue(const Batch& batch, const GpuBatchNumbers& numbers) {
  bring_batch(batch, numbers);
  launch(numbers.first, numbers.last);
  if (numbers.last) send_record(numbers.step);
}

void CudaTraining::bring_batch(const Batch& batch, const GpuBatchNumbers& n) {
  const float signalled = n.signal != 0 ? 1 : 0;
  program_.queue_batch(batches_.bring(
      n.step, batch,
      {.update = {n.step, n.learning_rate, 1},
       .flags = {n.stop ? 1.f : 0.f, signalled, static_cast<float>(n.signal), n.save ? 1.f : 0.f,
                 n.measure_links ? 1.f : 0.f, n.unreadable ? 1.f : 0.f},
       .sample_weight = static_cast<float>(n.sample_weight),
       .share = static_cast<float>(n.share)}));
  batches_.release();
}

// First kernel by kernel: libraries load what they need, and NCCL connects the ranks.
void CudaTraining::launch(bool first, bool last) {
  const int which = 2 * first + last;
  if (captures_ && launched_[which] && captured_[which].empty())
    captured_[which] = capture_steps(first, last);
  if (captured_[which].empty()) queue_steps(first, last);
  for (const auto& [graph, sums] : captured_[which]) {
    check(cudaGraphLaunch(graph.get(), parts_.stream), "cudaGraphLaunch");
    if (sums) sums();
  }
  launched_[which] = true;
}

// NCCL wants a sum to be captured on all ranks or on none. So whether this rank's GPU can is tried
// without sums, and only then agreed on.
CudaTraining::Pieces CudaTraining::capture_steps(bool first, bool last) {
  Pieces pieces;
  std::string why;
  try {
    pieces = capture_pieces(first, last, sums_.captured ? Sums::left_out : Sums::between_pieces);
  } catch (const Error& failure) {
    if (failure.code() != Exit::internal) throw;
    why = failure.what();
    static_cast<void>(cudaGetLastError());  // else the next launch answers with it
  }
  captures_ = sums_.agree_on_capture ? sums_.agree_on_capture(why) : why.empty();
  if (!captures_) return {};
  if (!sums_.captured) return pieces;
  pieces.clear();
  try {
    return capture_pieces(first, last, Sums::queued);
  } catch (const Error& failure) {
    if (failure.code() != Exit::internal) throw;  // that of another rank, say
    throw Error("capture the step as a CUDA graph",
                std::string(failure.what()) + "; --no-graph trains without");
  }
}

CudaTraining::Pieces CudaTraining::capture_pieces(bool first, bool last, Sums sums) try {
  mode_ = sums;
  pieces_.clear();
  capture_.emplace(parts_.stream);
  queue_steps(first, last);
  pieces_.push_back({capture_->finish()});
  capture_.reset();
  mode_ = Sums::queued;
  return std::move(pieces_);
} catch (...) {
  capture_.reset();
  mode_ = Sums::queued;
  throw;
}

// What starts sums, or makes the stream wait for them.
void CudaTraining::sum(const std::function<void()>& queue) {
  if (mode_ == Sums::queued) return queue();
  if (mode_ == Sums::left_out) return;
  pieces_.push_back({capture_->finish(), queue});
  capture_.reset();
  capture_.emplace(parts_.stream);
}

void CudaTraining::queue_steps(bool first, bool last) {
  if (first) {
    mark(begin);
    kernels::begin_head(sums_.all.data(), sums_.head, &program_.numbers()->flags, parts_.stream);
    kernels::begin_update(update_state(), parts_.stream);
  }
  program_.queue_forward();
  mark(forward_done);
  handed_over_ = gradients().size();
  program_.queue_backward([&](std::size_t from) {
    if (last) queue_sums(from);
  });
  kernels::add_to_head(sums_.all.data(), buffers_.batch_statistics.size(), program_.totals(),
                       buffers_.batch_statistics.data(), &program_.numbers()->sample_weight,
                       &program_.numbers()->share, parts_.stream);
  mark(backward_done);
  if (last)
    queue_update();
  else
    kernels::accumulate(gradients().size(), gradients().data(), accumulated_.view().data(),
                        parts_.stream);
}

// Gradients from `first` on are final: adds those of earlier batches, and lets their sum start. The
// front waits for finish(), because the head goes with it.
void CudaTraining::queue_sums(std::size_t first) {
  const std::size_t count = handed_over_ - first;
  if (accumulated_.view().size() > 0) {
    const View earlier = accumulated_.view().slice(first, count);
    kernels::accumulate(count, earlier.data(), gradients().slice(first, count).data(),
                        parts_.stream);
    check(cudaMemsetAsync(earlier.data(), 0, count * sizeof(float), parts_.stream),
          "cudaMemsetAsync");
  }
  handed_over_ = first;
  const std::size_t place = sums_.head + first;
  const bool starts =
      sums_.starts.empty() || std::ranges::find(sums_.starts, place) != sums_.starts.end();
  if (first > 0 && (starts || mode_ != Sums::between_pieces))
    sum([this, place] { sums_.final_from(place); });
}

void CudaTraining::mark(Mark which) {
  kernels::mark_time(&record_at()->times[which], parts_.stream);
}

void CudaTraining::send_record(std::int64_t step) {
  expects(pending_.size() < records_.size(), "GpuTraining: outcomes are taken");
  const int at = static_cast<int>(steps_queued_++ % records_.size());
  check(cudaMemcpyAsync(records_[at].data(), record_.data(), sizeof(Record), cudaMemcpyDeviceToHost,
                        parts_.stream),
        "cudaMemcpyAsync");
  check(cudaEventRecord(recorded_[at].get(), parts_.stream), "cudaEventRecord");
  pending_.push_back({step, at});
}

// Not by cudaEventSynchronize, which would wait for ever for a rank that is gone.
void CudaTraining::wait_for(const Event& event) const {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (;;) {
    if (is_done(event)) return;
    sums_.check();
    const auto waited = Clock::now() - start;
    if (waited > longest_step)
      throw Error(
          Exit::stuck, "training on the GPU",
          fmt::format("a step is not over after {} s; another rank may be gone, or wait for "
                      "its data",
                      longest_step.count()));
    if (waited > std::chrono::microseconds(50))
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

std::optional<GpuOutcome> CudaTraining::outcome(int ahead) {
  if (pending_.empty()) return std::nullopt;
  const Pending oldest = pending_.front();
  if (static_cast<int>(pending_.size()) <= ahead) return std::nullopt;
  wait_for(recorded_[oldest.record]);
  pending_.pop_front();
  Record record;
  std::memcpy(&record, records_[oldest.record].data(), sizeof record);
  return outcome_of(oldest, record, std::exchange(done_before_, record.times[done]));
}

GpuOutcome CudaTraining::outcome_of(const Pending& pending, const Record& record,
                                    std::uint64_t done_before) {
  kernels::StepHead head;
  std::memcpy(&head, record.results, sizeof head);
  const auto& t = record.times;
  const double gathering_s = seconds(t[updated], t[gathered]);  // none: these stay zero
  const BatchCopies::Times input = batches_.take_times(pending.step);
  GpuOutcome outcome{.step = pending.step,
                     .loss = head.loss,
                     .l2_loss = (sums_.part ? head.squares : record.update.squares) / 2,
                     .top1 = head.top1,
                     .stop = head.stop,
                     .signalled = head.signalled,
                     .signal = head.signal,
                     .save = head.save,
                     .measure_links = head.measure_links,
                     .unreadable = head.unreadable,
                     .skipped = record.update.not_finite != 0,
                     .loss_scale = record.update.loss_scale,
                     .idle_s = done_before == 0 ? 0 : seconds(done_before, t[begin]),
                     .forward_s = seconds(t[begin], t[forward_done]),
                     .backward_s = seconds(t[forward_done], t[backward_done]),
                     .exposed_s = seconds(t[backward_done], t[summed]) + gathering_s,
                     .update_s = seconds(t[summed], t[done]) - gathering_s,
                     .staged_s = input.staged_s,
                     .copy_s = input.copy_s};
  outcome.not_finite = !std::isfinite(head.loss) || record.update.hopeless != 0;
  return outcome;
}

void CudaTraining::close() {
  check(cudaStreamSynchronize(parts_.stream), "cudaStreamSynchronize");
  for (Pieces& pieces : captured_) pieces.clear();
}

}  // namespace ringtrain::compute::cuda
