#include "ringtrain/io/checkpoint_writer/checkpoint_writer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <utility>

#include "io/checkpoint/checkpoint_index.hpp"
#include "io/checkpoint_writer/writer_connection.hpp"
#include "io/checkpoint_writer/writer_protocol.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::io {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

class CheckpointWriter::Impl {
 public:
  Impl(WriterProcess& process, const std::filesystem::path& directory, const StateLayout& layout,
       WriterOptions options);

  void set_lineage(const std::string& lineage) { writer_.set_lineage(lineage); }
  void protect(const std::string& name) { writer_.protect(name); }
  std::vector<SnapshotBuffers> slots() const { return {slots_[0].buffers, slots_[1].buffers}; }
  SnapshotBuffers begin();
  /// False when no slot became free, for save number `step`: that is then the final failure.
  bool wait_for_slot(Clock::time_point deadline, std::uint64_t step);
  void submit(const CheckpointMetadata& metadata);
  bool keep(const std::function<std::optional<CheckpointMetadata>(SnapshotBuffers)>& copy);
  void keep_nothing();
  void hurry() {
    if (!lost_ && !closed_ && any_busy()) writer_.hurry();
  }
  std::vector<SaveEvent> poll();
  std::vector<SaveEvent> close(Clock::time_point deadline);
  std::optional<Error> failure() const { return last_failure_; }
  bool lost() const { return lost_; }

  std::uint64_t saved = 0, failed = 0;
  std::mutex mutex;  // held in each call

 private:
  struct Slot : SnapshotSlot {
    using SnapshotSlot::SnapshotSlot;
    bool busy = false, reported_slow = false;
    Clock::time_point since;
    Message request;  // save or keep
  };

  void receive_all();
  void take(const Message& message);
  void finish(const Message& message);
  void move(const Message& message);
  void set_failure(Error failure) { last_failure_ = std::move(failure); }
  void note(SaveEvent::Kind kind, const std::string& text);
  void lose_writer(Error failure);
  void report_slow_saves();
  /// Saves that the writer has not answered, the oldest first.
  std::vector<const Message*> unanswered() const;
  Slot* free_slot(const Slot* except = nullptr);
  void describe(Message::Kind kind, Slot& slot, const CheckpointMetadata& metadata);
  bool any_busy() const;
  Error not_in_time();

  const std::string directory_;
  std::string place_, last_move_;  // where it is now, for messages; as the writer told it
  const WriterOptions options_;
  const SlotPlan plan_;
  std::array<Slot, slot_count> slots_;
  WriterConnection writer_;
  Slot *filling_ = nullptr, *kept_ = nullptr;
  bool keeps_nothing_ = false;
  std::vector<SaveEvent> events_;
  bool lost_ = false, closing_ = false, closed_ = false;
  std::optional<Error> last_failure_;  // of the newest state handed over, once it has failed
  std::uint64_t last_step_ = 0;
};

namespace {

constexpr std::chrono::seconds tidying{2};

SaveEvent event(SaveEvent::Kind kind, const Message& message) {
  SaveEvent result{
      .kind = kind, .step = message.step, .bytes = message.bytes, .seconds = message.seconds};
  (kind == SaveEvent::Kind::saved ? result.file : result.text) = message.text();
  return result;
}

}  // namespace

CheckpointWriter::Impl::Impl(WriterProcess& process, const std::filesystem::path& directory,
                             const StateLayout& layout, WriterOptions options)
    : directory_(std::filesystem::absolute(directory).string()),
      place_(directory_),
      options_(std::move(options)),
      plan_(layout),
      slots_{{{layout, plan_}, {layout, plan_}}},
      writer_(process, directory_, options_, layout,
              {slots_[0].memory.descriptor(), slots_[1].memory.descriptor()}) {
  expects(options_.run_id.size() <= longest_run_id, "WriterOptions::run_id: at most 39 characters");
  expects(options_.keep >= 1, "WriterOptions::keep: at least 1");
  writer_.open();
}

CheckpointWriter::Impl::Slot* CheckpointWriter::Impl::free_slot(const Slot* except) {
  if (lost_ || closed_) return nullptr;
  for (Slot& slot : slots_)
    if (!slot.busy && &slot != kept_ && &slot != except) return &slot;
  return nullptr;
}

