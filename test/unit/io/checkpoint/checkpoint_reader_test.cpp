#include "ringtrain/io/checkpoint/checkpoint_reader.hpp"

#include <sys/stat.h>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"
#include "support/catch.hpp"
#include "support/sanitized.hpp"
#include "unit/io/checkpoint/checkpoint_bytes.hpp"
#include "unit/io/checkpoint/checkpoint_complaint.hpp"
#include "unit/io/checkpoint/checkpoint_fixture.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using Catch::Contains;

namespace {

/// Calls `probe` with each damaged version of the file at `path`, one after the other.
template <class Probe>
void with_each_flip(const std::filesystem::path& path, std::size_t stride, Probe probe) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  const std::string good = file_bytes(path);
  for (std::size_t i = 0; i < good.size(); i += stride) {
    const auto put = [&](char c) {
      file.seekp(static_cast<std::streamoff>(i));
      file.put(c).flush();
    };
    put(static_cast<char>(good[i] ^ (1 << (i % 8))));
    probe(i);
    put(good[i]);
  }
}

/// Of the folder; empty where it is taken.
template <class Act>
std::string refusal(Act act) {
  try {
    act();
    return "";
  } catch (const Error& failure) {
    CHECK(failure.code() == Exit::incompatible_checkpoint);
    return failure.what();
  }
}

}  // namespace

