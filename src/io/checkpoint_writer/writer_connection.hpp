#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint_writer/writer_protocol.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/io/checkpoint_writer/checkpoint_writer.hpp"
#include "ringtrain/io/checkpoint_writer/writer_process.hpp"

namespace ringtrain::io {

/// The fault that ends a job whose writer is in that trouble().
Error writer_fault(std::string_view what, std::string_view reason, std::string_view trouble);

/// The trainer's end of the connection to the writer process, which outlives that process: where it
/// dies, another one is started and takes over the lock of the directory and the snapshots in the
/// slots. Belongs to one thread at a time. Only open() and wait() wait.
class WriterConnection {
 public:
  using Clock = std::chrono::steady_clock;
  using SlotDescriptors = std::array<int, slot_count>;
  using Saves = std::span<const Message* const>;

  /// `process` outlives it, and so do the files of the slots.
  WriterConnection(WriterProcess& process, const std::string& directory,
                   const WriterOptions& options, const StateLayout& layout,
                   const SlotDescriptors& slots);

  /// Has the writer open the directory, and waits for it. Throws Error(Exit::locked) naming the
  /// owner, or Error(Exit::storage).
  void open();
  /// Each writer is told, also the next one.
  void set_lineage(const std::string& lineage);
  void protect(const std::string& name);
  /// Hands a save over. Where the writer is gone, the next one gets it from take_over().
  void save(const Message& request);
  /// Hands over what is to be saved if the trainer ends. A writer that takes over gets it, too.
  void keep(const Message& request);
  void keep_nothing();
  /// A writer that takes over does not hear of it.
  void hurry();
  void close();

  /// What the writer says next; nothing where it has said all, or is gone.
  std::optional<Message> receive();
  /// Waits until there is something to receive, or the end of a writer that is gone is to be looked
  /// at again. Returns false when `deadline` passed first.
  bool wait(Clock::time_point deadline);
  /// Whether there is no writer: it has died, or was given up, and none has taken over yet.
  bool gone() const { return gone_; }

  /// Where the writer is gone, and it is known how: has another one started and hands it `saves`,
  /// which are not answered yet, the oldest first. Where memory, descriptors or processes lack, it
  /// is asked for again by later calls, within WriterOptions::open_timeout. Returns why there is
  /// none, if so: then nothing can be saved any more.
  std::optional<Error> take_over(Saves saves);
  /// Behind Message::Kind::opened and refused of another writer: what to tell the user; empty:
  /// nothing.
  std::string note_opened();
  std::string note_refused(const Message& message);

  /// Why nothing is saved where the file system is not to blame: the writer is stopped, or dead and
  /// not replaced. Says what to do; empty where neither is seen.
  std::string trouble();

  /// Both do what WriterProcess does.
  void kill() { process_.kill(); }
  std::optional<std::string> fork_server_ended() { return process_.fork_server_ended(); }

 private:
  bool send(const Message& message, std::span<const int> descriptors = {});
  /// A WriterSetup as text, which the writer maps.
  struct Setup {
    MappedMemory memory;
    std::size_t bytes = 0;
  };
  Setup make_setup(bool takes_over);
  bool send_open(const Setup& setup);
  Message await_answer();
  void keep_folder(std::vector<FileDescriptor>& descriptors);
  void notice_death();
  std::string fork_server_text() const;
  std::string died_too_often(Saves saves);
  std::string ask_for_another(Saves saves);
  void ask_later(std::string why);
  void hand_over(Saves saves);
  void hand_over(Saves saves, const Setup& setup);

  WriterProcess& process_;
  const std::string directory_;
  const WriterOptions options_;
  const SlotDescriptors slots_;
  // What another writer is told again.
  WriterSetup setup_;
  std::string lineage_, protected_;
  std::optional<Message> kept_;

  bool gone_ = false;      // the writer; the next one is not asked for yet
  FileDescriptor folder_;  // as the writer has it open, for the next one; nothing is done with it
  bool opening_ = false;   // the next one has not answered yet
  bool refused_ = false;   // it could not open the directory
  Clock::time_point gone_since_, opening_since_;
  std::deque<Clock::time_point> deaths_;
  std::optional<std::uint64_t> died_in_;  // the step whose save the last one died in
  // Another one could not be asked for yet, since then, and is at ask_at_; not_asked_ says why.
  std::optional<Clock::time_point> asking_since_, not_started_since_;
  Clock::time_point ask_at_;
  std::string not_asked_;
  // What is told once the next one has answered: how the last one ended, and what is saved again.
  std::string how_it_died_, saved_again_;
};

}  // namespace ringtrain::io