bool CheckpointWriter::Impl::any_busy() const { return slots_[0].busy || slots_[1].busy; }

SnapshotBuffers CheckpointWriter::Impl::begin() {
  receive_all();
  filling_ = free_slot();
  return filling_ == nullptr ? SnapshotBuffers{} : filling_->buffers;
}

bool CheckpointWriter::Impl::wait_for_slot(Clock::time_point deadline, std::uint64_t step) {
  receive_all();
  while (!lost_ && free_slot() == nullptr && writer_.wait(deadline)) receive_all();
  if (free_slot() != nullptr) return true;
  last_step_ = step;
  if (!lost_) set_failure(not_in_time());
  return false;
}

Error CheckpointWriter::Impl::not_in_time() {
  if (const std::string why = writer_.trouble(); !why.empty())
    return writer_fault(
        "final checkpoint",
        fmt::format("the checkpoint of step {} was not durable in time: {}", last_step_, why), why);
  return {Exit::storage, "final checkpoint",
          fmt::format("the checkpoint of step {} was not durable in time; the file system of {} "
                      "may be stuck",
                      last_step_, place_)};
}

void CheckpointWriter::Impl::submit(const CheckpointMetadata& metadata) {
  expects(filling_ != nullptr, "submit_save: after a begin_save that gave a slot");
  Slot& slot = *std::exchange(filling_, nullptr);
  if (lost_) {  // since its buffers were filled
    ++failed;
    return;
  }
  describe(Message::Kind::save, slot, metadata);
  slot.request.code = metadata.is_best;
  last_step_ = metadata.step;
  slot.since = Clock::now();
  slot.busy = true;
  slot.reported_slow = false;
  last_failure_.reset();
  writer_.save(slot.request);
}

// With the metadata's text in the slot.
void CheckpointWriter::Impl::describe(Message::Kind kind, Slot& slot,
                                      const CheckpointMetadata& metadata) {
  const std::string text = to_json_text(metadata);
  expects(text.size() <= SlotPlan::text_capacity, "checkpoint metadata: at most 2 MiB");
  std::memcpy(slot.memory.bytes().data() + plan_.text_offset, text.data(), text.size());
  slot.request = {.kind = kind,
                  .slot = static_cast<std::uint32_t>(&slot - slots_.data()),
                  .step = metadata.step,
                  .bytes = text.size()};
}

bool CheckpointWriter::Impl::keep(
    const std::function<std::optional<CheckpointMetadata>(SnapshotBuffers)>& copy) {
  if (keeps_nothing_) return true;
  receive_all();
  Slot* const slot = free_slot(filling_);
  if (slot == nullptr) return closed_ || lost_;
  const auto metadata = copy(slot->buffers);
  if (!metadata) return true;
  describe(Message::Kind::keep, *slot, *metadata);
  writer_.keep(slot->request);
  kept_ = slot;
  return true;
}

void CheckpointWriter::Impl::keep_nothing() {
  keeps_nothing_ = true;
  kept_ = nullptr;
  if (!lost_ && !closed_) writer_.keep_nothing();
}

void CheckpointWriter::Impl::receive_all() {
  if (lost_ || closed_) return;
  while (const auto message = writer_.receive()) take(*message);
  if (closing_) return;
  if (auto failure = writer_.take_over(unanswered())) lose_writer(std::move(*failure));
}

void CheckpointWriter::Impl::take(const Message& message) {
  switch (message.kind) {
    case Message::Kind::saved:
    case Message::Kind::failed:
      return finish(message);
    case Message::Kind::gave_way:
      slots_.at(message.slot).busy = false;
      events_.push_back(
          {.kind = SaveEvent::Kind::skipped,
           .step = message.step,
           .text = fmt::format("nothing saved at step {}: its save had not begun, and "
                               "gave way to the last one",
                               message.step)});
      return;
    case Message::Kind::closed:
      closed_ = true;
      return;
    case Message::Kind::displaced:
      return lose_writer({Exit::locked, "checkpoints", message.text()});
    case Message::Kind::moved:
      return move(message);
    case Message::Kind::opened:
      return note(SaveEvent::Kind::replaced, writer_.note_opened());
    case Message::Kind::refused:  // another job's directory is not to be waited for
      if (message.code == static_cast<std::int32_t>(Exit::locked))
        return lose_writer({Exit::locked, "checkpoints", message.text()});
      return note(SaveEvent::Kind::note, writer_.note_refused(message));
    default:
      events_.push_back(event(SaveEvent::Kind::note, message));
  }
}

