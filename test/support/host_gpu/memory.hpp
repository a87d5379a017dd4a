#pragma once
#include <cstddef>
#include <map>

namespace ringtrain::host_gpu {

enum class Place { device, pinned, pageable };

/// What the program has allocated or registered.
class Memory {
 public:
  Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Full of 0xff: no numbers. Ends, up to 256 bytes, where memory ends.
  void* allocate(std::size_t bytes, Place place);
  /// Host memory of somebody else that may be copied to the device from now on.
  void add_pinned(void* data, std::size_t bytes);
  /// False when nothing of this kind begins at `data`.
  bool release(void* data, Place place);

  /// Where all of these bytes lie; parts of two allocations are pageable.
  Place place_of(const void* data, std::size_t bytes) const;
  std::size_t device_bytes() const;
  /// Whether device memory can be touched. It cannot at first; with SIMULATED_GPU_OPEN, which saves
  /// much time where there is much memory, it always can.
  void open(bool touchable);

 private:
  struct Block {
    std::size_t bytes;
    Place place;
    std::byte* pages;  // null: not ours
    std::size_t page_bytes;
  };
  std::map<const std::byte*, Block> blocks_;  // by where they begin
  const bool stays_open_;
  bool open_;
};

}  // namespace ringtrain::host_gpu
