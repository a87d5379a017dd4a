#include "ringtrain/io/checkpoint_writer.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "io/checkpoint_index.hpp"
#include "io/writer_protocol.hpp"
#include "ringtrain/io/writer_process.hpp"

namespace ringtrain {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

class CheckpointWriter::Impl {
 public:
  Impl(WriterProcess& process, const std::filesystem::path& directory, const StateLayout& layout,
       WriterOptions options);

  void set_lineage(const std::string& lineage);
  void protect(const std::string& name);
  SnapshotBuffers begin();
  /// False when no slot became free, for save number `step`: that is then the final failure.
  bool wait_for_slot(Clock::time_point deadline, std::uint64_t step);
  void submit(const CheckpointMetadata& metadata);
  bool keep(const std::function<std::optional<CheckpointMetadata>(SnapshotBuffers)>& copy);
  void keep_nothing();
  std::vector<SaveEvent> poll();
  std::vector<SaveEvent> close(Clock::time_point deadline);
  std::optional<Error> failure() const;
  bool lost() const { return lost_; }

  std::uint64_t saved = 0, failed = 0;
  std::mutex mutex;  // held in each call

 private:
  struct Slot {
    MappedMemory memory;
    std::vector<std::span<float>> buffers;
    bool busy = false, reported_slow = false;
    std::uint64_t step = 0;
    Clock::time_point since;
  };

  void open(const StateLayout& layout);
  Message await_answer(Clock::time_point deadline);
  /// False when `deadline` passed first.
  bool wait_for_message(Clock::time_point deadline);
  void receive_all();
  void take(const Message& message);
  void finish(const Message& message);
  void set_failure(std::string text, Exit code = Exit::storage);
  void lose_writer();
  void report_loss();
  void tell_loss(std::string_view ending);
  void report_slow_saves();
  Slot* free_slot(const Slot* except = nullptr);
  Message described(Message::Kind kind, Slot& slot, const CheckpointMetadata& metadata);
  bool any_busy() const;
  std::string not_in_time() const;

  WriterProcess* process_;
  std::string directory_;
  WriterOptions options_;
  SlotPlan plan_;
  std::array<Slot, slot_count> slots_;
  Slot *filling_ = nullptr, *kept_ = nullptr;
  bool keeps_nothing_ = false;
  std::vector<SaveEvent> events_;
  bool lost_ = false, loss_told_ = false, closed_ = false;
  Clock::time_point lost_since_;
  std::string last_failure_;  // of the newest state handed over; empty while it may become durable
  Exit last_code_ = Exit::storage;  // of last_failure_
  std::uint64_t last_step_ = 0;
};

namespace {

constexpr std::chrono::seconds tidying{2};

std::string owner_text(const std::string& run_id) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("run {} on host {}, process {}", run_id, host.data(), ::getpid());
}

void require_sound(const StateLayout& layout) {
  for (const TensorPlace& place : layout.tensors)
    expects(place.buffer < layout.buffers.size() && place.offset <= layout.buffers[place.buffer] &&
                element_count(place.info) <= layout.buffers[place.buffer] - place.offset,
            "StateLayout: every tensor lies in its buffer");
}

SaveEvent event(SaveEvent::Kind kind, const Message& message) {
  SaveEvent result{
      .kind = kind, .step = message.step, .bytes = message.bytes, .seconds = message.seconds};
  (kind == SaveEvent::Kind::saved ? result.file : result.text) = message.text();
  return result;
}

}  // namespace

CheckpointWriter::Impl::Impl(WriterProcess& process, const std::filesystem::path& directory,
                             const StateLayout& layout, WriterOptions options)
    : process_(&process),
      directory_(std::filesystem::absolute(directory).string()),
      options_(std::move(options)),
      plan_(layout) {
  expects(options_.run_id.size() <= longest_run_id, "WriterOptions::run_id: at most 39 characters");
  expects(!layout.buffers.empty(), "StateLayout: at least one buffer");
  expects(options_.keep >= 1, "WriterOptions::keep: at least 1");
  require_sound(layout);
  for (Slot& slot : slots_) {
    slot.memory = MappedMemory::create("checkpoint-slot", plan_.bytes);
    for (std::size_t i = 0; i < layout.buffers.size(); ++i)
      slot.buffers.emplace_back(
          reinterpret_cast<float*>(slot.memory.bytes().data() + plan_.offsets[i]),
          layout.buffers[i]);
  }
  open(layout);
}

