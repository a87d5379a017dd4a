#include "train/checkpoint/warm_start.hpp"

#include <fmt/core.h>

#include "support/catch.hpp"
#include "unit/train/small_training.hpp"

using namespace ringtrain;
using namespace ringtrain::train;
using Catch::Contains;

namespace {

model::Graph without_norm() {
  model::GraphBuilder g;
  compute::TensorId x = g.input(4, 4, 3, {compute::Normalisation::standardise_image});
  x = g.global_pool(g.convolution("conv", x, {.channels = 2}));
  g.loss(g.matrix_product("fc", x, 3, {}, 0.0, true));
  return std::move(g).finish();
}

// As resnet9 has it.
model::Graph with_multiplied_head(int classes) {
  model::GraphBuilder g;
  compute::TensorId x = g.input(4, 4, 3, {compute::Normalisation::standardise_image});
  x = g.global_pool(g.convolution("conv", x, {.channels = 2}));
  g.loss(g.multiply(g.matrix_product("fc", x, classes, {}, 0.0, true), 0.125f));
  return std::move(g).finish();
}

std::string start_from(SmallTraining& training, const std::filesystem::path& file,
                       Heads heads = Heads::may_differ) {
  std::string said;
  for (const std::string& line :
       init_from(file, config::Weights::automatic, heads, training.graph,
                 {training.state, *training.communicator, training.session}))
    said += line + "\n";
  return said;
}

std::string init_refusal(SmallTraining& training, const std::filesystem::path& file,
                         Heads heads = Heads::may_differ) {
  const auto before = training.state.copy();
  try {
    start_from(training, file, heads);
  } catch (const Error& failure) {
    CHECK(failure.code() == Exit::incompatible_checkpoint);
    CHECK(training.state.copy() == before);
    return failure.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("init_from: weights and statistics are the file's, the optimizer starts anew") {
  const io::TemporaryDirectory directory;
  const SmallTraining old(network(2, 3), 0);
  SmallTraining fresh(network(2, 3), 0.9);
  fresh.set(-5);

  const std::string said = start_from(fresh, old.save(directory));

  CHECK_THAT(said, Contains("weights and running statistics from step-0000000007.h5"));
  CHECK_THAT(said, !Contains("drawn anew"));
  const auto theirs = old.state.copy(), ours = fresh.state.copy();
  CHECK(ours[0] == theirs[0]);
  CHECK(ours[1] == theirs[1]);
  CHECK(ours[2] == std::vector<float>(ours[2].size(), -5));  // momentum
  CHECK(ours[3] == theirs[0]);                               // the average starts from the weights
}

TEST_CASE("init_from: the weights' moving average is taken where the file has one") {
  const io::TemporaryDirectory directory;
  const SmallTraining old(network(2, 3), 0.9);
  SmallTraining fresh(network(2, 3), 0);

  const std::string said = start_from(fresh, old.save(directory));

  CHECK_THAT(said, Contains("moving averages of weights"));
  CHECK(fresh.state.copy()[0] == old.state.copy()[3]);
}

TEST_CASE("init_from: a head for other classes stays as drawn, and is named") {
  const io::TemporaryDirectory directory;
  const SmallTraining old(network(2, 3), 0);
  SmallTraining fresh(network(2, 4), 0.9);
  fresh.set(-5);
  const auto file = old.save(directory);
  const std::size_t body = fresh.graph.parameter_ranges()[3].first;

  const std::string said = start_from(fresh, file);

  REQUIRE(fresh.graph.parameters[3].name == "fc.weight");
  CHECK_THAT(said, Contains("drawn anew") && Contains("fc.weight [4,2], fc.bias [4]"));
  for (const std::size_t buffer : {0, 3}) {
    CHECK(fresh.part(buffer, 0, body) == old.part(0, 0, body));
    CHECK(fresh.part(buffer, body, 12) == std::vector<float>(12, -5));
  }
  CHECK_THAT(init_refusal(fresh, file, Heads::must_fit), Contains("has weights/fc.weight [3,2]"));
}

TEST_CASE("init_from: a head may have a factor behind it") {
  const io::TemporaryDirectory directory;
  const SmallTraining old(with_multiplied_head(3), 0);
  SmallTraining fresh(with_multiplied_head(4), 0);

  CHECK_THAT(start_from(fresh, old.save(directory)),
             Contains("drawn anew") && Contains("fc.weight [4,2], fc.bias [4]"));
}

TEST_CASE("init_from: another network is refused with what differs, and nothing is changed") {
  const io::TemporaryDirectory directory;
  const SmallTraining narrow(network(2, 3), 0);
  SmallTraining wide(network(5, 3), 0), plain(without_norm(), 0);
  const auto file = narrow.save(directory);

  CHECK_THAT(init_refusal(wide, file),
             Contains("has weights/conv.weight [2,1,1,3], needed is [5,1,1,3]") &&
                 Contains("has statistics/bn.running_var [2], needed is [5]"));
  CHECK_THAT(init_refusal(plain, file),
             Contains("has weights/bn.weight [2], which this model has not"));
}

TEST_CASE("init_from: a damaged file is refused") {
  const io::TemporaryDirectory directory;
  SmallTraining training(network(2, 3), 0);
  const auto file = training.save(directory);
  std::string bytes = io::file_bytes(file);
  bytes.back() ^= 1;
  io::write_bytes(file, bytes);

  CHECK_THROWS_WITH(start_from(training, file), Contains("fails its hash"));
}

TEST_CASE("init_from: what is of no format at all is told as a download that may have failed") {
  const std::string cut("\x40\x9c\0\0\0\0\0\0{\"conv.weight\":{", 23);
  const std::string bytes = GENERATE_COPY(std::string(), std::string("<!DOCTYPE html>"),
                                          "<html>" + std::string(5000, ' '), cut);
  CAPTURE(bytes);
  const io::TemporaryDirectory directory;
  const auto file = directory / "resnet18.pth";
  io::write_bytes(file, bytes);
  SmallTraining training(network(2, 3), 0);

  try {
    start_from(training, file);
    FAIL("accepted");
  } catch (const Error& failure) {
    CHECK(failure.code() == Exit::no_valid_checkpoint);
    CHECK_THAT(failure.what(),
               Contains("resnet18.pth") && Contains(fmt::format("{} bytes", bytes.size())) &&
                   Contains("neither a ringtrain checkpoint nor a file of safetensors or "
                            "torch.save()") &&
                   Contains("ask whether its download is whole"));
  }
}

TEST_CASE("init_from: averages of statistics start from the statistics of a file without them") {
  const io::TemporaryDirectory directory;
  const SmallTraining old(network(2, 3), 0.9);
  SmallTraining fresh(network(2, 3), 0.9, Averaged::statistics_too);

  start_from(fresh, old.save(directory));

  const auto theirs = old.state.copy(), ours = fresh.state.copy();
  CHECK(ours[0] == theirs[3]);
  CHECK(ours[3] == theirs[3]);
  CHECK(ours[1] == theirs[1]);
  CHECK(ours[4] == theirs[1]);
}
