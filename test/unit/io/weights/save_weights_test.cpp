#include "ringtrain/io/weights/save_weights.hpp"

#include <numeric>
#include <sstream>

#include "ringtrain/base/error.hpp"
#include "ringtrain/io/weights/weights_file.hpp"
#include "support/catch.hpp"
#include "unit/io/checkpoint/checkpoint_fixture.hpp"

using namespace ringtrain;
using namespace ringtrain::io;

namespace {

/// The numbers first, first + 1, ...
TensorToSave counting_up(const std::string& name, std::vector<std::uint64_t> shape, float first) {
  return {{name, std::move(shape)},
          [first](std::span<float> to) { std::iota(to.begin(), to.end(), first); }};
}

const std::vector<TensorToSave> to_save = {counting_up("conv.weight", {2, 3, 1, 1}, 0),
                                           counting_up("bn.running_mean", {17}, 100),
                                           {{"bn.num_batches_tracked", {}}, nullptr, 7},
                                           counting_up("fc.bias", {1}, -1)};

std::string saved_text(const std::string& format) {
  std::ostringstream out;
  if (format == "torch")
    write_torch_zip(out, to_save);
  else
    write_safetensors(out, to_save, {{"format", "pt"}, {"class_names", "[\"a \\\"b\\\"\"]"}});
  return out.str();
}

std::vector<float> saved_numbers(const WeightsFile& file, const std::string& name) {
  for (std::size_t i = 0; i < file.tensors().size(); ++i)
    if (file.tensors()[i].name == name) {
      std::vector<float> numbers(element_count(file.tensors()[i]));
      file.read(i, numbers);
      return numbers;
    }
  return {};
}

}  // namespace

TEST_CASE("saved weights: what is written is what is read, in every format") {
  const std::string format = GENERATE("torch", "safetensors");
  CAPTURE(format);
  const TemporaryDirectory folder;
  write_bytes(folder / "saved", saved_text(format));

  const WeightsFile file = WeightsFile::open(folder / "saved");

  CHECK(file.tensors().size() == to_save.size());
  CHECK(saved_numbers(file, "conv.weight") == std::vector<float>{0, 1, 2, 3, 4, 5});
  CHECK(saved_numbers(file, "bn.running_mean").back() == 116);
  CHECK(saved_numbers(file, "bn.num_batches_tracked") == std::vector<float>{7});
  CHECK(saved_numbers(file, "fc.bias") == std::vector<float>{-1});
}

TEST_CASE("saved weights: the same tensors are the same bytes, which can be mapped") {
  const std::string text = saved_text("torch");
  const float first = 100, second = 101;
  const std::string numbers = std::string(reinterpret_cast<const char*>(&first), sizeof first) +
                              std::string(reinterpret_cast<const char*>(&second), sizeof second);

  CHECK(text == saved_text("torch"));
  REQUIRE(text.find(numbers) != text.npos);
  CHECK(text.find(numbers) % 64 == 0);
  const std::string other = saved_text("safetensors");
  CHECK(other == saved_text("safetensors"));
  CHECK(other.find(numbers) % sizeof first == 0);
}

TEST_CASE("saved weights: a zip file beyond 4 GiB is refused before a byte is written") {
  const std::vector<TensorToSave> large = {counting_up("fc.weight", {1 << 10, 1 << 20}, 0)};
  std::ostringstream out;

  try {
    write_torch_zip(out, large);
    FAIL("written");
  } catch (const Error& failure) {
    CHECK(failure.code() == Exit::usage);
    CHECK_THAT(failure.what(), Catch::Contains("4 GiB") && Catch::Contains("safetensors"));
  }
  CHECK(out.str().empty());
}
