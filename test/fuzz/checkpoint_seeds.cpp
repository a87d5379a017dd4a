// Writes checkpoints for a fuzzer to start from. Usage: checkpoint_seeds DIR
#include <nlohmann/json.hpp>

#include "unit/io/checkpoint/checkpoint_bytes.hpp"
#include "unit/io/checkpoint/checkpoint_fixture.hpp"

using namespace ringtrain;
using namespace ringtrain::test;

namespace {

/// The same checkpoint without HDF5's bytes and with two tensors only: fuzzers like small ones.
std::string small(const std::string& file) {
  auto index = nlohmann::json::parse(index_of(file));
  auto& tensors = index["tensors"];
  std::string body;
  while (tensors.size() > 2) tensors.erase(0);
  for (auto& tensor : tensors) {
    tensor["shape"] = {2, 1};
    tensor["offset"] = get<std::uint32_t>(file, at_user_block) + body.size();
    body +=
        "rest"
        "ring"
        "tail";
  }
  return with_all_hashes(
      with_index(file.substr(0, get<std::uint32_t>(file, at_user_block)) + body, index.dump()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return fmt::print("usage: {} DIR\n", argv[0]), 2;
  const std::filesystem::path home = argv[1];
  const io::TemporaryDirectory directory;
  io::State later(9, 40);
  later.metadata.config = R"({"lr":0.1,"model":"tiny"})";
  io::write_bytes(home / "whole", io::file_bytes(io::save_one(directory, io::State(7, 40))));
  const auto path = io::save_one(directory, later, "another-run", io::lineage_a);
  io::write_bytes(home / "small", small(io::file_bytes(path)));
  io::write_bytes(home / "version_1", as_version_1(small(io::file_bytes(path))));
  for (const char* name : {"small", "version_1"}) io::CheckpointFile::open(home / name).verify();
}
