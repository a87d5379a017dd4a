#include "ringtrain/io/weights/weights_file.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>

#include "io/weights/weights_index.hpp"
#include "io/weights/zip.hpp"
#include "ringtrain/base/error.hpp"
#include "support/catch.hpp"
#include "unit/io/dataset/data_support.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using namespace ringtrain::test;
using Catch::Contains;

namespace {

const std::filesystem::path home = RINGTRAIN_SOURCE_DIR "/test/data/weights";

std::vector<float> counted(std::size_t count, float first = 0) {
  std::vector<float> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

std::vector<float> numbers_of(const WeightsFile& file, std::string_view end) {
  const auto& tensors = file.tensors();
  const auto found = std::ranges::find_if(
      tensors, [&](const TensorInfo& tensor) { return tensor.name.ends_with(end); });
  REQUIRE(found != tensors.end());
  std::vector<float> values(element_count(*found));
  file.read(found - tensors.begin(), values);
  return values;
}

/// What opening the bytes says, and the exit code in front of it.
std::string complaint(const std::string& bytes) {
  const TempDirectory directory;
  const auto path = directory.path() / "weights";
  write_text(path, bytes);
  try {
    const WeightsFile file = WeightsFile::open(path);
    for (std::size_t i = 0; i < file.tensors().size(); ++i) {
      std::vector<float> values(element_count(file.tensors()[i]));
      file.read(i, values);
    }
    return "accepted";
  } catch (const Error& failure) {
    return std::to_string(static_cast<int>(failure.code())) + " " + failure.what();
  }
}

std::string file_text(const char* name) {
  std::ifstream file(home / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A legacy file whose state dictionary is this pickle.
std::string legacy_of(const std::string& state, const std::string& keys = "]") {
  using namespace std::string_literals;
  return "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20j\xa8P\x19."s + "\x80\x02M\xe9\x03."s +
         "\x80\x02}U\x0dlittle_endian\x88s."s + "\x80\x02"s + state + "." + "\x80\x02"s + keys +
         ".";
}

std::string safetensors_of(const std::string& header, const std::string& data = "") {
  std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data;
}

/// 200 GiB of fp32 numbers that follow from their places, made as they are asked for.
class EndlessSource final : public ByteSource {
 public:
  static float number(std::uint64_t place) { return static_cast<float>(place * 7919 % 65521); }
  std::uint64_t size() const override { return std::uint64_t{200} << 30; }
  std::span<const std::uint8_t> at(Part part) override {
    REQUIRE(part.offset % sizeof(float) == 0);
    REQUIRE(part.end() <= size());
    REQUIRE(part.size < 64 << 20);
    largest = std::max(largest, part.size);
    numbers_.resize(part.size / sizeof(float));
    for (std::size_t i = 0; i < numbers_.size(); ++i)
      numbers_[i] = number(part.offset / sizeof(float) + i);
    return {reinterpret_cast<const std::uint8_t*>(numbers_.data()), part.size};
  }
  std::uint64_t largest = 0;

 private:
  std::vector<float> numbers_;
};

}  // namespace

TEST_CASE("weights: every format, type and stride gives the same numbers") {
  const auto [name, format, section] = GENERATE(table<const char*, const char*, const char*>({
      {"zip.pth", "torch's zip file", ""},
      {"legacy.pth", "torch's legacy file", ""},
      {"strided.pth", "torch's zip file", ""},
      {"strided_legacy.pth", "torch's legacy file", ""},
      {"half.pth", "torch's zip file", "state_dict"},
      {"bfloat16.pth", "torch's legacy file", "model"},
      {"average.pth", "torch's zip file", "model_ema"},
      {"parameters.pth", "torch's zip file", ""},
      {"fp32.safetensors", "safetensors", ""},
      {"half.safetensors", "safetensors", ""},
      {"bfloat16.safetensors", "safetensors", ""},
  }));
  CAPTURE(name);

  REQUIRE(WeightsFile::is_one(home / name));
  const WeightsFile file = WeightsFile::open(home / name);

  CHECK(file.format() == format);
  CHECK(file.section() == section);
  CHECK(numbers_of(file, "conv.weight") == counted(108));
  CHECK(numbers_of(file, "bn.weight") == counted(4));
  CHECK(numbers_of(file, "bn.bias") == counted(4));
  CHECK(numbers_of(file, "bn.running_var") == counted(4));
  CHECK(numbers_of(file, "fc.weight") == counted(192));
  CHECK(numbers_of(file, "num_batches_tracked") == std::vector<float>{7});
}

TEST_CASE("weights: fp16 has its subnormal numbers and infinities") {
  const std::string header = R"({"x":{"dtype":"F16","shape":[6],"data_offsets":[0,12]}})";
  const std::uint16_t bits[] = {0x0001, 0x83ff, 0x0400, 0xfc00, 0x7bff, 0x3555};
  const TempDirectory directory;
  write_text(directory.path() / "x",
             safetensors_of(header, {reinterpret_cast<const char*>(bits), sizeof bits}));

  const auto values = numbers_of(WeightsFile::open(directory.path() / "x"), "x");

  CHECK(values ==
        std::vector<float>{0x1p-24f, -0x1.ff8p-15f, 0x1p-14f, -INFINITY, 65504, 0x1.554p-2f});
}

TEST_CASE("weights: Python objects are refused by name, and nothing is executed") {
  CHECK_THAT(complaint(file_text("arguments.pth")),
             Contains("65 ") && Contains("names argparse.Namespace"));
  CHECK_THAT(complaint(file_text("module.pth")),
             Contains("65 ") && Contains("torch.nn.modules.linear.Linear"));
  CHECK_THAT(complaint(legacy_of("cos\nsystem\nU\x04trueR")),
             Contains("65 ") && Contains("names os.system"));
  CHECK_THAT(complaint(legacy_of("U\x02osU\x06system\x93")),
             Contains("65 ") && Contains("names os.system"));
  CHECK_THAT(complaint(legacy_of("cb\x1b[2J\nx\n")), Contains("b\\x1b[2J.x"));
}

TEST_CASE("weights: a tensor that torch negates or conjugates as it reads is refused") {
  using namespace std::string_literals;
  const auto tensor = [](const std::string& metadata) {
    return legacy_of(
        "}U\x01x"
        "ctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\nFloatStorage\nU\x01"
        "0U\x03"
        "cpuK\x01tQK\x00K\x01\x85K\x01\x85\x89}"s +
            metadata + "tRs",
        "]U\x01"
        "0a");
  };
  const std::string one("\x01\0\0\0\0\0\0\0\0\0\x80\x3f", 12);

  CHECK_THAT(complaint(tensor("}U\x03neg\x88s") + one),
             Contains("65 ") && Contains("metadata (neg)") && Contains("resolve_neg()"));
  for (const char* none : {"", "N", "}"}) CHECK(complaint(tensor(none) + one) == "accepted");
}

TEST_CASE("weights: kinds of tensors that are not read are named, with what to do") {
  const auto [global, what] = GENERATE(table<std::string, const char*>({
      {"torch\nComplexFloatStorage", "of torch.ComplexFloatStorage"},
      {"torch\nQInt8Storage", "of torch.QInt8Storage"},
      {"torch.storage\nUntypedStorage", "of torch.storage.UntypedStorage"},
      {"torch._utils\n_rebuild_sparse_tensor", "of torch._utils._rebuild_sparse_tensor"},
      {"torch._utils\n_rebuild_tensor_v3", "of torch._utils._rebuild_tensor_v3"},
  }));
  CAPTURE(global);

  CHECK_THAT(complaint(legacy_of("c" + global + "\n")),
             Contains("65 ") && Contains(what) && Contains(".float(), .to_dense()") &&
                 !Contains("save the state dictionary alone"));
}

TEST_CASE("weights: what holds no state dictionary is told so") {
  CHECK_THAT(complaint(legacy_of("}")), Contains("65 ") && Contains("holds no state dictionary"));
  CHECK_THAT(complaint(legacy_of("K\x05")), Contains("holds no state dictionary"));
  CHECK_THAT(complaint("PK\x03\x04 and no directory at all, which is at the end"),
             Contains("66 ") && Contains("cut short"));
  CHECK_THAT(complaint("nothing of the kind"), Contains("66 ") && Contains("begins neither"));
  CHECK_FALSE(WeightsFile::is_one(home / "missing"));
  CHECK_FALSE(WeightsFile::is_one("/dev/null"));
}

TEST_CASE("weights: compression is refused of the entries that are read, and of no others") {
  const std::string whole = file_text("zip.pth");
  // the method of the entry in the directory, which is the name's last place
  const auto compressed = [&](const std::string& name) {
    std::string bytes = whole;
    const auto at = bytes.rfind(name);
    REQUIRE(at != bytes.npos);
    REQUIRE(bytes.rfind("PK\x01\x02", at) != bytes.npos);
    bytes[bytes.rfind("PK\x01\x02", at) + 10] = 8;
    return bytes;
  };

  CHECK(complaint(compressed("/version")) == "accepted");
  CHECK_THAT(complaint(compressed("/data.pkl")),
             Contains("65 ") && Contains("data.pkl in it is compressed"));
  CHECK_THAT(complaint(compressed("/data/0")),
             Contains("65 ") && Contains("data/0 in it is compressed"));
}

TEST_CASE("weights: pickles that are wrong are refused") {
  const auto [state, what] = GENERATE(table<std::string, const char*>({
      {"(", "takes a value where there is none"},
      {"t", "lacks a mark"},
      {"K\x01s", "takes values where there are none"},
      {"]K\x01K\x02s", "takes no"},
      {"}K\x01K\x02"
       "a",
       "takes none"},
      {"}(K\x01u", "key without a value"},
      {"h\x07", "recalls a value"},
      {"X\xff\xff\xff\xff", "ends in the middle"},
      {"\x8a\x09"
       "123456789",
       "more than 64 bits"},
      {"i", "instruction 0x69"},
      {"ccollections\nOrderedDict\nK\x01R", "calls what is no function"},
      {"ctorch._utils\n_rebuild_tensor_v2\n)R", "too few arguments"},
      {"U\x07storageQ", "names a storage in a way"},
      {"\x80\x06", "later protocol"},
  }));
  CAPTURE(state);

  CHECK_THAT(complaint(legacy_of(state)), Contains("66 ") && Contains(what));
}

TEST_CASE("weights: a pickle that grows without end takes little memory") {
  // each turn makes a dictionary of the same pairs once more
  std::string state = "ccollections\nOrderedDict\nq\x01(]q\x02(";
  for (int i = 0; i < 1000; ++i) state += "K\x01K\x02\x86";
  state += "e\x85q\x03";
  for (int i = 0; i < 100'000; ++i) state += "h\x01h\x03R";

  CHECK_THAT(complaint(legacy_of(state)), Contains("holds too many values"));
}

TEST_CASE("weights: headers of safetensors that are wrong are refused") {
  const auto [header, what] = GENERATE(table<std::string, const char*>({
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,12]}})", "no place in the file"},
      {R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "does not lie in its storage"},
      {R"({"x":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})",
       "larger than any"},
      {R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})",
       "gives tensor x 8 bytes, but its type and shape need 4"},
      {R"({"x":{"dtype":"F16","shape":[0,3],"data_offsets":[0,8]}})", "type and shape need 0"},
      {R"({"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}})", "not as safetensors"},
      {R"({"x":{"dtype":"F32","shape":[2]}})", "no place in the file"},
      {R"({"x":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", "not as safetensors"},
      {R"({"x":{"y":{}}})", "not as safetensors"},
      {R"({"x":3})", "not as safetensors"},
      {R"({"":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "no usable name"},
      {R"({"x":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}})", "type F8_E4M3"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       "twice"},
      {R"({"x")", "no JSON"},
  }));
  CAPTURE(header);

  CHECK_THAT(complaint(safetensors_of(header, "12345678")), Contains(what));
}

