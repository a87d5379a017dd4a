// Damaged model files: told, or read, but never a crash, a hang or much memory.
#include <sys/resource.h>

#include <algorithm>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/philox.hpp"
#include "support/catch.hpp"
#include "support/model_files.hpp"

using namespace ringtrain;
using namespace ringtrain::model;

namespace {

/// Changes a text at random, with pieces that mean something in model files.
class Mutation {
 public:
  explicit Mutation(std::uint64_t seed) : random_(seed, Purpose::synthetic) {}

  std::string of(std::string text) {
    for (std::size_t n = 1 + below(4); n > 0; --n) change(text);
    return text;
  }

 private:
  std::size_t below(std::size_t end) { return random_.below(static_cast<std::uint32_t>(end)); }
  std::size_t place(const std::string& text) { return below(text.size() + 1); }

  void change(std::string& text) {
    static const std::vector<std::string> pieces = {"\n",
                                                    " ",
                                                    "=",
                                                    "{0..9999}",
                                                    "$",
                                                    "$classes",
                                                    "end\n",
                                                    "block b\n",
                                                    "loss\n",
                                                    "0",
                                                    "-1",
                                                    "99999999999999999999",
                                                    "1e308",
                                                    "nan",
                                                    "/0",
                                                    "x",
                                                    ":",
                                                    "input",
                                                    "relu\n",
                                                    "{",
                                                    "..",
                                                    "\xff",
                                                    std::string(1, '\0'),
                                                    "channels=1000000 ",
                                                    "size=4096 ",
                                                    "stride=512 ",
                                                    " = "};
    const std::size_t at = place(text);
    const std::size_t length = std::min(below(40), text.size() - at);
    switch (below(4)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, pieces[below(pieces.size())]);
        break;
      case 2:
        text.insert(place(text), text.substr(at, length));
        break;
      default:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
    }
  }

  Philox random_;
};

/// The most memory that this process had so far, in MiB.
long peak_mib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

}  // namespace

TEST_CASE("model file: ten thousand damaged files are told in one line or read") {
  const std::vector<std::string> files = {model_file("cifar10_cnn"), model_file("resnet20"),
                                          model_file("resnet18"), model_file("inception_v3")};
  const long before_mib = peak_mib();
  int told = 0, read = 0;
  for (std::uint64_t seed = 0; seed < 10'000; ++seed) {
    const std::string text = Mutation(seed).of(files[seed % files.size()]);
    CAPTURE(seed);
    try {
      const Model model = read_model(text);
      REQUIRE(read_model(with_classes(text, model.classes)).graph.structure_hash() ==
              model.graph.structure_hash());
      ++read;
    } catch (const Error& failure) {
      const std::string message = failure.what();
      REQUIRE(failure.code() == Exit::usage);
      REQUIRE(message.starts_with("net.model:"));
      REQUIRE(message.size() < 2000);
      REQUIRE(std::ranges::none_of(message, [](char c) { return c >= 0 && c < ' '; }));
      ++told;
    }
  }

  CHECK(told > 5000);
  CHECK(read > 100);
  CHECK(peak_mib() - before_mib < 512);  // a sanitizer keeps what is freed
}

TEST_CASE("model file: files of one kind of line, a megabyte long, are told") {
  const std::string line = GENERATE(as<std::string>{}, "relu\n", "block b\nrelu\nend\n", "a=b ",
                                    "$", "{", "\n", "a", " ", "a = sum a a\n", "x ", "x=1 ");
  std::string text = "model m classes=10\ninput size=8\n";
  while (text.size() < (1 << 20)) text += line;

  CHECK_THROWS_WITH(read_model(text), Catch::StartsWith("net.model:"));
}

TEST_CASE("model file: what would multiply a long text is told") {
  const std::string head = "model m classes=10\n", image = "input size=8\n";
  const std::string name(1 << 19, 'a');
  std::string parameters;
  for (int i = 0; i < 50'000; ++i) parameters += " p" + std::to_string(i) + "=1";

  CHECK_THROWS_WITH(read_model(head + image + name + "{0..9999} = relu\n"),
                    Catch::EndsWith("is longer than the 200 characters of a word"));
  CHECK_THROWS_WITH(
      read_model(head + "block b" + parameters + "\nrelu\nend\n" + image + "a{0..9999} = b\n"),
      "net.model:2: block: has at most 100 parameters");
}
