// Model files that are wrong, and what is said of them.
#include "ringtrain/base/error.hpp"
#include "support/catch.hpp"
#include "support/model_files.hpp"

using namespace ringtrain;
using namespace ringtrain::model;

namespace {

const std::string head = "model m classes=10\ninput size=8\n";
const std::string tail = "fc = matrix_product outputs=$classes\nloss\n";

std::string complaint(const std::string& text) {
  try {
    read_model(text);
  } catch (const Error& failure) {
    CHECK(failure.code() == Exit::usage);
    return failure.what();
  }
  return "accepted";
}

/// Of a network with `lines` between its image and its head; they begin with line 3.
std::string complaint_about(const std::string& lines) {
  return complaint(head + lines + "\n" + tail);
}

}  // namespace

TEST_CASE("model file: a wrong layer is told with its line and what would be right") {
  const auto [lines, message] = GENERATE(table<const char*, const char*>({
      {"conv = convolutoin channels=4 kernel=3",
       "net.model:3: convolutoin: no such operation, nor block above; did you mean convolution?"},
      {"conv = convolution chanels=4 kernel=3",
       "net.model:3: chanels=4: convolution has no such option; did you mean channels?"},
      {"relu size=3", "net.model:3: size=3: relu takes no options"},
      {"conv = convolution channels=4", "net.model:3: convolution: needs kernel=..."},
      {"convolution channels=4 kernel=3",
       "net.model:3: convolution: has parameters, so it needs a name: NAME = convolution ..."},
      {"a = relu\nb = relu aa", "net.model:4: aa: no line above has this name; did you mean a?"},
      {"a = relu\na = relu", "net.model:4: a: is the name of a line above already"},
      {"input = relu", "net.model:3: input: is the name of a line above already"},
      {"fc = batch_norm", "net.model:4: fc: is the name of a line above already"},
      {"sum", "net.model:3: sum: needs 2 inputs; name them"},
      {"a = relu\nsum a a input", "net.model:4: sum: takes 2 at most, not 3"},
      {"relu input input", "net.model:3: relu: takes 1 at most, not 2"},
      {"a = max_pool size=2\nsum a input", "net.model:4: sum: its inputs are 4x4x3 and 8x8x3"},
      {"a = max_pool size=2\nconcat a input",
       "net.model:4: concatenation: its inputs are 4x4x3 and 8x8x3"},
      {"conv = convolution channels=4 kernel=9 padding=valid",
       "net.model:3: layer conv: its 9x9 window does not fit its 8x8x3 input"},
      {"max_pool size=9", "net.model:3: layer pool: its 9x9 window does not fit its 8x8x3 input"},
      {"shortcut channels=2", "net.model:3: channels=2: must be a whole number from 3 to 1000000"},
      {"a = relu\nloss",
       "net.model:4: loss: its input is 8x8x3, not 1x1x10: one value for each "
       "class (outputs=$classes)"},
      {"loss input auxiliary=maybe\n", "net.model:3: loss: its input is 8x8x3"},
      {"dropout keep=1.5", "net.model:3: keep=1.5: must be a number from 0.001 to 1"},
      {"dropout keep=1/0",
       "net.model:3: keep=1/0: must be a number, or a quotient of two, from 0.001 to 1"},
      {"conv = convolution channels=4 kernel=3 init=normal",
       "net.model:3: init=normal: must be he_fan_in, he_fan_out, he_group_fan_out, "
       "uniform_fan_in, uniform_fan_out, normal:DEVIATION"},
      {"conv = convolution channels=4 kernel=3 padding=3",
       "net.model:3: padding=3: must be a whole number from 0 to 2"},
      {"conv = convolution channels=4 kernel=3x3x3",
       "net.model:3: kernel=3x3x3: must be one number, or HEIGHTxWIDTH"},
      {"conv = convolution channels=$width kernel=3",
       "net.model:3: channels=$width: no such parameter here"},
      {"conv = convolution channels=4 channels=4 kernel=3",
       "net.model:3: channels=4: channels is given twice on this line"},
      {"conv = convolution channels = 4", "net.model:3: =: an option is written without spaces"},
      {"conv=convolution channels=4",
       "net.model:3: conv=convolution: a line is [NAME =] OPERATION [INPUT ...]"},
      {"conv =", "net.model:3: conv =: names no operation"},
      {"a/b = relu", "net.model:3: a/b: is no name; names are made of letters, digits"},
      {"a = relu\nb = relu input", "net.model:3: relu: no line reads its result"},
      {"input size=9", "net.model:3: input: there is one already"},
      {"model m classes=3", "net.model:3: model: there is such a line above"},
      {"aux = matrix_product outputs=10\nloss auxiliary=yes\nrelu",
       "net.model:5: relu: the line before has no result; name the input"},
      {"a = matrix_product outputs=10\nloss\nb = relu a",
       "net.model:7: loss: the second one; say auxiliary=yes of all but one"},
  }));
  CAPTURE(lines);

  CHECK_THAT(complaint_about(lines), Catch::StartsWith(message));
}

