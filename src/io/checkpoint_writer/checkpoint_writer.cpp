#include "ringtrain/io/checkpoint_writer/checkpoint_writer.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "io/checkpoint/checkpoint_index.hpp"
#include "io/checkpoint_writer/writer_protocol.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/io/checkpoint_writer/writer_process.hpp"

namespace ringtrain::io {

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
    Message request;  // save or keep
  };

  void open(const StateLayout& layout);
  bool send_open(bool takes_over);
  Message await_answer();
  /// False when `deadline` passed first.
  bool wait_for_message(Clock::time_point deadline);
  void receive_all();
  void take(const Message& message);
  void finish(const Message& message);
  void set_failure(Error failure) { last_failure_ = std::move(failure); }
  void notice_death();
  void replace_writer();
  std::string why_not_replaced(const std::string& how);
  void hand_over(const std::vector<Slot*>& slots);
  void report_takeover();
  void refused(const Message& message);
  void lose_writer(Error failure);
  void report_slow_saves();
  std::vector<Slot*> busy_slots();
  Slot* free_slot(const Slot* except = nullptr);
  void describe(Message::Kind kind, Slot& slot, const CheckpointMetadata& metadata);
  bool any_busy() const;
  Error not_in_time() const;

  WriterProcess* process_;
  std::string directory_;
  WriterOptions options_;
  SlotPlan plan_;
  std::array<Slot, slot_count> slots_;
  Slot *filling_ = nullptr, *kept_ = nullptr;
  bool keeps_nothing_ = false;
  std::vector<SaveEvent> events_;
  bool lost_ = false, closing_ = false, closed_ = false;
  std::optional<Error> last_failure_;  // of the newest state handed over, once it has failed
  std::uint64_t last_step_ = 0;

  // What another writer is told again.
  WriterSetup setup_;
  std::string lineage_, protected_;
  bool gone_ = false;     // the writer; the next one is not asked for yet
  bool opening_ = false;  // the next one has not answered yet
  bool refused_ = false;  // it could not open the directory
  Clock::time_point gone_since_, opening_since_;
  std::deque<Clock::time_point> deaths_;
  std::optional<std::uint64_t> died_in_;  // the step whose save the last one died in
  // What is told once the next one has answered: how the last one ended, and what is saved again.
  std::string how_, takeover_;
};

