#include "io/checkpoint_writer/writer_protocol.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/file.hpp"

namespace ringtrain::io {
namespace {

using Json = nlohmann::json;

constexpr std::size_t most_descriptors = slot_count + 2;
constexpr std::size_t page = 4096;

struct alignas(cmsghdr) Control {
  std::array<char, CMSG_SPACE(sizeof(int) * most_descriptors)> bytes{};
};

std::size_t pages(std::size_t bytes) { return (bytes + page - 1) / page * page; }

std::vector<FileDescriptor> descriptors_of(msghdr& header) {
  std::vector<FileDescriptor> descriptors;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_type != SCM_RIGHTS) continue;
    std::array<int, most_descriptors> raw{};
    const std::size_t bytes = part->cmsg_len - CMSG_LEN(0);
    std::memcpy(raw.data(), CMSG_DATA(part), bytes);
    for (std::size_t i = 0; i < bytes / sizeof(int); ++i) descriptors.emplace_back(raw[i]);
  }
  return descriptors;
}

}  // namespace

Message& Message::with_text(std::string_view text) {
  text_bytes = static_cast<std::uint32_t>(std::min(text.size(), text_storage.size()));
  std::memcpy(text_storage.data(), text.data(), text_bytes);
  return *this;
}

bool send_message(int socket, const Message& message, Wait wait, std::span<const int> descriptors) {
  iovec part{const_cast<Message*>(&message), offsetof(Message, text_storage) + message.text_bytes};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  Control control;
  if (!descriptors.empty()) {
    header.msg_control = control.bytes.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &header, MSG_NOSIGNAL | (wait == Wait::no ? MSG_DONTWAIT : 0));
  } while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

bool is_short_of_memory(int error) {
  return error == EAGAIN || error == ENOBUFS || error == ENOMEM || error == ETOOMANYREFS;
}

std::optional<Received> receive_message(int socket, Wait wait) {
  Received received;
  Control control;
  iovec part{&received.message, sizeof received.message};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes.data();
  header.msg_controllen = control.bytes.size();
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC | (wait == Wait::no ? MSG_DONTWAIT : 0));
    // A peer that is gone with messages unread resets the connection, told once; what it sent
    // before that is still to come.
  } while (got < 0 && (errno == EINTR || errno == ECONNRESET));
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
  received.descriptors = descriptors_of(header);
  if (got < static_cast<ssize_t>(offsetof(Message, text_storage))) throw PeerGone{};
  return received;
}

SlotPlan::SlotPlan(const StateLayout& layout) {
  expects(!layout.buffers.empty(), "StateLayout: at least one buffer");
  for (const TensorPlace& place : layout.tensors)
    expects(place.buffer < layout.buffers.size() && place.offset <= layout.buffers[place.buffer] &&
                element_count(place.info) <= layout.buffers[place.buffer] - place.offset,
            "StateLayout: every tensor lies in its buffer");
  for (const std::size_t floats : layout.buffers) {
    offsets.push_back(text_offset);
    text_offset += pages(floats * sizeof(float));
  }
  bytes = text_offset + text_capacity;
}

SnapshotSlot::SnapshotSlot(const StateLayout& layout, const SlotPlan& plan)
    : memory(MappedMemory::create("checkpoint-slot", plan.bytes)) {
  for (std::size_t i = 0; i < layout.buffers.size(); ++i)
    buffers.emplace_back(reinterpret_cast<float*>(memory.bytes().data() + plan.offsets[i]),
                         layout.buffers[i]);
}

MappedMemory MappedMemory::create(const char* name, std::size_t bytes) {
  FileDescriptor memory(check_errno(::memfd_create(name, MFD_CLOEXEC), "memfd_create"));
  const auto size = static_cast<off_t>(bytes);
  if (uninterrupted([&] { return ::fallocate(memory.get(), 0, 0, size); }) != 0)
    throw Error(errno == EFBIG ? Exit::limit : Exit::storage, "shared memory for checkpoints",
                std::to_string(bytes >> 20) + " MiB: " + reason_of(errno) +
                    "; two slots of the state's size are needed");
  return map(std::move(memory), Access::write);
}

MappedMemory MappedMemory::map(FileDescriptor memory, Access access) {
  struct stat status {};
  check_errno(::fstat(memory.get(), &status), "fstat of shared memory");
  MappedMemory mapped;
  mapped.size_ = static_cast<std::size_t>(status.st_size);
  // populated now, or the first save would pay a page fault for every 4 KiB
  mapped.address_ = ::mmap(nullptr, std::max(mapped.size_, page),
                           access == Access::write ? PROT_READ | PROT_WRITE : PROT_READ,
                           MAP_SHARED | MAP_POPULATE, memory.get(), 0);
  if (mapped.address_ == MAP_FAILED) {
    mapped.address_ = nullptr;
    check_errno(-1, "mmap of shared memory");
  }
  mapped.memory_ = std::move(memory);
  return mapped;
}

MappedMemory::MappedMemory(MappedMemory&& other) noexcept
    : memory_(std::move(other.memory_)),
      address_(std::exchange(other.address_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(address_, other.address_);
  std::swap(size_, other.size_);
  return *this;
}

MappedMemory::~MappedMemory() {
  if (address_ != nullptr) ::munmap(address_, std::max(size_, page));
}

std::string to_json_text(const WriterSetup& setup) {
  Json tensors = Json::array();
  for (const TensorPlace& place : setup.layout.tensors)
    tensors.push_back({{"name", place.info.name},
                       {"shape", place.info.shape},
                       {"buffer", place.buffer},
                       {"offset", place.offset}});
  const LeaseHolder& owner = setup.owner;
  const Json json = {{"run", owner.run},
                     {"host", owner.host},
                     {"boot", owner.boot},
                     {"job", owner.job},
                     {"process", owner.process},
                     {"started", owner.started},
                     {"pids", owner.pids},
                     {"keep", setup.keep},
                     {"last_save_timeout_s", setup.last_save_timeout_s},
                     {"takes_over", setup.takes_over},
                     {"is_away", setup.is_away},
                     {"buffers", setup.layout.buffers},
                     {"tensors", tensors}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

WriterSetup setup_from_json_text(std::string_view text) {
  const Json json = Json::parse(text);
  WriterSetup setup{.owner = {.run = json.at("run"),
                              .host = json.at("host"),
                              .boot = json.at("boot"),
                              .job = json.at("job"),
                              .process = json.at("process"),
                              .started = json.at("started"),
                              .pids = json.at("pids")},
                    .keep = json.at("keep"),
                    .last_save_timeout_s = json.at("last_save_timeout_s"),
                    .takes_over = json.at("takes_over"),
                    .is_away = json.at("is_away"),
                    .layout = {.buffers = json.at("buffers"), .tensors = {}}};
  for (const Json& row : json.at("tensors"))
    setup.layout.tensors.push_back({.info = {row.at("name"), row.at("shape")},
                                    .buffer = row.at("buffer"),
                                    .offset = row.at("offset")});
  return setup;
}

}  // namespace ringtrain::io