void CheckpointWriter::Impl::open(const StateLayout& layout) {
  const std::string text =
      to_json_text(WriterSetup{.run_id = options_.run_id,
                               .owner = owner_text(options_.run_id),
                               .keep = options_.keep,
                               .last_save_timeout_s = options_.last_save_timeout_s,
                               .layout = layout});
  const MappedMemory setup = MappedMemory::create("checkpoint-setup", text.size());
  std::memcpy(setup.bytes().data(), text.data(), text.size());
  const std::array descriptors = {setup.descriptor(), slots_[0].memory.descriptor(),
                                  slots_[1].memory.descriptor()};
  Message request{.kind = Message::Kind::open, .bytes = text.size()};
  send_message(process_->socket(), request.with_text(directory_), Wait::no, descriptors);
  const Message answer = await_answer(Clock::now() + options_.open_timeout);
  if (answer.kind == Message::Kind::refused)
    throw Error(static_cast<Exit>(answer.code), "checkpoints", answer.text());
}

Message CheckpointWriter::Impl::await_answer(Clock::time_point deadline) {
  try {
    while (wait_for_message(deadline)) {
      const Message message = receive_message(process_->socket(), Wait::yes)->message;
      if (message.kind != Message::Kind::waiting) return message;
      if (options_.tell) options_.tell(message.text());
      deadline = Clock::now() + options_.open_timeout;
    }
  } catch (const PeerGone&) {
    throw Error(Exit::storage, "checkpoint writer process", process_->ending());
  }
  throw Error(Exit::storage, "checkpoint directory " + directory_,
              fmt::format("no answer within {} s: its file system is not responding",
                          options_.open_timeout.count()));
}

