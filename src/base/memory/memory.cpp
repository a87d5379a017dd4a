#include "ringtrain/base/memory/memory.hpp"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace ringtrain {

void Memory::read(View from, std::span<float> to) const {
  expects(from.size() == to.size(), "Memory::read: as many numbers");
  std::ranges::copy(from.host(), to.begin());
}

void Memory::write(std::span<const float> from, View to) const {
  expects(from.size() == to.size(), "Memory::write: as many numbers");
  std::ranges::copy(from, to.data());
}

Buffer HostMemory::allocate(std::size_t count) {
  constexpr std::size_t page = 4096, huge_page = std::size_t{2} << 20;
  const std::size_t bytes = (count * sizeof(float) + page - 1) / page * page;
  if (bytes == 0) return Buffer(View(), [](float*) {});
  const std::size_t alignment = bytes >= huge_page ? huge_page : page;
  auto* raw = static_cast<float*>(
      std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment));
  if (raw == nullptr)
    throw Error(Exit::limit, fmt::format("allocate {} MiB", bytes >> 20), reason_of(ENOMEM));
  if (alignment == huge_page)
    ::madvise(raw, bytes, MADV_HUGEPAGE);  // a hint: failure costs speed only
  std::memset(raw, 0, bytes);
  return Buffer(View(raw, count), [](float* data) { std::free(data); });
}

Buffer ReservedMemory::allocate(std::size_t count) {
  const std::size_t bytes = std::max<std::size_t>(count, 1) * sizeof(float);
  void* raw = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED)
    throw Error(Exit::limit, fmt::format("reserve {} MiB of addresses", bytes >> 20),
                reason_of(errno));
  bytes_ += count * sizeof(float);
  return Buffer(View(static_cast<float*>(raw), count),
                [bytes](float* data) { ::munmap(data, bytes); });
}

}  // namespace ringtrain
