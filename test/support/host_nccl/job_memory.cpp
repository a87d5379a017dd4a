#include "support/host_nccl/job_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "support/host_nccl/ring_sum.hpp"

namespace ringtrain::host_nccl {
namespace {

constexpr std::size_t states = 64 << 10;
static_assert(most_ranks * sizeof(RankState) <= states);
constexpr std::size_t whole =
    states + most_ranks * most_bytes;  // only what is written takes memory

[[noreturn]] void fail(const char* call) {
  throw std::system_error(errno, std::generic_category(), call);
}

}  // namespace

std::size_t Call::bytes() const { return count * bytes_of(static_cast<ncclDataType_t>(type)); }

JobMemory::JobMemory(const std::string& name) : name_(name) {
  const int file = ::shm_open(name_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) fail("shm_open");
  if (::ftruncate(file, static_cast<off_t>(whole)) != 0) fail("ftruncate");
  data_ = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  ::close(file);
  if (data_ == MAP_FAILED) fail("mmap");
}

JobMemory::~JobMemory() { ::munmap(data_, whole); }

std::byte* JobMemory::numbers(int rank) const {
  return static_cast<std::byte*>(data_) + states + static_cast<std::size_t>(rank) * most_bytes;
}

void JobMemory::unlink() const { ::shm_unlink(name_.c_str()); }

}  // namespace ringtrain::host_nccl
