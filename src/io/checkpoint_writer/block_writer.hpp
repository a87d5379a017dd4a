#pragma once
#include <linux/aio_abi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "ringtrain/base/unique_handle.hpp"

namespace ringtrain::io {

/// Offsets, sizes and memory of direct writes are multiples of this.
inline constexpr std::size_t direct_alignment = 4096;

namespace detail {
int destroy_aio(aio_context_t context) noexcept;
}

/// Writes streams of bytes to open files in large aligned blocks, a few of them under way while the
/// next is filled (Linux AIO: truly asynchronous with O_DIRECT), so that one thread hashes and
/// writes at once. Failures throw Error with errno's text, at the latest in finish(). Made once and
/// used for all files: taking an AIO context down costs 30 ms.
class BlockWriter {
 public:
  BlockWriter();
  ~BlockWriter();
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;

  /// Starts a stream at `offset` of `file`, a multiple of direct_alignment. What an unfinished one
  /// left under way is waited for and forgotten.
  void begin(int file, std::uint64_t offset);
  void append(std::span<const std::byte> bytes);
  /// Writes what is left, padded with zeros to direct_alignment, and waits for all blocks.
  void finish();

 private:
  static constexpr std::size_t block_bytes = 2 << 20;
  static constexpr std::size_t blocks = 4;
  struct Block {
    std::unique_ptr<std::byte, decltype(&std::free)> memory{nullptr, &std::free};
    std::size_t filled = 0;
    iocb request{};
    bool under_way = false;
  };

  void start(Block& block);
  void wait_for(Block& block);
  io_event next_event();
  void complete(const io_event& event);
  void write_rest(const Block& block, std::size_t done);
  bool leave_direct_mode() const;

  int file_ = -1;
  std::uint64_t offset_ = 0;
  std::array<Block, blocks> blocks_;
  std::size_t current_ = 0;
  UniqueHandle<aio_context_t, detail::destroy_aio> context_;  // 0: not offered here
};

}  // namespace ringtrain::io
