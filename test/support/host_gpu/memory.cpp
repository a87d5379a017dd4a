#include "support/host_gpu/memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "ringtrain/base/error.hpp"

namespace ringtrain::host_gpu {
namespace {

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

void protect(std::byte* pages, std::size_t bytes, bool touchable) {
  check_errno(mprotect(pages, bytes, touchable ? PROT_READ | PROT_WRITE : PROT_NONE), "mprotect");
}

}  // namespace

Memory::Memory() : stays_open_(std::getenv("SIMULATED_GPU_OPEN") != nullptr), open_(stays_open_) {}

void* Memory::allocate(std::size_t bytes, Place place) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t whole = round_up(bytes, 256), size = round_up(whole, page);
  void* const raw = mmap(nullptr, size + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expects(raw != MAP_FAILED, "host_gpu: there is memory");
  auto* const pages = static_cast<std::byte*>(raw);  // the last one stays closed
  protect(pages, size, true);
  std::memset(pages, 0xff, size);
  protect(pages, size, place == Place::pinned || open_);
  std::byte* const data = pages + size - whole;
  blocks_[data] = {bytes, place, pages, size + page};
  return data;
}

void Memory::add_pinned(void* data, std::size_t bytes) {
  blocks_[static_cast<std::byte*>(data)] = {bytes, Place::pinned, nullptr, 0};
}

bool Memory::release(void* data, Place place) {
  const auto found = blocks_.find(static_cast<std::byte*>(data));
  if (found == blocks_.end() || found->second.place != place) return false;
  if (found->second.pages) munmap(found->second.pages, found->second.page_bytes);
  blocks_.erase(found);
  return true;
}

Place Memory::place_of(const void* data, std::size_t bytes) const {
  const auto* const first = static_cast<const std::byte*>(data);
  auto next = blocks_.upper_bound(first);
  if (next == blocks_.begin()) return Place::pageable;
  const auto& [start, block] = *--next;
  return first + bytes <= start + block.bytes ? block.place : Place::pageable;
}

std::size_t Memory::device_bytes() const {
  std::size_t sum = 0;
  for (const auto& [start, block] : blocks_)
    if (block.place == Place::device) sum += block.bytes;
  return sum;
}

void Memory::open(bool touchable) {
  if (stays_open_) return;
  open_ = touchable;
  for (const auto& [start, block] : blocks_) {
    if (block.place != Place::device) continue;
    const auto usable = static_cast<std::size_t>(start - block.pages) + round_up(block.bytes, 256);
    if (usable > 0) protect(block.pages, usable, touchable);
  }
}

}  // namespace ringtrain::host_gpu