TEST_CASE("weights: damage is found") {
  const char* name = GENERATE("zip.pth", "legacy.pth", "fp32.safetensors");
  const std::string whole = file_text(name);

  for (std::size_t size = 0; size < whole.size(); size += 7)
    CHECK_THAT(complaint(whole.substr(0, size)), Contains("66 "));
}

TEST_CASE("weights: memory is that of a tensor, however large its storage is") {
  const auto [first, stride, most] = GENERATE(table<std::uint64_t, std::uint64_t, std::uint64_t>({
      {0, 1, 4 << 10},
      {std::uint64_t{7} << 32, 1, 4 << 10},
      {5, 3, 12 << 10},
      {5, 1 << 24, 16 << 20},
  }));
  CAPTURE(first, stride);
  EndlessSource source;
  const StoredWeights tensor{
      {"x", {10, 100}}, StoredType::f32, {8, source.size() - 8}, first, {100 * stride, stride}, {}};
  std::vector<float> values(1000);

  read_weights(source, tensor, values);

  for (std::size_t i = 0; i < values.size(); ++i)
    CHECK(values[i] == EndlessSource::number(2 + first + i * stride));
  CHECK(source.largest <= most);
}

TEST_CASE("weights: a large storage is checked in pieces") {
  EndlessSource source;
  const Part storage{8, (3 << 20) + 12};
  const std::uint32_t whole = crc32(source.at(storage));
  StoredWeights tensor{{"x", {3}}, StoredType::f32, storage, 0, {1}, whole};
  std::vector<float> values(3);
  source.largest = 0;

  read_weights(source, tensor, values);

  CHECK(source.largest <= 1 << 20);
  tensor.crc = whole ^ 1;
  CHECK_THROWS_WITH(read_weights(source, tensor, values), Contains("CRC-32"));
}

TEST_CASE("weights: a storage of a zip file that does not fit its CRC-32 is refused") {
  std::string bytes = file_text("zip.pth");
  const float number = 107;  // the last of the convolution
  const auto at = bytes.find(std::string(reinterpret_cast<const char*>(&number), sizeof number));
  REQUIRE(at != bytes.npos);
  bytes[at + 2] ^= 1;

  CHECK_THAT(complaint(bytes), Contains("66 ") && Contains("CRC-32"));
}
