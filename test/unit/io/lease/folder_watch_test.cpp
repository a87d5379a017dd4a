#include "io/lease/folder_watch.hpp"

#include <fcntl.h>
#include <sys/mount.h>

#include <condition_variable>
#include <csignal>
#include <mutex>
#include <vector>

#include "io/lease/lease.hpp"
#include "ringtrain/base/file.hpp"
#include "support/catch.hpp"
#include "unit/io/checkpoint/checkpoint_fixture.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using namespace std::chrono_literals;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

/// An open folder with a lease.
struct OpenFolder {
  TemporaryDirectory above;
  fs::path path = above / "saves", elsewhere = above / "elsewhere";
  FileDescriptor opened;

  OpenFolder() {
    fs::create_directory(path);
    write_lease(path, 1);
    opened = FileDescriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  static void write_lease(const fs::path& folder, std::uint64_t beat) {
    std::string text = to_text({.holder = this_process("a"), .token = "0123456789abcdef"});
    write_bytes(folder / "lock",
                text.replace(lease_beat_offset(), lease_beat(beat).size(), lease_beat(beat)));
  }
  FolderPlace place() const { return find_folder(opened.get(), path.string()).value(); }
};

/// What a watch reports.
struct Reports {
  std::mutex mutex;
  std::condition_variable more;
  std::vector<FolderPlace> all;
  int deaf = 0;  // so many are not heard

  FolderWatch::Report take() {
    return [this](const FolderPlace& place) {
      const std::scoped_lock lock(mutex);
      if (deaf-- > 0) return false;
      all.push_back(place);
      more.notify_all();
      return true;
    };
  }
  bool await(std::size_t count) {
    std::unique_lock lock(mutex);
    return more.wait_for(lock, 60s, [&] { return all.size() >= count; });
  }
};

}  // namespace

TEST_CASE("Folder: one that was renamed is found where it is, and where it was again") {
  const OpenFolder folder;
  CHECK(folder.place().at_path);

  fs::rename(folder.path, folder.elsewhere);
  const FolderPlace moved = folder.place();
  CHECK_FALSE(moved.at_path);
  CHECK(moved.now == folder.elsewhere);
  CHECK_THAT(moved.text,
             Contains("checkpoint directory " + folder.path.string() + " no longer leads to") &&
                 Contains("No such file or directory") &&
                 Contains("that is " + folder.elsewhere.string() + " now"));

  fs::rename(folder.elsewhere, folder.path);
  CHECK(folder.place().at_path);
  CHECK(folder.place().now == folder.path);
}

TEST_CASE("Folder: another one, a file or a link to another in its place is noticed") {
  const OpenFolder folder;
  fs::rename(folder.path, folder.elsewhere);
  SECTION("folder") {
    fs::create_directory(folder.path);
    CHECK_THAT(folder.place().text, Contains("(another folder is there)"));
  }
  SECTION("file") { write_bytes(folder.path, ""); }
  SECTION("link to another") { fs::create_directory_symlink("/tmp", folder.path); }
  SECTION("link in a circle") { fs::create_directory_symlink(folder.path, folder.path); }
  SECTION("link to it") {
    fs::create_directory_symlink(folder.elsewhere, folder.path);
    CHECK(folder.place().at_path);
    fs::remove(folder.path);
  }

  CHECK_FALSE(folder.place().at_path);
  CHECK(folder.place().now == folder.elsewhere);
}

TEST_CASE("Folder: one that was deleted has no path, also where a name looks like that") {
  const OpenFolder folder;
  fs::rename(folder.path, folder.above / "saves (deleted)");
  CHECK(folder.place().now == folder.above / "saves (deleted)");

  fs::remove_all(folder.above / "saves (deleted)");
  CHECK_FALSE(folder.place().at_path);
  CHECK(folder.place().now.empty());
  CHECK_THAT(folder.place().text, Contains("that was deleted, with all checkpoints in it"));
}

TEST_CASE("Folder: with another number it is known by its lease, a copy of it is not") {
  const OpenFolder folder;
  fs::rename(folder.path, folder.elsewhere);
  fs::copy(folder.elsewhere, folder.path);
  CHECK(folder.place().at_path);

  OpenFolder::write_lease(folder.elsewhere, 2);
  CHECK_FALSE(folder.place().at_path);
  CHECK(folder.place().now == folder.elsewhere);
}

TEST_CASE("Folder: what is mounted over it, or unmounted under it, leaves it without a path") {
  const OpenFolder folder;
  if (::mount("none", folder.path.c_str(), "tmpfs", 0, "size=1m") != 0)
    skip_test("no file system can be mounted here");
  const FolderPlace hidden = folder.place();
  const FileDescriptor mounted(::open(folder.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  OpenFolder::write_lease(folder.path, 7);
  const bool over = find_folder(mounted.get(), folder.path.string())->at_path;
  REQUIRE(::umount2(folder.path.c_str(), MNT_DETACH) == 0);
  const FolderPlace unmounted = find_folder(mounted.get(), folder.path.string()).value();

  for (const FolderPlace& place : {hidden, unmounted}) {
    CHECK_FALSE(place.at_path);
    CHECK(place.now.empty());
    CHECK_THAT(place.text, Contains("(another file system is mounted there)") &&
                               Contains("no path leads to that any more"));
  }
  CHECK(over);
  CHECK(folder.place().at_path);
}

TEST_CASE("Folder: a watch reports each change once, and again what nobody heard") {
  const OpenFolder folder;
  Reports reports;
  reports.deaf = 2;
  {
    const FolderWatch watch(folder.opened.get(), folder.path, true, 5ms, reports.take());
    fs::rename(folder.path, folder.elsewhere);
    REQUIRE(reports.await(1));
    std::this_thread::sleep_for(50ms);
    fs::rename(folder.elsewhere, folder.above / "third");
    REQUIRE(reports.await(2));
    fs::rename(folder.above / "third", folder.path);
    REQUIRE(reports.await(3));
  }
  fs::rename(folder.path, folder.elsewhere);
  std::this_thread::sleep_for(50ms);

  REQUIRE(reports.all.size() == 3);
  CHECK(reports.all[0].now == folder.elsewhere);
  CHECK(reports.all[1].now == folder.above / "third");
  CHECK(reports.all[2].at_path);
}

TEST_CASE("Checkpoint writer: saves go on in a folder that was moved, also by the next helper",
          "[waits]") {
  const TemporaryDirectory above;
  const State state(1);
  WriterProcess process = WriterProcess::start();
  CheckpointWriter writer(process, above / "saves", state.layout, {.run_id = "test"});
  fs::rename(above / "saves", above / "moved");
  fs::create_directory(above / "saves");

  const SaveEvent moved = await(writer, SaveEvent::Kind::moved);
  ::kill(process.pid(), SIGKILL);
  await(writer, SaveEvent::Kind::replaced);
  writer.try_save(state.metadata, state.copier());
  await(writer, SaveEvent::Kind::saved);
  fs::remove(above / "saves");
  fs::rename(above / "moved", above / "saves");
  const SaveEvent back = await(writer, SaveEvent::Kind::back);
  writer.close(10s);

  CHECK(moved.file == above / "moved");
  CHECK_THAT(moved.text, Contains("no longer leads to"));
  CHECK(back.file == above / "saves");
  CHECK_FALSE(writer.failure());
  CHECK(names(above / "saves") == std::vector<std::string>{"lock", "step-0000000001.h5"});
}