TEST_CASE("model file: a wrong block is told with its line and the line that uses it") {
  const std::string block =
      "block b width\nconv = convolution channels=$width kernel=3\nsum conv input\nend\n";
  const auto [lines, message] = GENERATE_COPY(table<std::string, std::string>({
      {block + "x = b width=4",
       "net.model:5: sum: its inputs are 8x8x4 and 8x8x3 (in x of line 7)"},
      {block + "x = b width=0",
       "net.model:4: channels=0: must be a whole number from 1 to 1000000 (in x of line 7)"},
      {block + "x = b", "net.model:7: b: needs width=..."},
      {block + "b width=3", "net.model:7: b: has parameters, so it needs a name: NAME = b ..."},
      {block + "x = b widht=3", "net.model:7: widht=3: b has no such option; did you mean width?"},
      {block + "x = b input input width=3", "net.model:7: b: a block takes one input"},
      {block, "net.model:3: block b: no line uses it"},
      {block + block, "net.model:7: block b: there is a block of this name already"},
      {block + "x{2..1} = b width=3", "net.model:7: x{2..1}: the range is empty"},
      {block + "x{1..} = b width=3", "net.model:7: x{1..}: each end of the range must be a whole"},
      {block + "x{1} = b width=3", "net.model:7: x{1}: a range of names is written stage.{1..3}"},
      {block + "x.conv = convolution channels=3 kernel=1\nx = b width=3",
       "net.model:4: x.conv: is the name of another layer already (in x of line 8)"},
      {block + "x{1..2} = b input width=3", "net.model:7: x{1..2}: a range goes on from the line"},
      {"block b\nx = b\nend\ny = b", "net.model:4: b: this block does not end above"},
      {"block b\nx = c\nend\nblock c\nx = b\nend\ny = b",
       "net.model:4: c: this block does not end"},
      {"block inner\nrelu\nend\nblock outer\ni = inner\nsum i j\nend\nx = outer",
       "net.model:8: j: no line above has this name; did you mean i? (in x of line 10)"},
      {"block relu\nlrn\nend", "net.model:3: block relu: is an operation already"},
      {"block b\nend", "net.model:4: block b: has no layers"},
      {"block b\nblock c\nend", "net.model:4: block: the block above has no `end` yet"},
      {"block b\nrelu", "net.model:3: block b: has no `end`"},
      {"block b w w\nrelu\nend", "net.model:3: w: is a parameter twice"},
      {"block b\ninput size=3\nend", "net.model:4: input: stands before blocks, not in one"},
      {"end", "net.model:3: end: there is no block to end"},
  }));
  CAPTURE(lines);

  CHECK_THAT(complaint_about(lines), Catch::StartsWith(message));
}

