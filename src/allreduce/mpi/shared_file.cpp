#include "allreduce/mpi/shared_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <system_error>

namespace ringtrain::allreduce {
namespace {

// Where the first rank's memfd is to be found, and which file it is: in another container the same
// path may lead to another process's file.
struct Owner {
  pid_t process;
  int file;
  dev_t device;
  ino_t inode;
};

struct stat status_of(int file) {
  struct stat status {};
  check_errno(::fstat(file, &status), "fstat");
  return status;
}

FileDescriptor open_of(const Owner& owner) {
  const std::string path = fmt::format("/proc/{}/fd/{}", owner.process, owner.file);
  const auto refuse = [&](const std::string& why) {
    throw Error(Exit::usage, "share memory between the ranks of this host",
                fmt::format("{}: {}; start all ranks of a host as one user and in one container, "
                            "or choose --allreduce mpi",
                            path, why));
  };
  FileDescriptor shared(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (shared.get() < 0) refuse(std::generic_category().message(errno));
  const struct stat status = status_of(shared.get());
  if (status.st_dev != owner.device || status.st_ino != owner.inode) refuse("is another file");
  return shared;
}

}  // namespace

// The first rank's memfd, open in every rank: by its name under /proc, no sockets needed.
FileDescriptor open_together(MPI_Comm local) {
  int rank = 0;
  mpi::check(MPI_Comm_rank(local, &rank), "MPI_Comm_rank");
  FileDescriptor shared;
  Owner owner{};
  std::optional<Error> refusal;  // thrown once no other rank waits for this one
  const auto attempt = [&](const auto& open) {
    try {
      shared = open();
    } catch (const Error& failure) {
      refusal = failure;
    }
  };
  if (rank == 0)
    attempt([&] {
      FileDescriptor made(check_errno(::memfd_create("ringtrain", MFD_CLOEXEC), "memfd_create"));
      const struct stat status = status_of(made.get());
      owner = {::getpid(), made.get(), status.st_dev, status.st_ino};
      return made;
    });
  mpi::check(MPI_Bcast(&owner, sizeof(owner), MPI_BYTE, 0, local), "MPI_Bcast");
  if (rank != 0) attempt([&] { return open_of(owner); });
  mpi::check(MPI_Barrier(local), "MPI_Barrier");  // the first rank may close it now
  if (refusal) throw *refusal;
  return shared;
}

}  // namespace ringtrain::allreduce
