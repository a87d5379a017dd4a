#include "ringtrain/base/file.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <thread>

#include "ringtrain/base/error.hpp"
#include "support/catch.hpp"

using namespace ringtrain;

namespace {

struct Pipe {
  FileDescriptor read, write;
};

Pipe open_pipe() {
  std::array<int, 2> ends{};
  check_errno(::pipe(ends.data()), "pipe");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

int waiting_in(const Pipe& pipe) {
  int bytes = 0;
  check_errno(::ioctl(pipe.read.get(), FIONREAD, &bytes), "ioctl");
  return bytes;
}

std::size_t read_all(const Pipe& pipe) {
  std::array<char, 4096> piece{};
  std::size_t all = 0;
  for (ssize_t n = 1; n > 0; all += n) n = ::read(pipe.read.get(), piece.data(), piece.size());
  return all;
}

}  // namespace

TEST_CASE("write_all: goes on where a signal cut it short") {
  struct sigaction before {};
  struct sigaction nothing {};
  nothing.sa_handler = [](int) {};
  ::sigaction(SIGUSR1, &nothing, &before);
  Pipe pipe = open_pipe();
  const int capacity = ::fcntl(pipe.write.get(), F_GETPIPE_SZ);
  const std::string text(300'000, 'x');
  std::thread writer([&] {
    write_all(pipe.write.get(), text);
    pipe.write = {};
  });
  while (waiting_in(pipe) < capacity) std::this_thread::yield();

  ::pthread_kill(writer.native_handle(), SIGUSR1);
  const std::size_t read = read_all(pipe);
  writer.join();
  ::sigaction(SIGUSR1, &before, nullptr);

  CHECK(read == text.size());
}

TEST_CASE("write_all: gives up where nobody reads") {
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  Pipe pipe = open_pipe();
  pipe.read = {};

  write_all(pipe.write.get(), "lost");
  write_all(-1, "lost");

  CHECK(errno == EBADF);
  std::signal(SIGPIPE, before);
}

TEST_CASE("write_if_read: what a full pipe does not take is lost, and nobody waits") {
  const Pipe pipe = open_pipe();
  write_if_read(pipe.write.get(), "heard\n");
  CHECK(waiting_in(pipe) == 6);
  const int room = ::fcntl(pipe.write.get(), F_GETPIPE_SZ);
  write_if_read(pipe.write.get(), std::string(static_cast<std::size_t>(4 * room), 'x'));  // returns
  const int held = waiting_in(pipe);
  CHECK(held <= room);
  write_if_read(pipe.write.get(), "lost\n");
  CHECK(waiting_in(pipe) == held);
}
