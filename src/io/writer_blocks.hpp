#pragma once
#include <linux/aio_abi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "ringtrain/base/unique_handle.hpp"

namespace ringtrain {

/// Offsets, sizes and memory of direct writes are multiples of this.
inline constexpr std::size_t direct_alignment = 4096;

namespace detail {
int destroy_aio(aio_context_t context) noexcept;
}

/// Writes a stream of bytes to an open file in large aligned blocks, a few of them under way while
/// the next is filled (Linux AIO: truly asynchronous with O_DIRECT), so that one thread hashes and
/// writes at once. Failures throw Error with errno's text, at the latest in finish().
class BlockWriter {
 public:
  /// The stream starts at `offset`, a multiple of direct_alignment.
  BlockWriter(int file, std::uint64_t offset);
  ~BlockWriter();
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;

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
  void complete(const io_event& event);
  void write_rest(const Block& block, std::size_t done);

  int file_;
  std::uint64_t offset_;
  std::array<Block, blocks> blocks_;
  std::size_t current_ = 0;
  UniqueHandle<aio_context_t, detail::destroy_aio> context_;  // 0: not offered here
};

}  // namespace ringtrain
