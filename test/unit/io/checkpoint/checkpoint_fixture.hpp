#pragma once
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ringtrain/io/checkpoint/checkpoint_reader.hpp"
#include "ringtrain/io/checkpoint_writer/checkpoint_writer.hpp"
#include "ringtrain/io/checkpoint_writer/writer_process.hpp"

namespace ringtrain::io {

/// A new directory, gone with all its content at the end.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(
      const std::filesystem::path& in = std::filesystem::temp_directory_path()) {
    std::string pattern = (in / "ringtrain-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = pattern;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  operator const std::filesystem::path&() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Of two trainings.
inline const std::string lineage_a = "0123456789abcdef", lineage_b = "fedcba9876543210";

inline std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::vector<std::string> names(const std::filesystem::path& directory) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    found.push_back(entry.path().filename().string());
  std::ranges::sort(found);
  return found;
}

/// A trainer's state of two buffers, its tensors in another order than in memory.
struct State {
  StateLayout layout;
  std::vector<std::vector<float>> buffers;
  CheckpointMetadata metadata;

  /// About `scale` floats a buffer; values depend on `step`.
  explicit State(std::uint64_t step, std::size_t scale = 100) {
    const std::uint64_t rest = scale - 27 - 5;
    layout.buffers = {scale, 6};
    layout.tensors = {
        {{"weights/fc.weight", {rest}}, 0, 32}, {{"weights/conv1.weight", {3, 3, 3}}, 0, 0},
        {{"weights/conv1.bias", {5}}, 0, 27},   {{"statistics/bn1.running_mean", {2, 3}}, 1, 0},
        {{"statistics/bn1.count", {}}, 1, 5},   {{"ema/empty", {0, 7}}, 1, 6}};
    layout.tensors[3].info.shape = {5};
    for (std::size_t b = 0; b < layout.buffers.size(); ++b) {
      buffers.emplace_back(layout.buffers[b]);
      for (std::size_t i = 0; i < buffers[b].size(); ++i)
        buffers[b][i] =
            static_cast<float>(step) + static_cast<float>(i % 9973) * 0.5f - static_cast<float>(b);
    }
    metadata = {.step = step,
                .epoch = 3,
                .position = step * 128,
                .seed = 42,
                .world_size = 4,
                .global_batch = 128,
                .model = "tiny",
                .model_hash = 0x0123456789abcdef,
                .config = R"({"lr":0.1})",
                .optimizer = R"({"kind":"momentum"})",
                .buckets = {0, 50, 100},
                .plans = "{}"};
  }

  std::vector<TensorInfo> infos() const {
    std::vector<TensorInfo> all;
    for (const TensorPlace& place : layout.tensors) all.push_back(place.info);
    return all;
  }
  std::vector<float> tensor(std::size_t i) const {
    const TensorPlace& place = layout.tensors[i];
    const auto begin = buffers[place.buffer].begin() + static_cast<std::ptrdiff_t>(place.offset);
    return {begin, begin + static_cast<std::ptrdiff_t>(element_count(place.info))};
  }
  std::function<void(SnapshotBuffers)> copier() const {
    return [this](SnapshotBuffers slot) {
      for (std::size_t b = 0; b < buffers.size(); ++b)
        std::ranges::copy(buffers[b], slot[b].begin());
    };
  }
};

/// Polls until an event of `kind` comes; fails after a hundred seconds.
inline SaveEvent await(CheckpointWriter& writer, SaveEvent::Kind kind) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(100);
  std::string others;
  while (std::chrono::steady_clock::now() < deadline) {
    for (const SaveEvent& event : writer.poll()) {
      if (event.kind == kind) return event;
      others += event.text + event.file + "; ";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  throw std::runtime_error("the awaited event did not come; others: " + others);
}

/// Saves `state` and waits until it is durable. Returns the file's path.
inline std::filesystem::path save_one(const std::filesystem::path& directory, const State& state,
                                      const std::string& run_id = "test",
                                      const std::string& lineage = "") {
  WriterProcess process = WriterProcess::start();
  CheckpointWriter writer(process, directory, state.layout, {.run_id = run_id});
  writer.set_lineage(lineage);
  writer.try_save(state.metadata, state.copier());
  const SaveEvent event = await(writer, SaveEvent::Kind::saved);
  writer.close(std::chrono::seconds(10));
  return directory / event.file;
}

/// Reads all tensors of `file` as a checkpoint of `state`'s layout.
inline std::vector<std::vector<float>> read_all(const CheckpointFile& file, const State& state) {
  std::vector<std::vector<float>> values;
  std::vector<std::span<float>> spans;
  for (const TensorInfo& info : state.infos()) values.emplace_back(element_count(info));
  for (auto& tensor : values) spans.emplace_back(tensor);
  read_checkpoint(file, state.infos(), spans);
  return values;
}

inline bool holds(const CheckpointFile& file, const State& state) {
  const auto values = read_all(file, state);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] != state.tensor(i)) return false;
  return file.metadata() == state.metadata;
}

}  // namespace ringtrain::io
