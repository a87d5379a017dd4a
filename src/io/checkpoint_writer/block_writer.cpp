#include "io/checkpoint_writer/block_writer.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "ringtrain/base/file.hpp"

namespace ringtrain::io {

// Waits for the writes under way.
int detail::destroy_aio(aio_context_t context) noexcept {
  return static_cast<int>(::syscall(SYS_io_destroy, context));
}

BlockWriter::BlockWriter() {
  for (Block& block : blocks_) {
    block.memory.reset(static_cast<std::byte*>(std::aligned_alloc(direct_alignment, block_bytes)));
    if (block.memory == nullptr) throw std::bad_alloc();
  }
  aio_context_t context = 0;
  if (::syscall(SYS_io_setup, blocks, &context) == 0)
    context_ = UniqueHandle<aio_context_t, detail::destroy_aio>(context);
}

BlockWriter::~BlockWriter() { context_ = {}; }  // before the memory goes

void BlockWriter::begin(int file, std::uint64_t offset) {
  while (std::ranges::any_of(blocks_, &Block::under_way))
    blocks_[next_event().data].under_way = false;
  for (Block& block : blocks_) block.filled = 0;
  file_ = file;
  offset_ = offset;
  current_ = 0;
}

void BlockWriter::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    Block& block = blocks_[current_];
    wait_for(block);
    const std::size_t piece = std::min(bytes.size(), block_bytes - block.filled);
    std::memcpy(block.memory.get() + block.filled, bytes.data(), piece);
    block.filled += piece;
    bytes = bytes.subspan(piece);
    if (block.filled == block_bytes) start(block);
  }
}

void BlockWriter::finish() {
  Block& last = blocks_[current_];
  if (last.filled > 0) {
    const std::size_t padded =
        (last.filled + direct_alignment - 1) / direct_alignment * direct_alignment;
    std::memset(last.memory.get() + last.filled, 0, padded - last.filled);
    last.filled = padded;
    start(last);
  }
  for (Block& block : blocks_) wait_for(block);
}

void BlockWriter::start(Block& block) {
  block.request = {};
  block.request.aio_lio_opcode = IOCB_CMD_PWRITE;
  block.request.aio_fildes = static_cast<std::uint32_t>(file_);
  block.request.aio_buf = reinterpret_cast<std::uintptr_t>(block.memory.get());
  block.request.aio_nbytes = block.filled;
  block.request.aio_offset = static_cast<std::int64_t>(offset_);
  block.request.aio_data = static_cast<std::uint64_t>(&block - blocks_.data());
  offset_ += block.filled;
  current_ = (current_ + 1) % blocks;

  iocb* request = &block.request;
  if (context_.get() != 0 && ::syscall(SYS_io_submit, context_.get(), 1, &request) == 1) {
    block.under_way = true;
    return;
  }
  write_rest(block, 0);
  block.filled = 0;
}

void BlockWriter::wait_for(Block& block) {
  while (block.under_way) complete(next_event());
}

io_event BlockWriter::next_event() {
  io_event event{};
  while (::syscall(SYS_io_getevents, context_.get(), 1, 1, &event, nullptr) != 1)
    if (errno != EINTR) check_storage(-1, "io_getevents");
  return event;
}

void BlockWriter::complete(const io_event& event) {
  Block& block = blocks_[event.data];
  block.under_way = false;
  // what failed is told by trying it once more, in write_rest()
  write_rest(block, static_cast<std::size_t>(std::max<std::int64_t>(event.res, 0)));
  block.filled = 0;
}

// Some file systems take O_DIRECT at open() and refuse the writes; a short write leaves a rest that
// none would take.
bool BlockWriter::leave_direct_mode() const {
  const int flags = ::fcntl(file_, F_GETFL);
  return flags >= 0 && (flags & O_DIRECT) != 0 && ::fcntl(file_, F_SETFL, flags & ~O_DIRECT) == 0;
}

void BlockWriter::write_rest(const Block& block, std::size_t done) {
  while (done < block.filled) {
    const ssize_t written =
        ::pwrite(file_, block.memory.get() + done, block.filled - done,
                 static_cast<off_t>(block.request.aio_offset + static_cast<std::int64_t>(done)));
    if (written < 0 && (errno == EINTR || (errno == EINVAL && leave_direct_mode()))) continue;
    if (written == 0) errno = ENOSPC;  // POSIX allows it; it must not become an endless loop
    check_storage(written > 0 ? 0 : -1, "write");
    done += static_cast<std::size_t>(written);
  }
}

}  // namespace ringtrain::io
