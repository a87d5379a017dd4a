#include <fmt/ranges.h>
#include <hdf5.h>
#include <sys/stat.h>

#include <cstdio>

#include "io/checkpoint/checkpoint_name.hpp"
#include "ringtrain/base/error.hpp"
#include "support/catch.hpp"
#include "unit/io/checkpoint/checkpoint_fixture.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using Catch::Contains;

namespace {

std::vector<float> read_with_hdf5(const std::filesystem::path& path, const std::string& name) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t dataset = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
  const hid_t space = H5Dget_space(dataset);
  std::vector<float> values(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
  const herr_t read =
      H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  H5Sclose(space);
  H5Dclose(dataset);
  H5Fclose(file);
  REQUIRE(read >= 0);
  return values;
}

/// What a shell command prints; empty when it fails.
std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = ::popen(command.c_str(), "r");
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
  return ::pclose(pipe) == 0 ? text : "";
}

}  // namespace

TEST_CASE("Checkpoint names: a directory that cannot be listed is the storage's fault") {
  try {
    names_in(-1);
    FAIL("listed");
  } catch (const Error& failure) {
    CHECK(failure.code() == Exit::storage);
  }
}

TEST_CASE("Checkpoint: what was saved is read back, bit for bit") {
  const std::size_t floats = GENERATE(33, 100, 5000, 1'100'000);
  const TemporaryDirectory directory;
  State state(240, floats);
  const std::string lineage = GENERATE(false, true) ? lineage_a : "";
  if (!lineage.empty()) state.metadata.unreadable = {0, 7, 1'281'166};

  const auto path = save_one(directory, state, "run-7", lineage);

  const CheckpointFile file = CheckpointFile::open(path);
  CHECK(path.filename() == "step-0000000240.h5");
  CHECK(file.run_id() == "run-7");
  CHECK(file.lineage() == lineage);
  CHECK(holds(file, state));
}

TEST_CASE("Checkpoint: libhdf5 reads every tensor and the scalars") {
  const TemporaryDirectory directory;
  const State state(240, 5000);

  const auto path = save_one(directory, state);

  for (std::size_t i = 0; i < state.layout.tensors.size(); ++i)
    CHECK(read_with_hdf5(path, state.layout.tensors[i].info.name) == state.tensor(i));
  CHECK(read_with_hdf5(path, "metadata/step") == std::vector<float>{240});
  CHECK(read_with_hdf5(path, "metadata/position") == std::vector<float>{240 * 128});
}

TEST_CASE("Checkpoint: h5dump shows every tensor and every scalar") {
  if (std::system("command -v h5dump >/dev/null") != 0) skip_test("h5dump is not installed");
  const TemporaryDirectory directory;
  const State state(240);
  const std::string file = save_one(directory, state).string();
  const auto dump = [&](const std::string& name) {
    return output_of("h5dump -w 1 -y -d '/" + name + "' '" + file + "'");
  };

  for (std::size_t i = 0; i < state.layout.tensors.size(); ++i) {
    const std::string& name = state.layout.tensors[i].info.name;
    CAPTURE(name);
    CHECK_THAT(dump(name), Contains("H5T_IEEE_F32LE"));
    for (const float value : state.tensor(i))
      CHECK_THAT(dump(name), Contains(fmt::format("{:g}", value)));
  }
  CHECK_THAT(dump("metadata/step"), Contains("240"));
  CHECK_THAT(dump("metadata/config"), Contains("lr"));
}

TEST_CASE("Checkpoint: h5py reads every tensor, to the bit") {
  const char* given = std::getenv("RINGTRAIN_PYTHON");
  const std::string python = given == nullptr ? "python3" : given;
  if (std::system((python + " -c 'import h5py' 2>/dev/null").c_str()) != 0)
    skip_test(python + " has no h5py");
  const TemporaryDirectory directory;
  const State state(240);
  const std::string file = save_one(directory, state).string();

  for (std::size_t i = 0; i < state.layout.tensors.size(); ++i) {
    const auto& [name, shape] = state.layout.tensors[i].info;
    const std::string said = output_of(
        fmt::format("{} -c 'import h5py; d = h5py.File(\"{}\")[\"{}\"]; print(list(d.shape), "
                    "d[()].tobytes().hex(), end=\"\")'",
                    python, file, name));
    std::string bytes;
    const std::vector<float> values = state.tensor(i);
    for (const std::byte byte : std::as_bytes(std::span(values)))
      bytes += fmt::format("{:02x}", std::to_integer<int>(byte));
    CHECK(said == fmt::format("[{}] {}", fmt::join(shape, ", "), bytes));
  }
}

TEST_CASE("Checkpoint: equal states give equal files but for run id and lineage") {
  const TemporaryDirectory first, second;
  const State state(240, 5000), before(7, 5000);
  std::string a = file_bytes(save_one(first, state, "run-a"));
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // a time stamp would show

  WriterProcess process = WriterProcess::start();
  CheckpointWriter writer(process, second, state.layout, {.run_id = "run-b"});
  writer.set_lineage(lineage_b);
  writer.try_save(before.metadata, before.copier());  // a layout that is used again must not show
  writer.try_save(state.metadata, state.copier());
  writer.close(std::chrono::seconds(10));
  std::string b = file_bytes(second / "step-0000000240.h5");

  REQUIRE(a.size() == b.size());
  CHECK((a != b));
  a.replace(48, 80, 80, '-');  // their hash, run id, lineage
  b.replace(48, 80, 80, '-');
  CHECK((a == b));
}

