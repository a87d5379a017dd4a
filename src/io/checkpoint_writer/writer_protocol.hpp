#pragma once
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/lease/lease.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/io/checkpoint/checkpoint.hpp"

// What trainer and writer process say to each other over their SOCK_SEQPACKET pair: one Message
// each, and shared memory for all that is large.
namespace ringtrain::io {

inline constexpr std::size_t slot_count = 2;

struct Message {
  enum class Kind : std::uint32_t {
    // trainer to writer
    /// bytes: of the setup text; descriptors: setup, slots and, once a writer has opened it, the
    /// directory
    open,
    lineage,  ///< text: of the saves to come
    protect,  ///< text: a file name
    save,     ///< slot; bytes: of the metadata text in the slot; code: whether it is the best
    keep,     ///< the same, to be saved only if the trainer ends without `close` or a later save
    keep_nothing,  ///< what was kept is dropped
    hurry,         ///< each `save` before it that has not begun gives way, unless it is the best
    close,
    // writer to trainer
    opened,     ///< descriptor: the directory; likewise of a note that it was opened anew
    refused,    ///< code, text: why open failed
    saved,      ///< slot, step, bytes, seconds; text: file name
    failed,     ///< slot, step, code, text
    gave_way,   ///< slot, step
    note,       ///< text
    waiting,    ///< text: what `open`, or a save that opens anew, waits for; every ten seconds
    displaced,  ///< text: another run has the directory
    moved,  ///< code: whether the path leads to it; text: where it is, a line's end, what to tell
    closed,
    // trainer to fork server, and its answer
    start,    ///< descriptor: the socket of the writer that is to be started
    started,  ///< bytes: its process; or code: errno of why there is none
  };
  Kind kind = Kind::note;
  std::uint32_t slot = 0;
  std::int32_t code = 0;
  std::uint32_t text_bytes = 0;
  std::uint64_t step = 0;
  std::uint64_t bytes = 0;
  double seconds = 0;
  std::array<char, 4000> text_storage{};  // only the first text_bytes travel

  std::string text() const { return {text_storage.data(), text_bytes}; }
  /// Text longer than the storage is cut.
  Message& with_text(std::string_view text);
};

enum class Wait { no, yes };
/// False when the peer is gone or, with Wait::no, its queue is full; errno says which.
bool send_message(int socket, const Message& message, Wait wait,
                  std::span<const int> descriptors = {});

/// Whether a message that was not sent for that reason may be sent later.
bool is_short_of_memory(int error);

struct Received {
  Message message;
  std::vector<FileDescriptor> descriptors;
};
/// nullopt when nothing is there (Wait::no); throws PeerGone when the other side has ended.
std::optional<Received> receive_message(int socket, Wait wait);
struct PeerGone {};

/// How a slot's memory is divided: the buffers, each at a page, then the metadata's text.
struct SlotPlan {
  /// There are buffers, and every tensor lies in its own.
  explicit SlotPlan(const StateLayout& layout);
  std::vector<std::size_t> offsets;  ///< of each buffer, in bytes
  std::size_t text_offset = 0;
  std::size_t bytes = 0;  ///< of the whole slot
  static constexpr std::size_t text_capacity = 2 << 20;
};

/// A memfd mapped for both processes.
class MappedMemory {
 public:
  MappedMemory() = default;
  /// New and allocated in full, so that no later write can fail for want of memory.
  static MappedMemory create(const char* name, std::size_t bytes);
  enum class Access { read, write };
  static MappedMemory map(FileDescriptor memory, Access access);
  MappedMemory(MappedMemory&& other) noexcept;
  MappedMemory& operator=(MappedMemory&& other) noexcept;
  ~MappedMemory();

  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(address_), size_}; }
  int descriptor() const { return memory_.get(); }

 private:
  FileDescriptor memory_;
  void* address_ = nullptr;
  std::size_t size_ = 0;
};

/// A slot as the trainer fills it.
struct SnapshotSlot {
  SnapshotSlot(const StateLayout& layout, const SlotPlan& plan);
  MappedMemory memory;
  std::vector<std::span<float>> buffers;
};

/// What the writer must know before the first save, sent once as text.
struct WriterSetup {
  LeaseHolder owner;
  int keep = 1;
  double last_save_timeout_s = 0;  ///< after the trainer's end
  bool takes_over = false;         ///< from a writer of the same trainer, that died
  bool is_away = false;            ///< the directory, from its path, as that one told
  StateLayout layout;
};
std::string to_json_text(const WriterSetup& setup);
WriterSetup setup_from_json_text(std::string_view text);

}  // namespace ringtrain::io
