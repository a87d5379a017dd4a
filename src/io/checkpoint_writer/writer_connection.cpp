#include "io/checkpoint_writer/writer_connection.hpp"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "io/checkpoint/checkpoint_index.hpp"
#include "ringtrain/base/process.hpp"
#include "ringtrain/host/control_groups.hpp"

namespace ringtrain::io {
namespace {

// Deaths that are further apart have causes of their own.
constexpr std::chrono::minutes death_window{10};
// The socket closes before the kernel knows how a process ended.
constexpr std::chrono::seconds ending_patience{1};
constexpr std::chrono::milliseconds ask_pause{500};

// Empty of one that neither a signal nor a control group keeps from running.
std::string why_not_running(pid_t process) {
  const std::string idle = why_idle(process);
  if (!idle.empty() || !host::is_frozen(process)) return idle;
  return "frozen by its control group: docker unpause or scontrol resume lets it go on";
}

Error writer_lost(const std::string& why, const std::string& how) {
  return Error(Exit::storage, "checkpoints",
               fmt::format("the checkpoint writer process {}: nothing can be saved any more", why))
      .of_kind("writer", key_value("how", how));
}

}  // namespace

Error writer_fault(std::string_view what, std::string_view reason, std::string_view trouble) {
  return Error(Exit::storage, what, reason).of_kind("writer", key_value("how", trouble));
}

WriterConnection::WriterConnection(WriterProcess& process, const std::string& directory,
                                   const WriterOptions& options, const StateLayout& layout,
                                   const SlotDescriptors& slots)
    : process_(process),
      directory_(directory),
      options_(options),
      slots_(slots),
      setup_{.owner = this_process(options.run_id),
             .keep = options.keep,
             .last_save_timeout_s = options.last_save_timeout_s,
             .layout = layout} {}

void WriterConnection::open() {
  send_open(make_setup(false));
  const Message answer = await_answer();
  if (answer.kind != Message::Kind::refused) return;
  if (answer.text().ends_with(reason_of(EAGAIN)))  // no thread: main knows of which limit
    throw std::system_error(EAGAIN, std::generic_category(), "checkpoint writer process");
  throw Error(static_cast<Exit>(answer.code), "checkpoints", answer.text());
}

bool WriterConnection::send(const Message& message, std::span<const int> descriptors) {
  return send_message(process_.socket(), message, Wait::no, descriptors);
}

WriterConnection::Setup WriterConnection::make_setup(bool takes_over) {
  setup_.takes_over = takes_over;
  const std::string text = to_json_text(setup_);
  Setup setup{MappedMemory::create("checkpoint-setup", text.size()), text.size()};
  std::memcpy(setup.memory.bytes().data(), text.data(), text.size());
  return setup;
}

bool WriterConnection::send_open(const Setup& setup) {
  const std::array descriptors = {setup.memory.descriptor(), slots_[0], slots_[1], folder_.get()};
  Message request{.kind = Message::Kind::open, .bytes = setup.bytes};
  const std::span all(descriptors);
  return send(request.with_text(directory_), all.first(folder_.get() < 0 ? 3 : 4));
}

Message WriterConnection::await_answer() {
  Clock::time_point deadline = Clock::now() + options_.open_timeout;
  try {
    while (wait(deadline)) {
      auto [message, descriptors] = std::move(*receive_message(process_.socket(), Wait::yes));
      keep_folder(descriptors);
      if (message.kind == Message::Kind::opened || message.kind == Message::Kind::refused)
        return message;
      if (options_.tell) options_.tell(message.text());
      deadline = Clock::now() + options_.open_timeout;
    }
  } catch (const PeerGone&) {
    const std::string how = process_.ending();
    throw Error(Exit::storage, "checkpoint writer process", how)
        .of_kind("writer", key_value("how", how));
  }
  if (const std::string why = trouble(); !why.empty())
    throw writer_fault("checkpoint directory " + directory_, why, why);
  throw Error(Exit::storage, "checkpoint directory " + directory_,
              fmt::format("no answer within {} s: its file system is not responding",
                          options_.open_timeout.count()));
}

void WriterConnection::keep_folder(std::vector<FileDescriptor>& descriptors) {
  if (!descriptors.empty()) folder_ = std::move(descriptors.front());
}

void WriterConnection::set_lineage(const std::string& lineage) {
  expects(is_lineage(lineage), "set_lineage: 16 hexadecimal digits");
  lineage_ = lineage;
  Message request{.kind = Message::Kind::lineage};
  send(request.with_text(lineage));
}

void WriterConnection::protect(const std::string& name) {
  protected_ = name;
  Message request{.kind = Message::Kind::protect};
  send(request.with_text(name));
}

void WriterConnection::save(const Message& request) {
  const Message* const only = &request;
  if (refused_ && !gone_) return hand_over({&only, 1});  // the others are yet to be told as failed
  if (!gone_ && !send(request)) notice_death();
}

void WriterConnection::keep(const Message& request) {
  kept_ = request;  // the next writer is told, too
  if (refused_ && !gone_) return hand_over({});
  if (!gone_ && !send(request)) notice_death();
}

void WriterConnection::keep_nothing() {
  kept_.reset();
  send({.kind = Message::Kind::keep_nothing});
}

void WriterConnection::hurry() { send({.kind = Message::Kind::hurry}); }

void WriterConnection::close() { send({.kind = Message::Kind::close}); }

std::optional<Message> WriterConnection::receive() try {
  if (gone_) return std::nullopt;
  auto received = receive_message(process_.socket(), Wait::no);
  if (!received) return std::nullopt;
  keep_folder(received->descriptors);
  if (received->message.kind == Message::Kind::moved) setup_.is_away = received->message.code == 0;
  return received->message;
} catch (const PeerGone&) {
  notice_death();
  return std::nullopt;
}

bool WriterConnection::wait(Clock::time_point deadline) {
  if (gone_) {  // what comes next is its end
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return Clock::now() < deadline;
  }
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd socket{process_.socket(), POLLIN, 0};
    const int ready =
        ::poll(&socket, 1, static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

void WriterConnection::notice_death() {
  if (std::exchange(gone_, true)) return;
  gone_since_ = Clock::now();
}

// Training does not wait for the kernel to know how the writer ended: later calls come here again.
std::optional<Error> WriterConnection::take_over(Saves saves) {
  const auto now = Clock::now();
  if (gone_ && !asking_since_) {
    const auto ending = process_.ended();
    if (!ending && now - gone_since_ < ending_patience) return std::nullopt;
    if (ending && process_.could_not_start()) {
      if (!not_started_since_) not_started_since_ = now;
      asking_since_ = not_started_since_;
      ask_later(*ending);
    } else {
      not_started_since_.reset();
      how_it_died_ = ending.value_or("closed its connection");
      if (const std::string why = died_too_often(saves); !why.empty())
        return writer_lost(why, how_it_died_);
      asking_since_ = ask_at_ = now;
    }
  }
  if (gone_ && now >= ask_at_)
    if (const std::string why = ask_for_another(saves); !why.empty())
      return writer_lost(fmt::format("{}, and no other one can be started: {}", how_it_died_, why),
                         how_it_died_);
  if (opening_ && now - opening_since_ > options_.open_timeout && !process_.ended() &&
      process_.pid() == 0)
    return writer_lost(fmt::format("{}; {}", how_it_died_, fork_server_text()), how_it_died_);
  return std::nullopt;
}

std::string WriterConnection::fork_server_text() const {
  const pid_t server = process_.fork_server_pid();
  if (server == 0) return "the fork server, which starts them, is gone, too";
  const std::string idle = why_not_running(server);
  return fmt::format("the fork server, process {}, which is to start another one, {}", server,
                     idle.empty() ? "has not answered" : "is " + idle);
}

std::string WriterConnection::trouble() {
  const auto how = process_.ended();
  if (process_.could_not_start())
    return fmt::format("the checkpoint writer process {}; another one {}", how_it_died_,
                       how.value_or("could not be started"));
  if (gone_ || process_.pid() == 0)
    return fmt::format("the checkpoint writer process {}; {}",
                       !how_it_died_.empty() ? how_it_died_ : how.value_or("closed its connection"),
                       fork_server_text());
  const std::string idle = why_not_running(process_.pid());
  if (idle.empty()) return "";
  return fmt::format("the checkpoint writer, process {}, is {}", process_.pid(), idle);
}

std::string WriterConnection::died_too_often(Saves saves) {
  const auto now = Clock::now();
  deaths_.push_back(now);
  while (now - deaths_.front() > death_window) deaths_.pop_front();
  const auto in_save = saves.empty() ? std::nullopt : std::optional(saves.front()->step);
  if (in_save && std::exchange(died_in_, in_save) == in_save)
    return fmt::format("{}, the second time in the save of step {}", how_it_died_, *in_save);
  died_in_ = in_save;
  if (std::ssize(deaths_) > options_.takeovers)
    return fmt::format("{}, death {} within {} minutes", how_it_died_, deaths_.size(),
                       death_window.count());
  return "";
}

// Returns why there is none and will be none, if so.
std::string WriterConnection::ask_for_another(Saves saves) {
  try {
    const Setup setup = make_setup(true);  // before there is a process that waits for it
    if (const auto failure = process_.restart()) return *failure;
    gone_ = false;
    hand_over(saves, setup);
  } catch (const std::exception& failure) {
    ask_later(failure.what());
  }
  const bool late = gone_ && Clock::now() - *asking_since_ > options_.open_timeout;
  return late ? not_asked_ : "";
}

// No memory or descriptors here: that may pass, and no writer has died of it.
void WriterConnection::ask_later(std::string why) {
  gone_ = true;
  opening_ = false;
  not_asked_ = std::move(why);
  const auto now = Clock::now();
  if (!asking_since_) asking_since_ = now;
  ask_at_ = now + ask_pause;
}

// With all that a writer knows of this training, as it may be a new one. No slot goes twice to one
// writer: its first answer would free it while the second save reads it.
void WriterConnection::hand_over(Saves saves, const Setup& setup) {
  opening_ = true;
  refused_ = false;
  opening_since_ = Clock::now();
  bool sent = send_open(setup);
  if (!sent && is_short_of_memory(errno)) return ask_later(std::generic_category().message(errno));
  asking_since_.reset();
  if (!lineage_.empty()) set_lineage(lineage_);
  if (!protected_.empty()) protect(protected_);
  if (kept_) sent = sent && send(*kept_);
  saved_again_.clear();
  for (const Message* save : saves) {
    sent = sent && send(*save);
    saved_again_ += fmt::format(
        "{} {}", saved_again_.empty() ? " and writes the checkpoint of step" : " and", save->step);
  }
  if (!saved_again_.empty()) saved_again_ += " again";
  if (!sent) notice_death();
}

void WriterConnection::hand_over(Saves saves) try {
  hand_over(saves, make_setup(true));
} catch (const std::exception& failure) {
  ask_later(failure.what());
}

std::string WriterConnection::note_opened() {
  not_started_since_.reset();
  if (!std::exchange(opening_, false) || how_it_died_.empty()) return "";
  return fmt::format("the checkpoint writer process {}; another one took over{}",
                     std::exchange(how_it_died_, ""), saved_again_);
}

// As a full disk stops no training, the next save is tried with another `open`.
std::string WriterConnection::note_refused(const Message& message) {
  opening_ = false;
  not_started_since_.reset();
  refused_ = true;
  return fmt::format("the checkpoint writer process {}; another one was started, but: {}",
                     how_it_died_.empty() ? "died" : how_it_died_, message.text());
}

}  // namespace ringtrain::io
