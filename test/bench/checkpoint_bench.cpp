// Cost of checkpoints: what the step loop pays for a save, and the writer's rate against a plain
// O_DIRECT write + fsync of the same bytes. Usage: checkpoint_bench [DIR] [MB] [SAVES] [TENSORS]
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

#include "ringtrain/base/error.hpp"
#include "ringtrain/io/checkpoint/checkpoint_reader.hpp"
#include "ringtrain/io/checkpoint_writer/checkpoint_writer.hpp"
#include "ringtrain/io/checkpoint_writer/writer_process.hpp"

using namespace ringtrain;
using Clock = std::chrono::steady_clock;

namespace {

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// CPU seconds of a process so far.
double cpu_seconds(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text(std::istreambuf_iterator<char>(file), {});
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string skipped;
  for (int i = 3; i < 14; ++i) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

io::StateLayout layout_of(std::size_t floats, std::size_t tensors) {
  io::StateLayout layout{.buffers = {floats, floats}, .tensors = {}};
  const std::size_t each = floats / tensors;
  for (std::size_t i = 0; i < 2 * tensors; ++i) {
    const bool weight = i < tensors;
    layout.tensors.push_back(
        {{fmt::format("{}/layer{}.weight", weight ? "weights" : "optimizer", i % tensors), {each}},
         weight ? 0u : 1u,
         (i % tensors) * each});
  }
  return layout;
}

/// The yardstick: the same bytes, written with nothing else done.
double plain_write(const std::filesystem::path& path, std::size_t bytes) {
  constexpr std::size_t block = 8 << 20;
  static const std::unique_ptr<char, decltype(&std::free)> memory(
      static_cast<char*>(std::aligned_alloc(4096, block)), &std::free);
  std::memset(memory.get(), 1, block);
  const auto start = Clock::now();
  const int file = check_errno(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_DIRECT, 0600),
                               "open O_DIRECT");
  check_errno(::fallocate(file, 0, 0, static_cast<off_t>(bytes)), "fallocate");
  for (std::size_t at = 0; at < bytes; at += block)
    check_errno(static_cast<int>(::pwrite(file, memory.get(), block, static_cast<off_t>(at))),
                "pwrite");
  check_errno(::fsync(file), "fsync");
  ::close(file);
  const double seconds = seconds_since(start);
  ::unlink(path.c_str());
  return seconds;
}

void print(const char* what, std::vector<double> seconds, std::size_t bytes) {
  std::ranges::sort(seconds);
  const double median = seconds[seconds.size() / 2];
  fmt::print("{:<34} median {:8.2f} ms, min {:8.2f}, max {:8.2f}  ({:.0f} MB/s)\n", what,
             median * 1e3, seconds.front() * 1e3, seconds.back() * 1e3,
             static_cast<double>(bytes) / median / 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  const std::filesystem::path directory = argc > 1 ? argv[1] : "bench-checkpoints";
  const std::size_t megabytes = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 205;
  const int saves = argc > 3 ? std::atoi(argv[3]) : 9;
  const std::size_t tensors = argc > 4 ? std::strtoul(argv[4], nullptr, 10) : 161;
  const std::size_t floats = megabytes * 1'000'000 / 8, bytes = floats * 8;
  io::WriterProcess process = io::WriterProcess::start();
  const io::StateLayout layout = layout_of(floats, tensors);
  std::vector<float> parameters(floats, 0.5f), momentum(floats, 0.25f);
  for (std::size_t i = 0; i < floats; ++i) momentum[i] = static_cast<float>(i) * 1e-3f;

  io::CheckpointWriter writer(process, directory, layout, {.run_id = "bench", .keep = 2});
  std::vector<double> stall, durable, plain;
  double cpu = 0;
  std::string last;
  for (int i = 0; i < saves; ++i) {
    plain.push_back(plain_write(directory / "yardstick", bytes));
    const double before = cpu_seconds(process.pid());
    const auto start = Clock::now();
    writer.try_save({.step = static_cast<std::uint64_t>(i), .model = "bench"},
                    [&](io::SnapshotBuffers slot) {
                      std::memcpy(slot[0].data(), parameters.data(), floats * 4);
                      std::memcpy(slot[1].data(), momentum.data(), floats * 4);
                    });
    stall.push_back(seconds_since(start));
    for (bool done = false; !done; std::this_thread::sleep_for(std::chrono::milliseconds(1)))
      for (const io::SaveEvent& event : writer.poll()) {
        if (event.kind != io::SaveEvent::Kind::saved) fmt::print("{}\n", event.text);
        durable.push_back(event.seconds);
        last = event.file;
        done = true;
      }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // retention is over too
    cpu += cpu_seconds(process.pid()) - before;
  }
  writer.close(std::chrono::seconds(60));

  fmt::print("{} MB in {} tensors, {} saves\n", megabytes, 2 * tensors, saves);
  print("try_save (memcpy and hand-over)", stall, bytes);
  print("writer: hand-over to durable", durable, bytes);
  print("plain O_DIRECT write + fsync", plain, bytes);
  fmt::print("writer CPU a save {:.1f} ms\n", cpu / saves * 1e3);
  const auto start = Clock::now();
  io::CheckpointFile::open(directory / last).verify();
  fmt::print("verify {:.1f} ms\n", seconds_since(start) * 1e3);
  std::filesystem::remove_all(directory);
}
