#include "io/checkpoint_writer/writer_server.hpp"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "io/checkpoint/checkpoint_index.hpp"
#include "io/checkpoint/checkpoint_name.hpp"
#include "io/checkpoint_writer/checkpoint_directory.hpp"
#include "io/checkpoint_writer/writer_protocol.hpp"
#include "io/lease/folder_watch.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::io {
namespace {

using Clock = std::chrono::steady_clock;

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::uint64_t state_bytes(const StateLayout& layout) {
  std::uint64_t bytes = 0;
  for (const TensorPlace& place : layout.tensors)
    bytes += element_count(place.info) * sizeof(float);
  return bytes;
}

/// What the trainer asks for, in its order, with a look at what comes behind.
class Requests {
 public:
  explicit Requests(int socket) : socket_(socket) {}

  /// Waits. Throws PeerGone once all was given that came before the trainer's end.
  Received next() {
    if (behind() == nullptr) return std::move(*receive_message(socket_, Wait::yes));
    Received first = std::move(waiting_.front());
    waiting_.pop_front();
    return first;
  }
  /// The next one; null: none is there, or comes any more.
  const Message* behind() {
    hear();
    return waiting_.empty() ? nullptr : &waiting_.front().message;
  }
  bool hold(Message::Kind kind) {
    hear();
    return std::ranges::any_of(waiting_, [&](const Received& r) { return r.message.kind == kind; });
  }
  bool trainer_gone() const { return gone_; }

 private:
  void hear() try {
    while (!gone_) {
      auto received = receive_message(socket_, Wait::no);
      if (!received) return;
      waiting_.push_back(std::move(*received));
    }
  } catch (const PeerGone&) {
    gone_ = true;
  }

  const int socket_;
  std::deque<Received> waiting_;
  bool gone_ = false;
};

class Helper {
 public:
  Helper(int socket, const std::function<void(const LastSaveLimits&)>& prepare)
      : socket_(socket), requests_(socket), prepare_(prepare) {}

  [[noreturn]] void serve() {
    for (;;) handle(requests_.next());
  }

  void handle(Received request) {
    switch (request.message.kind) {
      case Message::Kind::open:
        return open(std::move(request));
      case Message::Kind::lineage:
        lineage_ = request.message.text();
        return;
      case Message::Kind::protect:
        protected_ = request.message.text();
        if (directory_) directory_->protect(protected_);
        return;
      case Message::Kind::save:
        if (request.message.code == 0 && requests_.hold(Message::Kind::hurry) &&
            !requests_.trainer_gone())
          return give_way(request.message);  // else there may be no later one
        return save(request.message);
      case Message::Kind::hurry:
        return;
      case Message::Kind::keep:
        kept_ = request.message;
        return;
      case Message::Kind::keep_nothing:
        kept_.reset();
        return;
      default:
        return close();
    }
  }

  /// The trainer is gone.
  void finish() {
    if (!directory_ && !lost_) return;
    if (kept_ && !(last_ && last_->kind == Message::Kind::saved && last_->step >= kept_->step))
      save(*kept_);
    if (last_ && directory_) directory_->write_last_save(last_save_text(*last_));
  }

 private:
  void open(Received request) {
    Message reply{.kind = Message::Kind::opened};
    try {
      const MappedMemory text = map(request.descriptors.at(0));
      setup_ = setup_from_json_text(as_text(text.bytes().first(request.message.bytes)));
      for (std::size_t i = 0; i < slot_count; ++i) slots_[i] = map(request.descriptors.at(1 + i));
      writer_ = std::make_unique<FileWriter>(setup_.layout);
      path_ = request.message.text();
      is_away_ = setup_.is_away;
      // what waits for another writer is saved without the trainer, too
      const double last_save_s = setup_.takes_over ? setup_.last_save_timeout_s : 0;
      // amid a training, a disk that is too full is trouble of the next save
      take_directory(setup_.takes_over ? 0 : 2 * state_bytes(setup_.layout), {last_save_s, -1, ""},
                     setup_.takes_over ? former_directory(request.descriptors) : FileDescriptor());
      last_.reset();
      kept_.reset();
      lineage_.clear();
      protected_.clear();
    } catch (const Error& failure) {
      reply.kind = Message::Kind::refused;
      reply.code = static_cast<std::int32_t>(failure.code());
      reply.with_text(failure.what());
      refusal_ = failure;
    } catch (const std::exception& failure) {  // no thread for the heartbeat, say
      const Exit code = lacks_thread(failure) ? Exit::limit : Exit::storage;
      reply.kind = Message::Kind::refused;
      reply.code = static_cast<std::int32_t>(code);
      refusal_.emplace(code, "checkpoint directory " + request.message.text(), failure.what());
      reply.with_text(refusal_->what());
    }
    send(reply, reply.kind == Message::Kind::opened);
    send_notes();
  }

