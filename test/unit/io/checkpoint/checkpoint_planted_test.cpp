// What somebody who may write in the checkpoint directory could put there.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <array>
#include <csignal>
#include <functional>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/file.hpp"
#include "support/catch.hpp"
#include "unit/io/checkpoint/checkpoint_fixture.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using namespace std::chrono_literals;
using Catch::Contains;
using Catch::StartsWith;
namespace fs = std::filesystem;

namespace {

const std::string checkpoint = "step-0000000500.h5", temporary = ".step-0000000001.h5.tmp";

void plant_socket(const fs::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.string().copy(address.sun_path, sizeof address.sun_path - 1);
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
}

std::string refusal_of_newest(const fs::path& directory) {
  const LatestCheckpoint latest = find_latest(directory);
  REQUIRE(latest.rejected.size() == 1);
  REQUIRE(latest.file->metadata().step == 100);
  return latest.rejected[0];
}

/// Why a writer cannot take `directory`; empty when it can.
std::string refusal_of_writer(const fs::path& directory) {
  WriterProcess process = WriterProcess::start();
  try {
    const CheckpointWriter writer(process, directory, State(1).layout, {.run_id = "test"});
    return "";
  } catch (const Error& failure) {
    CHECK(failure.code() == Exit::storage);
    return failure.what();
  }
}

/// The exit code of the Error that `act` ends with as user 65534, and its text.
std::string refusal_as_nobody(const std::function<void()>& act) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const FileDescriptor read(ends[0]);
  FileDescriptor write(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(77);
    try {
      act();
    } catch (const Error& failure) {
      write_all(write.get(),
                fmt::format("{} {}", static_cast<int>(failure.code()), failure.what()));
    } catch (const std::exception& failure) {
      write_all(write.get(), failure.what());
    }
    ::_exit(0);
  }
  write = {};
  std::string text(4096, ' ');
  text.resize(
      static_cast<std::size_t>(std::max<ssize_t>(0, ::read(read.get(), text.data(), text.size()))));
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
    skip_test("this process may be no other user");
  return text;
}

bool tells_owner(const std::string& text) {
  return text.find("may not be read: it belongs to root, group ") != text.npos &&
         text.find("with mode 0600, and this process is nobody: chmod o+r it, as its owner") !=
             text.npos;
}

/// What a save of step 1 into `directory` ends with, and the notes before it.
SaveEvent save_first(const fs::path& directory, std::string& notes) {
  const State state(1);
  WriterProcess process = WriterProcess::start();
  CheckpointWriter writer(process, directory, state.layout, {.run_id = "test"});
  writer.try_save(state.metadata, state.copier());
  SaveEvent result;
  for (const SaveEvent& event : writer.close(10s))
    if (event.kind == SaveEvent::Kind::note)
      notes += event.text + "\n";
    else
      result = event;
  return result;
}

/// Makes openat2 fail with `error` from here on, as older kernels and sandboxes do.
void forbid_openat2(int error) {
  const auto number = static_cast<std::uint32_t>(offsetof(seccomp_data, nr));
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, number),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(filter), filter};
  const bool set = ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                   ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
  if (!set) ::_exit(77);
}

/// errno of open_beneath(), or 0.
int open_error(int directory, const char* name) {
  const FileDescriptor file(open_beneath(directory, name, O_RDONLY | O_CLOEXEC));
  return file.get() < 0 ? errno : 0;
}

}  // namespace

TEST_CASE("Planted: what bears a checkpoint's name but is no file is named and passed over") {
  const TemporaryDirectory directory;
  const auto old = save_one(directory, State(100));
  const auto planted = directory / checkpoint;

  SECTION("a link, even to a good checkpoint") {
    fs::create_symlink(old, planted);
    CHECK_THAT(refusal_of_newest(directory), Contains("a symbolic link is not followed here"));
  }
  SECTION("a FIFO") {
    REQUIRE(::mkfifo(planted.c_str(), 0600) == 0);
    CHECK_THAT(refusal_of_newest(directory), Contains("not a regular file but a FIFO"));
  }
  SECTION("a socket") {
    plant_socket(planted);
    CHECK_THAT(refusal_of_newest(directory), Contains("not a regular file but a socket"));
  }
  SECTION("a directory") {
    fs::create_directory(planted);
    CHECK_THAT(refusal_of_newest(directory), Contains("not a regular file but a directory"));
  }
  SECTION("an empty file") {
    write_bytes(planted, "");
    CHECK_THAT(refusal_of_newest(directory), Contains("shorter than a checkpoint's header"));
  }
  SECTION("somebody's HDF5 file") {
    write_bytes(planted, "\x89HDF\r\n\x1a\n" + std::string(5000, '\0'));
    CHECK_THAT(
        refusal_of_newest(directory),
        Contains(
            "not a ringtrain checkpoint (--init-from reads files of torch and safetensors too)"));
  }
  SECTION("of a later version") {
    std::string bytes = file_bytes(old);
    bytes[8] = 3;
    write_bytes(planted, bytes);
    CHECK_THAT(refusal_of_newest(directory),
               Contains("format version 3; this build reads versions 1 and 2"));
  }
}

