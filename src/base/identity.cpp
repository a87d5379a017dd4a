#include "ringtrain/base/identity.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <random>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/program.hpp"

namespace ringtrain {

std::string program_hash() {
  const std::string path = own_program();
  const FileDescriptor file(
      check_errno(::open(path.c_str(), O_RDONLY | O_CLOEXEC), "open " + path));
  struct stat status = {};
  check_errno(::fstat(file.get(), &status), "fstat " + path);
  const auto size = static_cast<std::size_t>(status.st_size);
  void* bytes = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (bytes == MAP_FAILED) check_errno(-1, "mmap " + path);
  const std::uint64_t hash = hash_bytes({static_cast<const std::byte*>(bytes), size});
  ::munmap(bytes, size);
  return hex(hash);
}

std::string run_id(const std::string& host) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  return fmt::format("{}-{}-{}", seconds, ::getpid(), host).substr(0, 39);
}

std::string new_lineage() {
  std::random_device random;
  static_assert(sizeof(std::random_device::result_type) == 4);
  return hex(std::uint64_t{random()} << 32 | random());
}

}  // namespace ringtrain