TEST_CASE("Checkpoint reader: a flip of any byte is detected") {
  const TemporaryDirectory directory;
  const auto path = save_one(directory, State(7, 5000), "test", lineage_a);
  if (GENERATE(false, true)) write_bytes(path, test::as_version_1(file_bytes(path)));
  REQUIRE(std::filesystem::file_size(path) > 20'000);
  REQUIRE(complaint(path).empty());

  std::size_t silent = 0;
  with_each_flip(path, sanitized ? 7 : 1, [&](std::size_t) { silent += complaint(path).empty(); });

  CHECK(silent == 0);
}

TEST_CASE("Checkpoint reader: a shorter or longer file is refused, saying by how much") {
  const TemporaryDirectory directory;
  const auto path = save_one(directory, State(7));
  const std::string good = file_bytes(path);

  for (const std::size_t length :
       {0ul, 1ul, 95ul, 96ul, 127ul, 128ul, 4095ul, 4096ul, good.size() / 2, good.size() - 1}) {
    write_bytes(path, good.substr(0, length));
    CHECK_FALSE(complaint(path).empty());
  }
  write_bytes(path, good + 'x');

  CHECK_THAT(complaint(path), Contains(std::to_string(good.size() + 1) + " bytes long instead of"));
}

TEST_CASE("Checkpoint reader: the damaged tensor is named") {
  const TemporaryDirectory directory;
  const State state(7, 3000);
  const auto path = save_one(directory, state);
  std::string bytes = file_bytes(path);
  const std::vector<float> weight = state.tensor(0);
  const auto at = bytes.find({reinterpret_cast<const char*>(weight.data()), 400});
  REQUIRE(at != std::string::npos);

  bytes[at + 399] ^= 1;
  write_bytes(path, bytes);

  CHECK_THAT(complaint(path), Contains("tensor weights/fc.weight fails its hash") &&
                                  Contains(path.string()) && !Contains("bias"));
}

TEST_CASE("Checkpoint reader: a checkpoint of another model is refused with names and shapes") {
  const TemporaryDirectory directory;
  const State state(7);
  const CheckpointFile file = CheckpointFile::open(save_one(directory, state));
  auto other = state.infos();
  other[1].shape = {3, 3, 4};
  other.erase(other.begin());
  other.push_back({"weights/more", {2}});
  std::ranges::reverse(other);

  try {
    file.expect(other);
    FAIL("accepted");
  } catch (const Error& failure) {
    CHECK(failure.code() == Exit::incompatible_checkpoint);
    CHECK_THAT(failure.what(), Contains("has weights/conv1.weight [3,3,3], needed is [3,3,4]") &&
                                   Contains("has no weights/more [2]") &&
                                   Contains("has weights/fc.weight [68], which is not needed") &&
                                   !Contains("bn1") && Contains("of another model (tiny)"));
  }
}

TEST_CASE(
    "Checkpoint reader: the newest intact file is found, and newer ones named with the reason") {
  const TemporaryDirectory directory;
  for (const std::uint64_t step : {100, 200}) save_one(directory, State(step));
  write_bytes(directory / "step-0000000300.h5", "not a checkpoint at all");
  std::filesystem::create_symlink(directory / "step-0000000100.h5",
                                  directory / "step-0000000400.h5");
  ::mkfifo((directory / "step-0000000500.h5").c_str(), 0600);
  std::filesystem::create_directory(directory / "step-0000000600.h5");

  const LatestCheckpoint latest = find_latest(directory);

  REQUIRE(latest.file);
  CHECK(latest.file->metadata().step == 200);
  CHECK_THAT(latest.note, Contains("step-0000000200.h5"));
  REQUIRE(latest.rejected.size() == 4);
  CHECK_THAT(latest.rejected[0], Contains("step-0000000600.h5") && Contains("not a regular file"));
  CHECK_THAT(latest.rejected[1], Contains("step-0000000500.h5") && Contains("not a regular file"));
  CHECK_THAT(latest.rejected[2], Contains("step-0000000400.h5") && Contains("symbolic link"));
  CHECK_THAT(latest.rejected[3], Contains("step-0000000300.h5"));
}

TEST_CASE("Checkpoint reader: no checkpoint starts from scratch, only damaged ones are an error") {
  const TemporaryDirectory directory;
  CHECK_FALSE(find_latest(directory / "missing").file);
  write_bytes(directory / ".step-0000000100.h5.tmp", "unfinished");
  write_bytes(directory / "step-12.h5", "not one of our names");

  const LatestCheckpoint latest = find_latest(directory);
  write_bytes(directory / "step-0000000100.h5", "damaged");

  CHECK_FALSE(latest.file);
  CHECK_THAT(latest.note, Contains("no checkpoint in"));
  try {
    find_latest(directory);
    FAIL("started from scratch");
  } catch (const Error& failure) {
    CHECK(failure.code() == Exit::no_valid_checkpoint);
    CHECK_THAT(failure.what(),
               Contains("step-0000000100.h5") && Contains("start over in another folder"));
  }
}

TEST_CASE("Checkpoint reader: files of version 1 are read as before, and have no lineage") {
  const TemporaryDirectory directory;
  const State state(7);
  const auto path = save_one(directory, state, "run-1", lineage_a);
  const std::uint64_t hash = CheckpointFile::open(path).state_hash();

  write_bytes(path, test::as_version_1(file_bytes(path)));

  const CheckpointFile file = CheckpointFile::open(path);
  CHECK(file.lineage().empty());
  CHECK(file.run_id() == "run-1");
  CHECK(file.state_hash() == hash);
  CHECK(holds(file, state));
}

TEST_CASE("Checkpoint reader: a folder of two lineages is refused, naming both") {
  const TemporaryDirectory directory;
  save_one(directory, State(100), "test", lineage_a);
  const auto other = save_one(directory, State(200), "test", lineage_b);
  const bool version_1 = GENERATE(false, true), damaged = GENERATE(false, true);
  if (version_1) write_bytes(other, test::as_version_1(file_bytes(other)));
  if (damaged) write_bytes(other, file_bytes(other) + "x");  // but its header can be read

  const std::string said = refusal([&] { find_latest(directory); });

  CHECK_THAT(said, Contains("lineage " + lineage_a + ", step-0000000100.h5 the newest") &&
                       Contains((version_1 ? "no lineage" : "lineage " + lineage_b) +
                                ", step-0000000200.h5 the newest") &&
                       Contains("another --checkpoint-dir") && Contains("--resume FILE") &&
                       Contains("move the files"));
  CHECK(refusal([&] { inspect(directory); }) == said);
}

TEST_CASE("Checkpoint reader: what no header tells a lineage of counts for none") {
  const TemporaryDirectory directory;
  save_one(directory, State(100), "test", lineage_a);
  const auto other = save_one(directory, State(200), "test", lineage_b);
  std::string bytes = file_bytes(other);
  bytes[test::at_lineage] ^= 1;
  write_bytes(other, bytes);

  const LatestCheckpoint latest = find_latest(directory);

  CHECK(latest.file->lineage() == lineage_a);
  REQUIRE(latest.rejected.size() == 1);
  CHECK_THAT(latest.rejected[0], Contains("run id and lineage fail their hash"));
}

TEST_CASE("Checkpoint reader: a training from scratch may save where there is no checkpoint") {
  const TemporaryDirectory directory;
  const auto ask = [&] { require_own_folder(directory, lineage_b, std::nullopt); };
  write_bytes(directory / "step-12.h5", "not one of our names");
  CHECK_NOTHROW(ask());
  CHECK_NOTHROW(require_own_folder(directory / "missing", lineage_b, std::nullopt));

  write_bytes(directory / "step-0000000100.h5", "damaged");
  const std::string damaged = refusal(ask);
  save_one(directory, State(200), "test", lineage_a);
  const std::string used = refusal(ask);

  CHECK_THAT(damaged, Contains("has step-0000000100.h5, whose lineage cannot be read"));
  CHECK_THAT(used, Contains("has checkpoints of lineage " + lineage_a + ", step-0000000200.h5") &&
                       Contains("this training is of lineage " + lineage_b) &&
                       Contains("another --checkpoint-dir") && Contains("--resume FILE") &&
                       Contains("move these files away"));
}

TEST_CASE("Checkpoint reader: a resumed training may save where others are not in its way") {
  const TemporaryDirectory directory;
  write_bytes(directory / "step-0000000900.h5", "damaged");
  const auto ask = [&](const std::string& lineage, std::uint64_t step) {
    return refusal([&] { require_own_folder(directory, lineage, step); });
  };
  CHECK(ask(lineage_a, 5).empty());
  save_one(directory, State(100), "test", lineage_a);
  CHECK(ask(lineage_a, 5).empty());
  CHECK_THAT(ask(lineage_b, 200), Contains("has checkpoints of lineage " + lineage_a));
  save_one(directory, State(200), "test", lineage_b);

  CHECK(ask(lineage_b, 200).empty());
  CHECK_THAT(ask(lineage_a, 100), Contains("has step-0000000200.h5 of lineage " + lineage_b));
  CHECK_THAT(ask("", 300), Contains("this training is of no lineage"));
}

TEST_CASE("Checkpoint reader: inspect of a folder says which file is taken, and why not others") {
  const TemporaryDirectory directory;
  CHECK_THAT(inspect(directory), Contains("resume auto  none: no checkpoint in"));
  const auto path = save_one(directory, State(7), "test", lineage_a);
  write_bytes(directory / "step-9999999999.h5", file_bytes(path));
  write_bytes(directory / "step-10000000000.h5", file_bytes(path));
  write_bytes(directory / "step-10000000001.h5", "damaged");
  std::string flipped = file_bytes(path);
  flipped.back() ^= 1;
  write_bytes(directory / "step-10000000002.h5", flipped);

  const std::string text = inspect(directory);

  CHECK_THAT(text, Contains("\nresume auto  step-10000000000.h5\nlineage      " + lineage_a +
                            "\nnot used     checkpoint ") &&
                       Contains("step-10000000002.h5: ") &&
                       Contains("step-10000000001.h5: shorter than a checkpoint's header\n"
                                "not used     step-9999999999.h5: older\n"
                                "not used     step-0000000007.h5: older\n"));
}

TEST_CASE("Checkpoint reader: inspect shows the tensors and ends with the state hash") {
  const TemporaryDirectory directory;
  const auto path = save_one(directory, State(7));

  const std::string text = inspect(path);

  CHECK_THAT(text, Contains("weights/conv1.weight") && Contains("[3,3,3]") && Contains("108"));
  CHECK(text.ends_with("state-hash " + hex(CheckpointFile::open(path).state_hash()) + "\n"));
}