TEST_CASE("Checkpoint: network, class names and input come back as they were") {
  const TemporaryDirectory directory;
  State state(240);
  state.metadata.input = R"({"size":[8,8]})";
  state.metadata.network = "model m classes=2 # \"\\\t\x01\xC3\xA9\"\r\n\nloss\n";
  state.metadata.class_names = class_names_text(std::vector<std::string>{"a\nb", "", "c\\n"});

  const auto path = save_one(directory, state);

  CHECK(state.metadata.class_names == "a\\nb\n\nc\\\\n");
  CHECK(CheckpointFile::open(path).metadata() == state.metadata);
  CHECK(class_names_in(state.metadata.class_names) == std::vector<std::string>{"a\nb", "", "c\\n"});
  CHECK_THAT(inspect(path), Contains("\nclasses      3: a") && Contains("\n  loss\n"));
}

TEST_CASE("Checkpoint: there is room for the names of 22,000 classes, and nothing fails beyond") {
  const TemporaryDirectory directory;
  State state(240);
  std::vector<std::string> names;
  for (int i = 0; i < 22'000; ++i) names.push_back(fmt::format("n{:08}, of a longer name", i));
  state.metadata.network = std::string(100'000, '\n');
  state.metadata.class_names = class_names_text(names);

  const auto path = save_one(directory, state);

  CHECK(CheckpointFile::open(path).metadata() == state.metadata);
  // What the programs from before class names read: a user block of 4 MiB, 20 MiB of JSON's values,
  // and 16 MiB that belong to no tensor. The whole file is less than the least of these.
  constexpr std::uintmax_t least_limit_then = 4 << 20;
  CHECK(std::filesystem::file_size(path) < least_limit_then);
  state.metadata.step = 241;
  state.metadata.class_names.append(most_description, 'x');
  const TemporaryDirectory other;
  const CheckpointMetadata without = CheckpointFile::open(save_one(other, state)).metadata();
  CHECK(without.class_names.empty());
  CHECK(without.network == state.metadata.network);
}

TEST_CASE("Checkpoint: names that leave no room keep no checkpoint from being read") {
  const TemporaryDirectory directory, other;
  State state(240);
  state.metadata.network = "model m classes=2\nloss\n";
  const auto bytes = std::filesystem::file_size(save_one(other, state));
  state.metadata.class_names.assign(17 << 20, 'x');

  const auto path = save_one(directory, state);

  CHECK(CheckpointFile::open(path).metadata().class_names.empty());
  CHECK(CheckpointFile::open(path).metadata().network == state.metadata.network);
  CHECK(std::filesystem::file_size(path) == bytes);
}

TEST_CASE("Checkpoint: names of classes that are not UTF-8 come back as they were") {
  const TemporaryDirectory directory;
  State state(240);
  const std::vector<std::string> names{"caf\xe9", "caf\xc3\xa9", "a\\xe9", "\xff\n\\"};
  state.metadata.class_names = class_names_text(names);

  const auto path = save_one(directory, state);

  CHECK(state.metadata.class_names == "caf\\xe9\ncaf\xc3\xa9\na\\\\xe9\n\\xff\\n\\\\");
  CHECK(class_names_in(CheckpointFile::open(path).metadata().class_names) == names);
  CHECK(class_names_in("\\x\n\\xg0\n\\") == std::vector<std::string>{"x", "xg0", "\\"});
}

TEST_CASE("Checkpoint: what is published follows the umask, and `lock` does") {
  const auto [mask, mode] =
      GENERATE(table<mode_t, unsigned>({{0002, 0664}, {0022, 0644}, {0077, 0600}}));
  const TemporaryDirectory directory;

  const mode_t before = ::umask(mask);
  const auto file = save_one(directory, State(1));
  ::umask(before);

  CHECK(static_cast<unsigned>(std::filesystem::status(file).permissions()) == mode);
  CHECK(static_cast<unsigned>(std::filesystem::status(directory / "lock").permissions()) == mode);
}

TEST_CASE("Checkpoint: equal states give equal state hashes, others do not") {
  const State state(240);
  const auto hash = [&](const CheckpointMetadata& metadata, std::vector<std::uint64_t> hashes) {
    return state_hash(metadata, std::vector<TensorInfo>{{"a", {1}}, {"b", {2}}}, hashes);
  };
  const auto base = hash(state.metadata, {1, 2});
  CheckpointMetadata irrelevant = state.metadata, later = state.metadata;
  irrelevant.plans = irrelevant.config = "{}";
  irrelevant.unreadable = {3};
  irrelevant.network = irrelevant.class_names = irrelevant.input = "{}";
  later.position += 1;

  CHECK(hash(irrelevant, {1, 2}) == base);
  CHECK(hash(later, {1, 2}) != base);
  CHECK(hash(state.metadata, {2, 1}) != base);
  CHECK(state_hash(state.metadata, std::vector<TensorInfo>{{"b", {2}}, {"a", {1}}},
                   std::vector<std::uint64_t>{2, 1}) == base);
}