TEST_CASE("model file: a wrong frame is told") {
  const auto [text, message] = GENERATE(table<std::string, std::string>({
      {"", "net.model:1: no model: a file begins with: model NAME classes=10"},
      {"\n# nothing\n", "net.model:3: no model: "},
      {"input size=8\n", "net.model:1: input: a file begins with: model NAME classes=10"},
      {"model classes=10", "net.model:1: model: is written: model NAME classes=10"},
      {"model m", "net.model:1: model: needs classes=..."},
      {"model m classes=-1", "net.model:1: classes=-1: must be a whole number from 1 to 1000000"},
      {"model \x1b[2J classes=10", "net.model:1: \\x1b[2J: is no name"},
      {"model m classes=10\nrelu", "net.model:2: relu: the line `input` comes before all layers"},
      {"model m classes=10\n", "net.model:2: no layers: "},
      {"model m classes=3\ninput size=1\nglobal_pool\nloss", "net.model:4: no parameters: "},
      {head, "net.model:2: input: no line reads its result; a network ends with `loss`"},
      {"model m classes=10\ninput size=8\nfc = matrix_product outputs=10\nloss auxiliary=yes",
       "net.model:4: no loss: a network ends with `loss`"},
      {"model m classes=10\ninput size=8 standardise=yes mean=1,2,3",
       "net.model:2: standardise=yes: takes each image's own mean and deviation"},
      {"model m classes=10\ninput size=8 standardise=yes clip=yes",
       "net.model:2: clip=yes: needs mean and deviation; leave standardise out"},
      {"model m classes=10\ninput size=8 mean=1,2",
       "net.model:2: mean=1,2: must be 3 numbers with ',' between"},
      {"model m classes=10\nrecipe momentun=0.9",
       "net.model:2: momentun=0.9: recipe has no such option; did you mean momentum?"},
      {"model m classes=10\nrecipe lr=nan", "net.model:2: lr=nan: must be a number from 0 to"},
      {"model m classes=10\nrecipe ema=1", "net.model:2: ema=1: must be a number from 0 to"},
      {"model m classes=10\nrecipe lr=1\nrecipe lr=2", "net.model:3: lr=2: a line above says it"},
      {"model m classes=10\nimages contrast=2:1", "net.model:2: contrast: must be LEAST:MOST"},
      {"model m classes=10\nimages crop=rnd", "net.model:2: crop=rnd: must be one of none, random"},
      {"model m classes=10\nimages crop=random keep-aspect=yes",
       "net.model:2: keep-aspect=yes: is"},
      {"model m classes=10\nimages crop=random evaluation=0.5", "net.model:2: evaluation: is not"},
      {"model m classes=10\nimages random-erase=2", "net.model:2: random-erase=2: must be"},
      {"model m classes=10\nimages erase-area=0.5:0.1", "net.model:2: erase-area: must be LEAST"},
      {"model m classes=10\nimages auto-augment=ra\ninput size=2 channels=4\nglobal_pool\n"
       "fc = matrix_product outputs=10\nloss",
       "net.model:6: auto-augment=ra: is for images of 1 or 3 channels"},
      {"model m classes=10\nimages crop=resized pad=4",
       "net.model:2: pad: is not for crop=resized"},
  }));
  CAPTURE(text);

  CHECK_THAT(complaint(text), Catch::StartsWith(message));
}

TEST_CASE("model file: numbers that are too large are refused before they overflow") {
  const auto lines = GENERATE(
      as<std::string>{}, "conv = convolution channels=1000001 kernel=3",
      "conv = convolution channels=4 kernel=513",
      "conv = convolution channels=99999999999999999999 kernel=3",
      "conv = convolution channels=1000000 kernel=512",
      "a{1..5} = convolution channels=1000000 kernel=1",
      "a = convolution channels=10000 kernel=1\nb = convolution channels=100000 kernel=1\nc = "
      "convolution channels=10000 kernel=1",
      "a = matrix_product outputs=1000000\nb = matrix_product outputs=1000000",
      "a{1..99999} = relu", "a{1..9999} = relu\nb{1..9999} = relu", "dropout keep=1e-300",
      "bn = batch_norm epsilon=1e999", "bn = batch_norm gamma=-1e300");
  CAPTURE(lines);

  CHECK_THAT(complaint_about(lines), Catch::StartsWith("net.model:"));
}

TEST_CASE("model file: weights that no integer counts are told where they are") {
  CHECK_THAT(complaint_about("conv = convolution channels=1000000 kernel=512\nrelu"),
             Catch::StartsWith("net.model:3: 786432000000 weights: a network has at most"));
  CHECK_THAT(complaint_about("a = matrix_product outputs=1000000\n"
                             "b = matrix_product outputs=1000000"),
             Catch::StartsWith("net.model:4: 1000000000000 weights: a network has at most"));
}

TEST_CASE("model file: there are as many dropouts as have random numbers of their own") {
  CHECK(complaint_about("d{1..256} = dropout") == "accepted");
  CHECK(complaint_about("d{1..257} = dropout") ==
        "net.model:3: dropout: a network has at most 256");
}

TEST_CASE("model file: blocks that multiply end at the number of layers") {
  std::string lines = "block b0\nrelu\nend\n";
  for (int depth = 1; depth < 60; ++depth) {
    const std::string used = "b" + std::to_string(depth - 1);
    lines += "block b" + std::to_string(depth) + "\nx = " + used + "\ny = " + used + "\nend\n";
  }

  CHECK_THAT(complaint_about(lines + "z = b59"),
             Catch::Contains("a network has at most 10000 layers"));
}

TEST_CASE("model file: a result has an end, also side by side") {
  const auto large = [](const std::string& lines) {
    return complaint("model m classes=10\ninput size=4096\n" + lines + "\n" + tail);
  };

  CHECK_THAT(large("a = convolution channels=1000 kernel=1"),
             Catch::StartsWith("net.model:3: a result of 4096x4096x1000: has more than"));
  CHECK_THAT(large("a = convolution channels=60 kernel=1\nconcat a a"),
             Catch::StartsWith("net.model:4: concat: 2013265920 values in all are too many"));
}