bool CheckpointWriter::Impl::wait_for_message(Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd socket{process_->socket(), POLLIN, 0};
    const int ready =
        ::poll(&socket, 1, static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

void CheckpointWriter::Impl::set_lineage(const std::string& lineage) {
  expects(is_lineage(lineage), "set_lineage: 16 hexadecimal digits");
  Message request{.kind = Message::Kind::lineage};
  send_message(process_->socket(), request.with_text(lineage), Wait::no);
}

void CheckpointWriter::Impl::protect(const std::string& name) {
  Message request{.kind = Message::Kind::protect};
  send_message(process_->socket(), request.with_text(name), Wait::no);
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
  while (!lost_ && free_slot() == nullptr && wait_for_message(deadline)) receive_all();
  if (free_slot() != nullptr) return true;
  last_step_ = step;
  if (!lost_) set_failure(not_in_time());
  return false;
}

std::string CheckpointWriter::Impl::not_in_time() const {
  return fmt::format(
      "the checkpoint of step {} was not durable in time; the file system of {} may be stuck",
      last_step_, directory_);
}

void CheckpointWriter::Impl::submit(const CheckpointMetadata& metadata) {
  expects(filling_ != nullptr, "submit_save: after a begin_save that gave a slot");
  Slot& slot = *std::exchange(filling_, nullptr);
  const Message request = described(Message::Kind::save, slot, metadata);
  slot.step = last_step_ = metadata.step;
  slot.since = Clock::now();
  slot.busy = true;
  slot.reported_slow = false;
  last_failure_.clear();
  if (!send_message(process_->socket(), request, Wait::no)) lose_writer();
}

// With the metadata's text in the slot.
Message CheckpointWriter::Impl::described(Message::Kind kind, Slot& slot,
                                          const CheckpointMetadata& metadata) {
  const std::string text = to_json_text(metadata);
  expects(text.size() <= SlotPlan::text_capacity, "checkpoint metadata: at most 2 MiB");
  std::memcpy(slot.memory.bytes().data() + plan_.text_offset, text.data(), text.size());
  return {.kind = kind,
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
  if (metadata &&
      send_message(process_->socket(), described(Message::Kind::keep, *slot, *metadata), Wait::no))
    kept_ = slot;
  return true;
}

void CheckpointWriter::Impl::keep_nothing() {
  keeps_nothing_ = true;
  kept_ = nullptr;
  if (!lost_ && !closed_)
    send_message(process_->socket(), {.kind = Message::Kind::keep_nothing}, Wait::no);
}

void CheckpointWriter::Impl::receive_all() {
  if (lost_) return;
  try {
    while (const auto received = receive_message(process_->socket(), Wait::no))
      take(received->message);
  } catch (const PeerGone&) {
    lose_writer();
  }
}

void CheckpointWriter::Impl::take(const Message& message) {
  switch (message.kind) {
    case Message::Kind::saved:
    case Message::Kind::failed:
      return finish(message);
    case Message::Kind::closed:
      closed_ = true;
      return;
    default:
      events_.push_back(event(SaveEvent::Kind::note, message));
  }
}

void CheckpointWriter::Impl::finish(const Message& message) {
  slots_.at(message.slot).busy = false;
  const bool good = message.kind == Message::Kind::saved;
  ++(good ? saved : failed);
  events_.push_back(event(good ? SaveEvent::Kind::saved : SaveEvent::Kind::failed, message));
  if (!good) {
    std::string& text = events_.back().text;
    text = fmt::format("checkpoint of step {} in {} not saved: {}", message.step, directory_, text);
    if (message.step == last_step_) set_failure(text, static_cast<Exit>(message.code));
  }
}

void CheckpointWriter::Impl::set_failure(std::string text, Exit code) {
  last_failure_ = std::move(text);
  last_code_ = code;
}

void CheckpointWriter::Impl::lose_writer() {
  if (std::exchange(lost_, true)) return;
  lost_since_ = Clock::now();
  for (Slot& slot : slots_) failed += std::exchange(slot.busy, false);
  set_failure("the checkpoint writer process is gone");
}

// The socket closes before the kernel knows how the process ended; training does not wait for it.
void CheckpointWriter::Impl::report_loss() {
  if (!lost_ || loss_told_) return;
  const auto ending = process_->ended();
  if (ending || Clock::now() - lost_since_ > std::chrono::seconds(1))
    tell_loss(ending.value_or("closed its connection"));
}

void CheckpointWriter::Impl::tell_loss(std::string_view ending) {
  loss_told_ = true;
  set_failure(
      fmt::format("the checkpoint writer process {}: no more checkpoints are saved", ending));
  events_.push_back({.kind = SaveEvent::Kind::lost, .step = last_step_, .text = last_failure_});
}

void CheckpointWriter::Impl::report_slow_saves() {
  for (Slot& slot : slots_) {
    if (!slot.busy || slot.reported_slow || Clock::now() - slot.since < options_.slow_after)
      continue;
    slot.reported_slow = true;
    const double seconds = Seconds(Clock::now() - slot.since).count();
    events_.push_back(
        {.kind = SaveEvent::Kind::slow,
         .step = slot.step,
         .seconds = seconds,
         .text = fmt::format(
             "checkpoint of step {} is not durable after {:.0f} s: is the file system of {} "
             "stuck? Training goes on",
             slot.step, seconds, directory_)});
  }
}

std::vector<SaveEvent> CheckpointWriter::Impl::poll() {
  receive_all();
  report_loss();
  report_slow_saves();
  return std::exchange(events_, {});
}

std::vector<SaveEvent> CheckpointWriter::Impl::close(Clock::time_point deadline) {
  if (closed_) return poll();
  receive_all();
  while (!lost_ && any_busy() && wait_for_message(deadline)) receive_all();
  if (any_busy()) set_failure(not_in_time());
  for (const Slot& slot : slots_) failed += slot.busy;
  if (any_busy() && !lost_) {
    process_->kill();  // the saves that this job has given up are not to outlive it
    lost_ = loss_told_ = closed_ = true;
    return std::exchange(events_, {});
  }
  if (!lost_) send_message(process_->socket(), {.kind = Message::Kind::close}, Wait::no);
  // What is left, such as retention, is not worth more: what does not end is killed.
  deadline = std::min(deadline, Clock::now() + tidying);
  while (!lost_ && !closed_ && !any_busy() && wait_for_message(deadline)) receive_all();
  if (lost_ && !loss_told_) tell_loss(process_->ending());
  closed_ = true;
  return poll();
}

std::optional<Error> CheckpointWriter::Impl::failure() const {
  if (last_failure_.empty()) return std::nullopt;
  return Error(last_code_, "final checkpoint", last_failure_);
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

}  // namespace ringtrain