namespace {

constexpr std::chrono::seconds tidying{2};
// Deaths that are further apart have causes of their own.
constexpr std::chrono::minutes death_window{10};
// The socket closes before the kernel knows how a process ended.
constexpr std::chrono::seconds ending_patience{1};

void require_sound(const StateLayout& layout) {
  for (const TensorPlace& place : layout.tensors)
    expects(place.buffer < layout.buffers.size() && place.offset <= layout.buffers[place.buffer] &&
                element_count(place.info) <= layout.buffers[place.buffer] - place.offset,
            "StateLayout: every tensor lies in its buffer");
}

Error writer_fault(const std::string& why, const std::string& how) {
  return Error(Exit::storage, "checkpoints",
               fmt::format("the checkpoint writer process {}: nothing can be saved any more", why))
      .of_kind("writer", key_value("how", how));
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
  setup_ = {.owner = this_process(options_.run_id),
            .keep = options_.keep,
            .last_save_timeout_s = options_.last_save_timeout_s,
            .layout = layout};
  send_open(false);
  const Message answer = await_answer();
  if (answer.kind == Message::Kind::refused)
    throw Error(static_cast<Exit>(answer.code), "checkpoints", answer.text());
}

bool CheckpointWriter::Impl::send_open(bool takes_over) {
  setup_.takes_over = takes_over;
  const std::string text = to_json_text(setup_);
  const MappedMemory setup = MappedMemory::create("checkpoint-setup", text.size());
  std::memcpy(setup.bytes().data(), text.data(), text.size());
  const std::array descriptors = {setup.descriptor(), slots_[0].memory.descriptor(),
                                  slots_[1].memory.descriptor()};
  Message request{.kind = Message::Kind::open, .bytes = text.size()};
  return send_message(process_->socket(), request.with_text(directory_), Wait::no, descriptors);
}

Message CheckpointWriter::Impl::await_answer() {
  Clock::time_point deadline = Clock::now() + options_.open_timeout;
  try {
    while (wait_for_message(deadline)) {
      const Message message = receive_message(process_->socket(), Wait::yes)->message;
      if (message.kind != Message::Kind::waiting) return message;
      if (options_.tell) options_.tell(message.text());
      deadline = Clock::now() + options_.open_timeout;
    }
  } catch (const PeerGone&) {
    const std::string how = process_->ending();
    throw Error(Exit::storage, "checkpoint writer process", how)
        .of_kind("writer", key_value("how", how));
  }
  throw Error(Exit::storage, "checkpoint directory " + directory_,
              fmt::format("no answer within {} s: its file system is not responding",
                          options_.open_timeout.count()));
}

bool CheckpointWriter::Impl::wait_for_message(Clock::time_point deadline) {
  if (gone_) {  // what comes next is its end
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return Clock::now() < deadline;
  }
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
  lineage_ = lineage;
  Message request{.kind = Message::Kind::lineage};
  send_message(process_->socket(), request.with_text(lineage), Wait::no);
}

void CheckpointWriter::Impl::protect(const std::string& name) {
  protected_ = name;
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

Error CheckpointWriter::Impl::not_in_time() const {
  return {Exit::storage, "final checkpoint",
          fmt::format("the checkpoint of step {} was not durable in time; the file system of {} "
                      "may be stuck",
                      last_step_, directory_)};
}

void CheckpointWriter::Impl::submit(const CheckpointMetadata& metadata) {
  expects(filling_ != nullptr, "submit_save: after a begin_save that gave a slot");
  Slot& slot = *std::exchange(filling_, nullptr);
  if (lost_) {  // since its buffers were filled
    ++failed;
    return;
  }
  describe(Message::Kind::save, slot, metadata);
  slot.step = last_step_ = metadata.step;
  slot.since = Clock::now();
  slot.busy = true;
  slot.reported_slow = false;
  last_failure_.reset();
  if (refused_) return hand_over({&slot});  // the others are yet to be told as failed
  if (!gone_ && !send_message(process_->socket(), slot.request, Wait::no)) notice_death();
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
  if (gone_ || send_message(process_->socket(), slot->request, Wait::no)) kept_ = slot;
  return true;
}

void CheckpointWriter::Impl::keep_nothing() {
  keeps_nothing_ = true;
  kept_ = nullptr;
  if (!lost_ && !closed_)
    send_message(process_->socket(), {.kind = Message::Kind::keep_nothing}, Wait::no);
}

void CheckpointWriter::Impl::receive_all() {
  if (lost_ || closed_) return;
  try {
    while (!gone_) {
      const auto received = receive_message(process_->socket(), Wait::no);
      if (!received) break;
      take(received->message);
    }
  } catch (const PeerGone&) {
    notice_death();
  }
  if (gone_ && !closing_) replace_writer();
  if (opening_ && Clock::now() - opening_since_ > options_.open_timeout && !process_->ended() &&
      process_->pid() == 0)
    lose_writer(writer_fault(fmt::format("{}, and the fork server does not answer", how_), how_));
}

void CheckpointWriter::Impl::take(const Message& message) {
  switch (message.kind) {
    case Message::Kind::saved:
    case Message::Kind::failed:
      return finish(message);
    case Message::Kind::closed:
      closed_ = true;
      return;
    case Message::Kind::displaced:
      return lose_writer({Exit::locked, "checkpoints", message.text()});
    case Message::Kind::opened:
      return report_takeover();
    case Message::Kind::refused:
      return refused(message);
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
    text = fmt::format("checkpoint of step {} in {} not saved: {}", message.step, directory_, text);
    if (message.step == last_step_) set_failure({code, "final checkpoint", text});
  }
}

void CheckpointWriter::Impl::notice_death() {
  if (std::exchange(gone_, true)) return;
  gone_since_ = Clock::now();
}

// Training does not wait for the kernel to know how the writer ended: later calls come here again.
void CheckpointWriter::Impl::replace_writer() {
  const auto ending = process_->ended();
  if (!ending && Clock::now() - gone_since_ < ending_patience) return;
  how_ = ending.value_or("closed its connection");
  if (const std::string why = why_not_replaced(how_); !why.empty())
    return lose_writer(writer_fault(why, how_));
  gone_ = false;
  hand_over(busy_slots());
}

// Asks for another one, unless they die too often.
std::string CheckpointWriter::Impl::why_not_replaced(const std::string& how) {
  const auto now = Clock::now();
  deaths_.push_back(now);
  while (now - deaths_.front() > death_window) deaths_.pop_front();
  const std::vector<Slot*> busy = busy_slots();
  const auto in_save = busy.empty() ? std::nullopt : std::optional(busy.front()->step);
  if (in_save && std::exchange(died_in_, in_save) == in_save)
    return fmt::format("{}, the second time in the save of step {}", how, *in_save);
  died_in_ = in_save;
  if (std::ssize(deaths_) > options_.takeovers)
    return fmt::format("{}, death {} within {} minutes", how, deaths_.size(), death_window.count());
  const auto failure = process_->restart();
  return failure ? fmt::format("{}, and no other one can be started: {}", how, *failure) : "";
}

std::vector<CheckpointWriter::Impl::Slot*> CheckpointWriter::Impl::busy_slots() {
  std::vector<Slot*> busy;
  for (Slot& slot : slots_)
    if (slot.busy) busy.push_back(&slot);
  std::ranges::sort(busy, {}, &Slot::since);
  return busy;
}

// With all that a writer knows of this training, as it may be a new one. No slot goes twice to one
// writer: its first answer would free it while the second save reads it.
void CheckpointWriter::Impl::hand_over(const std::vector<Slot*>& slots) {
  opening_ = true;
  refused_ = false;
  opening_since_ = Clock::now();
  bool sent = send_open(true);
  if (!lineage_.empty()) set_lineage(lineage_);
  if (!protected_.empty()) protect(protected_);
  if (kept_ != nullptr) sent = sent && send_message(process_->socket(), kept_->request, Wait::no);
  std::string again;
  for (const Slot* slot : slots) {
    sent = sent && send_message(process_->socket(), slot->request, Wait::no);
    again += fmt::format("{} {}", again.empty() ? "" : " and", slot->step);
  }
  takeover_ = again.empty() ? "" : " and writes the checkpoint of step" + again + " again";
  if (!sent) notice_death();
}

void CheckpointWriter::Impl::report_takeover() {
  if (!std::exchange(opening_, false) || how_.empty()) return;
  events_.push_back(
      {.kind = SaveEvent::Kind::replaced,
       .step = last_step_,
       .text = fmt::format("the checkpoint writer process {}; another one took over{}", how_,
                           takeover_)});
  how_.clear();
}

// As a full disk stops no training, the next save is tried with another `open`. But a directory
// that is another job's now is not to be waited for.
void CheckpointWriter::Impl::refused(const Message& message) {
  opening_ = false;
  const auto code = static_cast<Exit>(message.code);
  if (code == Exit::locked) return lose_writer({code, "checkpoints", message.text()});
  refused_ = true;
  events_.push_back(
      {.kind = SaveEvent::Kind::note,
       .step = last_step_,
       .text = fmt::format("the checkpoint writer process {}; another one was started, but: {}",
                           how_.empty() ? "died" : how_, message.text())});
}

void CheckpointWriter::Impl::lose_writer(Error failure) {
  if (std::exchange(lost_, true)) return;  // both threads of a writer tell that it is displaced
  gone_ = opening_ = false;
  for (Slot& slot : slots_) failed += std::exchange(slot.busy, false);
  events_.push_back({.kind = SaveEvent::Kind::lost, .step = last_step_, .text = failure.what()});
  set_failure(std::move(failure));
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
  if (const auto how = process_->fork_server_ended(); how && !lost_ && !closing_)
    events_.push_back({.kind = SaveEvent::Kind::alone,
                       .step = last_step_,
                       .text = fmt::format("the fork server, which starts another checkpoint "
                                           "writer when one dies, {}: the next such death ends "
                                           "the job",
                                           *how)});
  report_slow_saves();
  return std::exchange(events_, {});
}

std::vector<SaveEvent> CheckpointWriter::Impl::close(Clock::time_point deadline) {
  if (closed_) return poll();
  receive_all();
  while (!lost_ && any_busy() && wait_for_message(deadline)) receive_all();
  if (any_busy()) set_failure(not_in_time());
  for (const Slot& slot : slots_) failed += slot.busy;
  if (any_busy()) {
    process_->kill();  // the saves that this job has given up are not to outlive it
    lost_ = closed_ = true;
    return std::exchange(events_, {});
  }
  // What is left, such as retention, is not worth more: what does not end is killed.
  closing_ = true;
  if (!lost_) send_message(process_->socket(), {.kind = Message::Kind::close}, Wait::no);
  deadline = std::min(deadline, Clock::now() + tidying);
  while (!lost_ && !closed_ && !gone_ && wait_for_message(deadline)) receive_all();
  auto events = poll();
  closed_ = true;
  return events;
}

std::optional<Error> CheckpointWriter::Impl::failure() const { return last_failure_; }

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

}  // namespace ringtrain::io