  // The one that the writer before had open, wherever it is now. Where its handle is stale, what
  // has its path now must be it.
  FileDescriptor former_directory(const std::vector<FileDescriptor>& descriptors) const {
    constexpr std::size_t place = slot_count + 1;
    if (descriptors.size() > place) {
      const int former = descriptors[place].get();
      FileDescriptor opened(::openat(former, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (opened.get() >= 0) return opened;
    }
    FolderLease::require_still(path_, setup_.owner.run);
    return {};
  }

  // `limits`: until it is taken, as the former lock file is no longer this one's.
  void take_directory(std::uint64_t needed_bytes, const LastSaveLimits& limits,
                      FileDescriptor opened = {}) {
    prepare_(limits);
    watch_.reset();
    directory_.reset();
    directory_ = std::make_unique<CheckpointDirectory>(
        path_, setup_.owner, needed_bytes, lease_calls(), LeaseTerms{}, std::move(opened));
    watch_.emplace(directory_->descriptor(), path_, !is_away_, LeaseTerms{}.beat,
                   [this](const FolderPlace& place) { return report(place); });
    lost_ = false;
    prepare_({setup_.last_save_timeout_s, directory_->lock_file(),
              lease_head(Lease::State::finishing), limits.begins});
  }

  // On the watch's thread.
  bool report(const FolderPlace& place) {
    const Message message{.kind = Message::Kind::moved, .code = place.at_path};
    const bool sent =
        send_message(socket_, Message(message).with_text(place.now + "\n" + place.text), Wait::no);
    if (sent) is_away_ = !place.at_path;
    return sent;
  }

  // A handle stays dead when its file system was mounted again, or its server has forgotten it.
  // While nothing is mounted there, the path names another directory; and another run may have
  // taken this one meanwhile.
  void reopen_if_lost() {
    lost_ = lost_ || (directory_ && !directory_->answers());
    if (!lost_) return;
    FolderLease::require_still(path_, setup_.owner.run);
    take_directory(0, {setup_.last_save_timeout_s, -1, "", false});
    directory_->protect(protected_);
    send(Message{.kind = Message::Kind::note}.with_text(
             fmt::format("{} was opened anew: its handle was stale", path_)),
         true);
  }

  // For reading: whatever becomes of this process, another one finds the states whole.
  static MappedMemory map(FileDescriptor& memory) {
    return MappedMemory::map(std::move(memory), MappedMemory::Access::read);
  }

  LeaseCalls lease_calls() {
    return {.last_save_timeout_s = setup_.last_save_timeout_s,
            .tell =
                [this](const std::string& text) {
                  send(Message{.kind = Message::Kind::waiting}.with_text(text));
                },
            .lost =
                [socket = socket_](const std::string& text) {
                  const auto message = Message{.kind = Message::Kind::displaced}.with_text(text);
                  return send_message(socket, message, Wait::no);
                }};
  }

  void save(const Message& request) {
    const auto start = Clock::now();
    Message reply{.kind = Message::Kind::saved, .slot = request.slot, .step = request.step};
    try {
      reopen_if_lost();
      const Snapshot snapshot = snapshot_in(request);
      reply.bytes = save_also_if_lost(snapshot);
      reply.with_text(checkpoint_name(snapshot.metadata.step));
    } catch (const std::exception& failure) {
      const auto* error = dynamic_cast<const Error*>(&failure);
      reply.kind = Message::Kind::failed;
      reply.code = static_cast<std::int32_t>(error ? error->code() : Exit::storage);
      reply.with_text(failure.what());
      if (directory_)
        reply.with_text(fmt::format("{} ({})", failure.what(), directory_->free_space()));
    }
    reply.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    send(reply);
    last_ = reply;
    if (reply.kind == Message::Kind::saved) retain(request.step);
    send_notes();
  }

  void give_way(const Message& request) {
    send({.kind = Message::Kind::gave_way, .slot = request.slot, .step = request.step});
  }

  // That the handle is dead, some file systems tell in the middle of a save only.
  std::uint64_t save_also_if_lost(const Snapshot& snapshot) {
    try {
      return directory_->save(snapshot, *writer_);
    } catch (const Error&) {
      if (directory_->answers()) throw;
    }
    reopen_if_lost();
    return directory_->save(snapshot, *writer_);
  }

  void retain(std::uint64_t step) {
    try {
      directory_->retain(lineage_, setup_.keep, step, [this] { return is_wanted(); });
    } catch (const Error& failure) {
      if (failure.code() == Exit::locked)
        return send(Message{.kind = Message::Kind::displaced}.with_text(failure.what()));
      if (told_.insert(failure.what()).second)
        send(Message{.kind = Message::Kind::note}.with_text(
            fmt::format("old checkpoints stay: {}", failure.what())));
    }
  }

  // The trainer has something else to do than to close, or is gone: neither waits for retention.
  bool is_wanted() {
    const Message* const next = requests_.behind();
    return next != nullptr ? next->kind != Message::Kind::close : requests_.trainer_gone();
  }

  Snapshot snapshot_in(const Message& request) const {
    if (!directory_ && refusal_) throw *refusal_;
    expects(directory_ != nullptr && request.slot < slot_count, "save: a directory is open");
    const SlotPlan plan(setup_.layout);
    const std::span<const std::byte> slot = slots_[request.slot].bytes();
    Snapshot snapshot{
        .metadata = metadata_from_json_text(as_text(slot.subspan(plan.text_offset, request.bytes))),
        .run_id = setup_.owner.run,
        .lineage = lineage_,
        .buffers = {}};
    if (snapshot.metadata.step != request.step)
      throw Error("checkpoint snapshot", "its slot holds another step");
    for (std::size_t i = 0; i < plan.offsets.size(); ++i)
      snapshot.buffers.emplace_back(reinterpret_cast<const float*>(&slot[plan.offsets[i]]),
                                    setup_.layout.buffers[i]);
    return snapshot;
  }

  // The trainer must get every reply, a slot stays busy until then; its end, the next receive sees.
  void send(const Message& reply, bool with_directory = false) {
    const int directory = with_directory ? directory_->descriptor() : -1;
    static_cast<void>(
        send_message(socket_, reply, Wait::yes, std::span(&directory, with_directory ? 1 : 0)));
  }

  void send_notes() {
    if (!directory_) return;
    for (const std::string& note : directory_->take_notes())
      send(Message{.kind = Message::Kind::note}.with_text(note));
  }

  std::string last_save_text(const Message& save) const {
    const bool saved = save.kind == Message::Kind::saved;
    return fmt::format("step: {}\nresult: {}\n{}: {}\nof: {}\n", save.step,
                       saved ? "saved" : "failed", saved ? "file" : "why", save.text(),
                       setup_.owner.text());
  }

  void close() {
    prepare_({});
    watch_.reset();
    directory_.reset();
    writer_.reset();
    slots_ = {};
    send(Message{.kind = Message::Kind::closed});
  }

  int socket_;
  Requests requests_;
  const std::function<void(const LastSaveLimits&)>& prepare_;
  std::optional<Message> kept_, last_;  // to be saved should the trainer die; what became of a save
  WriterSetup setup_;
  std::string path_, lineage_, protected_;
  std::set<std::string> told_;  // why retention failed
  bool lost_ = false;           // the directory, until it can be opened anew
  std::array<MappedMemory, slot_count> slots_;
  std::unique_ptr<FileWriter> writer_;
  std::unique_ptr<CheckpointDirectory> directory_;
  std::atomic<bool> is_away_ = false;  // the directory, from its path, as was told
  std::optional<FolderWatch> watch_;
  std::optional<Error> refusal_;  // why the last `open` failed
};

}  // namespace

void serve_trainer(int socket, const std::function<void(const LastSaveLimits&)>& prepare) {
  Helper helper(socket, prepare);
  try {
    helper.serve();
  } catch (const PeerGone&) {
    helper.finish();
  }
}

}  // namespace ringtrain::io