TEST_CASE("Planted: a device that bears a checkpoint's name is named and passed over") {
  const TemporaryDirectory directory;
  if (::mknod((directory / checkpoint).c_str(), S_IFCHR | 0600, makedev(1, 5)) != 0)
    skip_test("this process may not make devices");
  save_one(directory, State(100));

  CHECK_THAT(refusal_of_newest(directory), Contains("not a regular file but a device"));
}

TEST_CASE("Planted: a path that the user names may be a link, but not a device, FIFO or socket") {
  const TemporaryDirectory directory;
  const State state(1);
  const auto refusal = [&](const fs::path& path) -> std::string {
    try {
      inspect(path);
      return "";
    } catch (const Error& failure) {
      CHECK(failure.code() == Exit::no_valid_checkpoint);
      return failure.what();
    }
  };
  fs::create_symlink(save_one(directory, state), directory / "latest.h5");
  REQUIRE(::mkfifo((directory / "fifo").c_str(), 0600) == 0);

  CHECK(refusal(directory / "latest.h5").empty());
  CHECK_THAT(refusal(directory / "fifo"), Contains("a FIFO"));
  CHECK_THAT(refusal("/dev/zero"), Contains("a device"));
  CHECK_THAT(refusal(directory / "none\x1b[2J"), Contains("none\\x1b[2J: open: No such file"));
}

TEST_CASE("Planted: a file that may not be read is not called damaged: whose it is, is told") {
  const TemporaryDirectory directory;
  const auto old = save_one(directory, State(1)), path = save_one(directory, State(2));
  fs::permissions(directory, fs::perms::all);
  fs::permissions(old, fs::perms(0644));
  fs::permissions(path, fs::perms(0600));

  CHECK(tells_owner(refusal_as_nobody([&] { CheckpointFile::open(path); })));
  CHECK(tells_owner(refusal_as_nobody([&] {
    const LatestCheckpoint latest = find_latest(directory);
    if (latest.file && latest.file->metadata().step == 1 && latest.rejected.size() == 1)
      throw Error(Exit::storage, "older", latest.rejected[0]);
  })));
  fs::permissions(old, fs::perms(0600));
  const std::string none = refusal_as_nobody([&] { find_latest(directory); });
  CHECK_THAT(none, StartsWith("75 ") && Contains("no checkpoint can be read and is intact: "));
  CHECK(tells_owner(none));

  fs::permissions(directory / "lock", fs::perms(0666));
  const std::string bytes = file_bytes(old);
  CHECK(tells_owner(refusal_as_nobody([&] {
    std::string notes;
    throw Error(Exit::storage, "", save_first(directory, notes).text);
  })));
  CHECK(file_bytes(old) == bytes);
}

TEST_CASE("Planted: a lock that may not be written is told with its owner") {
  const TemporaryDirectory directory;
  save_one(directory, State(1));
  fs::permissions(directory, fs::perms::all);
  fs::permissions(directory / "lock", fs::perms(0644));

  CHECK_THAT(refusal_as_nobody([&] { save_one(directory, State(2)); }),
             StartsWith("75 ") && Contains("cannot write in it: its file lock: ") &&
                 Contains("it belongs to root, ") && Contains("chmod o+w it, as its owner"));
}

TEST_CASE("Planted: a directory that is a link is followed, because the user named it") {
  const TemporaryDirectory directory;
  fs::create_directory(directory / "disk");
  fs::create_directory_symlink(directory / "disk", directory / "runs");

  save_one(directory / "runs", State(1));

  CHECK(find_latest(directory / "runs").file);
  CHECK(names(directory / "disk") == std::vector<std::string>{"lock", "step-0000000001.h5"});
}