void CheckpointWriter::Impl::finish(const Message& message) {
  const auto code = static_cast<Exit>(message.code);
  const bool good = message.kind == Message::Kind::saved;
  if (!good && code == Exit::locked) return lose_writer({code, "checkpoints", message.text()});
  slots_.at(message.slot).busy = false;
  ++(good ? saved : failed);
  events_.push_back(event(good ? SaveEvent::Kind::saved : SaveEvent::Kind::failed, message));
  if (!good) {
    std::string& text = events_.back().text;
    text = fmt::format("checkpoint of step {} in {} not saved: {}", message.step, place_, text);
    events_.back().not_finite = code == Exit::not_finite;
    if (message.step == last_step_) set_failure({code, "final checkpoint", text});
  }
}

void CheckpointWriter::Impl::move(const Message& message) {
  const std::string all = message.text();
  if (std::exchange(last_move_, all) == all) return;              // the next writer tells it, too
  const std::size_t end = std::min(all.rfind('\n'), all.size());  // a path may have one
  place_ = end == 0 ? directory_ : all.substr(0, end);
  events_.push_back({.kind = message.code != 0 ? SaveEvent::Kind::back : SaveEvent::Kind::moved,
                     .step = last_step_,
                     .file = all.substr(0, end),
                     .text = all.substr(std::min(end + 1, all.size()))});
}

// Of the writer itself.
void CheckpointWriter::Impl::note(SaveEvent::Kind kind, const std::string& text) {
  if (!text.empty()) events_.push_back({.kind = kind, .step = last_step_, .text = text});
}

std::vector<const Message*> CheckpointWriter::Impl::unanswered() const {
  std::vector<const Slot*> busy;
  for (const Slot& slot : slots_)
    if (slot.busy) busy.push_back(&slot);
  std::ranges::sort(busy, {}, &Slot::since);
  std::vector<const Message*> saves;
  for (const Slot* slot : busy) saves.push_back(&slot->request);
  return saves;
}

void CheckpointWriter::Impl::lose_writer(Error failure) {
  if (std::exchange(lost_, true)) return;  // both threads of a writer tell that it is displaced
  for (Slot& slot : slots_) failed += std::exchange(slot.busy, false);
  note(SaveEvent::Kind::lost, failure.what());
  set_failure(std::move(failure));
}

void CheckpointWriter::Impl::report_slow_saves() {
  for (Slot& slot : slots_) {
    if (!slot.busy || slot.reported_slow || Clock::now() - slot.since < options_.slow_after)
      continue;
    slot.reported_slow = true;
    const double seconds = Seconds(Clock::now() - slot.since).count();
    const std::string trouble = writer_.trouble();
    const std::string why =
        trouble.empty() ? fmt::format("is the file system of {} stuck?", place_) : trouble + ".";
    events_.push_back(
        {.kind = SaveEvent::Kind::slow,
         .step = slot.request.step,
         .seconds = seconds,
         .text =
             fmt::format("checkpoint of step {} is not durable after {:.0f} s: {} Training goes on",
                         slot.request.step, seconds, why)});
  }
}

std::vector<SaveEvent> CheckpointWriter::Impl::poll() {
  receive_all();
  if (const auto how = writer_.fork_server_ended(); how && !lost_ && !closing_)
    note(SaveEvent::Kind::alone,
         fmt::format("the fork server, which starts another checkpoint writer when one dies, {}: "
                     "the next such death ends the job",
                     *how));
  report_slow_saves();
  return std::exchange(events_, {});
}

