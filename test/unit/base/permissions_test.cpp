#include "ringtrain/base/permissions.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>

#include "ringtrain/base/file.hpp"
#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

using namespace ringtrain;
using Catch::Contains;

namespace {

/// What `say` returns as user and group 65534.
std::string as_another_user(const std::function<std::string()>& say) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const FileDescriptor read(ends[0]);
  FileDescriptor write(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(77);
    write_all(write.get(), say());
    ::_exit(0);
  }
  write = {};
  std::array<char, 4096> text{};
  const ssize_t size = ::read(read.get(), text.data(), text.size());
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
    skip_test("this process may be no other user");
  REQUIRE(size > 0);
  return {text.data(), static_cast<std::size_t>(size)};
}

}  // namespace

TEST_CASE("Permissions: a file that was its owner's alone gets the mode that the umask wants") {
  const auto [mask, mode] =
      GENERATE(table<mode_t, mode_t>({{0002, 0664}, {0027, 0640}, {0077, 0600}}));
  const TemporaryFolder folder;
  const FileDescriptor file(
      ::open((folder.path() / "file").c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600));

  const mode_t before = ::umask(mask);
  follow_umask(file.get());
  const mode_t after = ::umask(before);

  struct stat status {};
  REQUIRE(::fstat(file.get(), &status) == 0);
  CHECK((status.st_mode & 07777U) == mode);
  CHECK(after == mask);
}

TEST_CASE("Permissions: what may not be opened is told with owner, mode, user and cure") {
  const TemporaryFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  const std::string file = folder.path() / "file";
  std::ofstream(file).flush();
  std::filesystem::permissions(file, std::filesystem::perms(0640));
  const auto told = [&](Access access) {
    return as_another_user([&] { return why_denied(AT_FDCWD, file, access); });
  };

  CHECK_THAT(told(Access::read), Contains("it belongs to root, group ") &&
                                     Contains("with mode 0640, and this process is nobody") &&
                                     Contains("chmod o+r it, as its owner"));
  CHECK_THAT(told(Access::write), Contains("chmod o+w it, as its owner"));
  CHECK(::chown(file.c_str(), 0, 65534) == 0);
  CHECK_THAT(told(Access::write), Contains("chmod g+w it, as its owner"));
  CHECK_THAT(told(Access::read), Contains("another rule of the system forbids it"));
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0700));
  CHECK(told(Access::read) == "nobody may not enter a folder above it: chmod +x that");
}