TEST_CASE("Planted: a lock that is not our file is refused, and what it leads to stays whole") {
  const TemporaryDirectory directory, elsewhere;
  const auto lock = directory / "lock", precious = elsewhere / "precious";
  write_bytes(precious, "not ours");

  SECTION("a link") { fs::create_symlink(precious, lock); }
  SECTION("a second name of another file") { fs::create_hard_link(precious, lock); }
  SECTION("a FIFO") { REQUIRE(::mkfifo(lock.c_str(), 0600) == 0); }
  SECTION("a socket") { plant_socket(lock); }
  SECTION("a directory") { fs::create_directory(lock); }

  CHECK_THAT(refusal_of_writer(directory),
             Contains("its 'lock' is not a file of one name") && Contains("remove it"));
  CHECK(file_bytes(precious) == "not ours");
}

TEST_CASE("Planted: what bears a temporary's name is removed, or told where it cannot be") {
  const TemporaryDirectory directory, elsewhere;
  write_bytes(elsewhere / "precious", "not ours");
  std::string notes;

  SECTION("a link") {
    fs::create_symlink(elsewhere / "precious", directory / temporary);
    CHECK(save_first(directory, notes).kind == SaveEvent::Kind::saved);
    CHECK_THAT(notes, Contains("removed " + temporary));
  }
  SECTION("a directory") {
    fs::create_directory(directory / temporary);
    CHECK(save_first(directory, notes).kind == SaveEvent::Kind::saved);
    CHECK_THAT(notes, Contains("could not remove " + temporary));
  }
  CHECK(file_bytes(elsewhere / "precious") == "not ours");
}

TEST_CASE("Planted: what bears the name of the next checkpoint is replaced, a directory is told") {
  const TemporaryDirectory directory, elsewhere;
  const auto path = directory / "step-0000000001.h5";
  write_bytes(elsewhere / "precious", "not ours");
  std::string notes;

  SECTION("a link") {
    fs::create_symlink(elsewhere / "precious", path);
    CHECK(save_first(directory, notes).kind == SaveEvent::Kind::saved);
  }
  SECTION("a FIFO") {
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    CHECK(save_first(directory, notes).kind == SaveEvent::Kind::saved);
  }
  SECTION("a directory") {
    fs::create_directory(path);
    const SaveEvent event = save_first(directory, notes);
    CHECK(event.kind == SaveEvent::Kind::failed);
    CHECK_THAT(event.text, Contains("a directory has this name and is in the way; remove it"));
    return;
  }
  CHECK_THAT(notes, Contains("replaced step-0000000001.h5, which was damaged"));
  CHECK(fs::is_regular_file(fs::symlink_status(path)));
  CHECK(holds(CheckpointFile::open(path), State(1)));
  CHECK(file_bytes(elsewhere / "precious") == "not ours");
}

TEST_CASE("Planted: a directory in which everybody may write is told") {
  const TemporaryDirectory directory;
  std::string notes, before;
  save_first(directory, before);
  fs::permissions(directory, fs::perms::others_write, fs::perm_options::add);

  save_first(directory, notes);

  CHECK_THAT(notes, Contains("everybody may write in") && Contains("chmod o-w"));
  CHECK(before.empty());
}

namespace {

/// The exit status of a process that tries all ways out of a directory where openat2 fails with
/// `forbidden`, or works: 0 when none leads out, 77 where it cannot be made to fail.
int try_ways_out(int forbidden) {
  const TemporaryDirectory directory;
  write_bytes(directory / "file", "inside");
  fs::create_symlink("file", directory / "link");
  fs::create_symlink("/etc/passwd", directory / "out");

  const pid_t child = ::fork();
  if (child == 0) {
    if (forbidden != 0) forbid_openat2(forbidden);
    const FileDescriptor here(::open(fs::path(directory).c_str(), O_RDONLY | O_DIRECTORY));
    const bool inside =
        open_error(here.get(), "file") == 0 && open_error(here.get(), "none") == ENOENT;
    const bool links =
        open_error(here.get(), "link") == ELOOP && open_error(here.get(), "out") == ELOOP;
    const bool ways = open_error(here.get(), "../file") == EXDEV &&
                      open_error(here.get(), "..") == EXDEV &&
                      open_error(here.get(), "/etc/passwd") == EXDEV;
    ::_exit(inside && links && ways ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : status;
}

}  // namespace

TEST_CASE("open_beneath: no way leads out of the directory") { CHECK(try_ways_out(0) == 0); }

TEST_CASE("open_beneath: no way leads out of the directory without openat2") {
  const int forbidden = GENERATE(ENOSYS, EPERM);
  CAPTURE(forbidden);
  const int status = try_ways_out(forbidden);
  if (status == 77) skip_test("seccomp may not be used here");

  CHECK(status == 0);
}