std::vector<SaveEvent> CheckpointWriter::Impl::close(Clock::time_point deadline) {
  if (closed_) return poll();
  receive_all();
  while (!lost_ && any_busy() && writer_.wait(deadline)) receive_all();
  if (any_busy()) set_failure(not_in_time());
  for (const Slot& slot : slots_) failed += slot.busy;
  if (any_busy()) {
    writer_.kill();  // the saves that this job has given up are not to outlive it
    lost_ = closed_ = true;
    return std::exchange(events_, {});
  }
  // What is left, such as retention, is not worth more: what does not end is killed.
  closing_ = true;
  if (!lost_) writer_.close();
  deadline = std::min(deadline, Clock::now() + tidying);
  while (!lost_ && !closed_ && !writer_.gone() && writer_.wait(deadline)) receive_all();
  auto events = poll();
  closed_ = true;
  return events;
}

CheckpointWriter::CheckpointWriter() = default;
CheckpointWriter::CheckpointWriter(WriterProcess& process, const std::filesystem::path& directory,
                                   const StateLayout& layout, WriterOptions options)
    : impl_(process.idle()
                ? nullptr
                : std::make_unique<Impl>(process, directory, layout, std::move(options))) {}
CheckpointWriter::CheckpointWriter(CheckpointWriter&&) noexcept = default;
CheckpointWriter& CheckpointWriter::operator=(CheckpointWriter&&) noexcept = default;
CheckpointWriter::~CheckpointWriter() = default;

std::unique_lock<std::mutex> CheckpointWriter::hold() const {
  return impl_ ? std::unique_lock(impl_->mutex) : std::unique_lock<std::mutex>();
}

void CheckpointWriter::set_lineage(const std::string& lineage) {
  if (const auto held = hold()) impl_->set_lineage(lineage);
}

void CheckpointWriter::protect(const std::string& file_name) {
  if (const auto held = hold()) impl_->protect(file_name);
}

bool CheckpointWriter::try_save(const CheckpointMetadata& metadata,
                                const std::function<void(SnapshotBuffers)>& copy) {
  const SnapshotBuffers buffers = begin_save();
  if (buffers.empty()) return false;
  copy(buffers);
  submit_save(metadata);
  return true;
}

std::vector<SnapshotBuffers> CheckpointWriter::slots() const {
  const auto held = hold();
  return held ? impl_->slots() : std::vector<SnapshotBuffers>{};
}

SnapshotBuffers CheckpointWriter::begin_save() {
  const auto held = hold();
  return held ? impl_->begin() : SnapshotBuffers{};
}

void CheckpointWriter::submit_save(const CheckpointMetadata& metadata) {
  if (const auto held = hold()) impl_->submit(metadata);
}

bool CheckpointWriter::save(const CheckpointMetadata& metadata,
                            const std::function<void(SnapshotBuffers)>& copy,
                            std::chrono::duration<double> timeout) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout);
  SnapshotBuffers buffers;
  {
    const auto held = hold();  // from the wait on: save_if_killed() may want that slot, too
    if (!held || !impl_->wait_for_slot(deadline, metadata.step)) return false;
    buffers = impl_->begin();
  }
  if (buffers.empty()) return false;
  copy(buffers);
  submit_save(metadata);
  return true;
}

bool CheckpointWriter::save_if_killed(
    const std::function<std::optional<CheckpointMetadata>(SnapshotBuffers)>& copy) {
  const auto held = hold();
  return !held || impl_->keep(copy);
}

void CheckpointWriter::keep_nothing() {
  if (const auto held = hold()) impl_->keep_nothing();
}

void CheckpointWriter::hurry() {
  if (const auto held = hold()) impl_->hurry();
}

std::vector<SaveEvent> CheckpointWriter::poll() {
  const auto held = hold();
  return held ? impl_->poll() : std::vector<SaveEvent>{};
}

std::vector<SaveEvent> CheckpointWriter::close(std::chrono::duration<double> timeout) {
  const auto held = hold();
  if (!held) return {};
  return impl_->close(Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout));
}

std::optional<Error> CheckpointWriter::failure() const {
  const auto held = hold();
  return held ? impl_->failure() : std::nullopt;
}

bool CheckpointWriter::lost() const {
  const auto held = hold();
  return held && impl_->lost();
}

std::uint64_t CheckpointWriter::saved() const {
  const auto held = hold();
  return held ? impl_->saved : 0;
}

std::uint64_t CheckpointWriter::failed() const {
  const auto held = hold();
  return held ? impl_->failed : 0;
}

}  // namespace ringtrain::io
