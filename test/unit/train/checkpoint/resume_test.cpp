#include "train/checkpoint/resume.hpp"

#include "support/catch.hpp"
#include "unit/train/small_training.hpp"

using namespace ringtrain;
using namespace ringtrain::train;
using Catch::Contains;

namespace {

/// Resumes `training` from `file`; what was said.
std::string go_on(SmallTraining& training, const std::filesystem::path& file) {
  std::string said;
  resume({config::Resume::From::file, file}, Wanted::everything, {},
         {io::State(7).metadata.model_hash, "tiny for 3 classes"},
         {training.state, *training.communicator, training.session},
         [&](const std::string& line) { said += line + "\n"; });
  return said;
}

std::string resume_refusal(SmallTraining& training, const std::filesystem::path& file) {
  const auto before = training.state.copy();
  try {
    go_on(training, file);
  } catch (const Error& failure) {
    CHECK(failure.code() == Exit::incompatible_checkpoint);
    CHECK(training.state.copy() == before);
    return failure.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("resume: all of the state comes back") {
  const io::TemporaryDirectory directory;
  const auto averaged = GENERATE(Averaged::weights, Averaged::statistics_too);
  const SmallTraining old(network(2, 3), 0.9, averaged);
  SmallTraining fresh(network(2, 3), 0.9, averaged);
  fresh.set(-5);

  const std::string said = go_on(fresh, old.save(directory));

  CHECK(said.empty());
  CHECK(fresh.state.copy() == old.state.copy());
}

TEST_CASE("resume: the lineage comes with the state") {
  const io::TemporaryDirectory directory;
  SmallTraining training(network(2, 3), 0.9);
  io::State file(7);
  file.layout = training.state.layout();
  file.buffers = training.state.copy();
  io::save_one(directory, file, "test", io::lineage_a);

  const auto resumed =
      resume({}, Wanted::everything, directory, {file.metadata.model_hash},
             {training.state, *training.communicator, training.session}, [](const std::string&) {});

  REQUIRE(resumed);
  CHECK(resumed->lineage == io::lineage_a);
}

TEST_CASE("resume: averages of statistics start from the statistics of a file without them") {
  const io::TemporaryDirectory directory;
  const SmallTraining old(network(2, 3), 0.9);
  SmallTraining fresh(network(2, 3), 0.9, Averaged::statistics_too);
  fresh.set(-5);

  const std::string said = go_on(fresh, old.save(directory));

  CHECK_THAT(said, Contains("those of running statistics start from these"));
  auto expected = old.state.copy();
  expected.push_back(expected[1]);
  CHECK(fresh.state.copy() == expected);
}

TEST_CASE("resume: how many steps were left out comes back, in any precision") {
  const io::TemporaryDirectory directory;
  // As files have it: not at all, of fp16, of another precision; or nonsense (the step is 7).
  struct Case {
    const char* name;
    std::vector<float> saved;
    float expected;
  };
  const auto [name, saved, expected] =
      GENERATE(values<Case>({{"", {}, 0},
                             {"optimizer/loss_scale", {512, 9, 3}, 3},
                             {"optimizer/skipped", {2}, 2},
                             {"optimizer/skipped", {8}, 0},
                             {"optimizer/skipped", {-1}, 0}}));
  const bool fp16 = GENERATE(false, true);
  CAPTURE(name, saved, fp16);
  SmallTraining old(network(2, 3), 0.9), fresh(network(2, 3), 0.9);
  const Buffer of_file = old.memory.allocate(saved.size()), scale = fresh.memory.allocate(3);
  std::ranges::copy(saved, of_file.view().data());
  if (!saved.empty()) old.state.add(name, of_file);
  scale.view().data()[0] = 1024;
  if (fp16)
    fresh.state.add("optimizer/loss_scale", scale);
  else
    fresh.state.add("optimizer/skipped", scale.view().slice(2, 1));

  go_on(fresh, old.save(directory));

  CHECK(scale.view().data()[2] == expected);
  CHECK(scale.view().data()[0] == (fp16 && saved.size() == 3 ? 512 : 1024));
  const bool says = !saved.empty();
  config::Options o;
  o.model = "mlp";
  o.checkpoint_dir = std::filesystem::path(directory).string();
  CHECK(saved_network(o).value().counts_skipped == says);
  o.resume.from = config::Resume::From::scratch;
  CHECK_FALSE(saved_network(o));
}

TEST_CASE("resume: a count of steps left out that has no place ends it") {
  const io::TemporaryDirectory directory;
  SmallTraining old(network(2, 3), 0.9), fresh(network(2, 3), 0.9);
  const Buffer count = old.memory.allocate(1);
  *count.view().data() = 2;
  old.state.add("optimizer/skipped", count);

  CHECK_THROWS_WITH(go_on(fresh, old.save(directory)), Contains("start the job again"));
}

TEST_CASE("resume: another --ema is told apart from another model, and nothing is changed") {
  const io::TemporaryDirectory directory;
  const SmallTraining plain(network(2, 3), 0), wide(network(5, 3), 0.9);
  SmallTraining averaged(network(2, 3), 0.9);

  const std::string by_options = resume_refusal(averaged, plain.save(directory / "plain"));
  const std::string by_model = resume_refusal(averaged, wide.save(directory / "wide"));

  CHECK_THAT(by_options,
             Contains("saved with another --optimizer or --ema: has no ema/conv.weight"));
  CHECK_THAT(
      by_model,
      Contains("of another model (tiny): has weights/conv.weight [5,1,1,3], needed is [2,1,1,3]"));
}

TEST_CASE("resume: a checkpoint of another network is refused with both, and their classes") {
  const io::TemporaryDirectory directory, plain;
  const SmallTraining training(network(2, 3), 0);
  io::State file(7);
  file.layout = training.state.layout();
  file.buffers = training.state.copy();
  const auto refused = [&](const std::filesystem::path& in) -> std::string {
    try {
      io::save_one(in, file);
      resume({}, Wanted::evaluated, in, {1, "mlp for 12 classes"},
             {training.state, *training.communicator, training.session}, [](const std::string&) {});
    } catch (const Error& failure) {
      CHECK(failure.code() == Exit::incompatible_checkpoint);
      return failure.what();
    }
    return "accepted";
  };

  CHECK_THAT(refused(plain),
             Contains("holds tiny, whose layers differ from those of mlp for 12 classes: leave"));
  file.metadata.network =
      "model tiny classes=3\ninput size=4\nfc = matrix_product outputs=3\nloss\n";
  CHECK_THAT(refused(directory), Contains("holds tiny for 3 classes, whose layers differ"));
}

TEST_CASE("resume: a checkpoint knows its classes, whoever names the network") {
  const io::TemporaryDirectory directory;
  const SmallTraining training(network(2, 3), 0);
  io::State file(7);
  file.layout = training.state.layout();
  file.buffers = training.state.copy();
  file.metadata.class_names = "caf\\xe9\nb";
  const auto path = io::save_one(directory, file);
  config::Options o;
  o.model = "mlp";
  o.checkpoint_dir = std::filesystem::path(directory).string();
  const auto names_of = [&] {
    const auto saved = saved_network(o);
    const auto on_every_rank = saved_network(o, training.session, nullptr);
    REQUIRE(saved.has_value() == on_every_rank.has_value());
    if (saved) CHECK(saved->class_names == on_every_rank->class_names);
    return saved ? saved->class_names : std::vector<std::string>{};
  };

  o.eval_only = GENERATE(true, false);
  CHECK(names_of() == std::vector<std::string>{"caf\xe9", "b"});
  o.checkpoint_dir.clear();
  o.init_from = path.string();
  o.eval_only = false;
  CHECK(names_of().empty());  // a training that only starts there has classes of its own
  o.eval_only = true;
  CHECK(names_of() == std::vector<std::string>{"caf\xe9", "b"});
}

TEST_CASE("resume: published weights are of no training that goes on") {
  const io::TemporaryDirectory directory;
  const SmallTraining training(network(2, 3), 0);
  config::Options o;
  o.model = "mlp";
  o.init_from = WEIGHTS "/zip.pth";
  o.checkpoint_dir = std::filesystem::path(directory).string();
  o.eval_only = GENERATE(true, false);
  const auto is_published = [&] {
    const auto saved = saved_network(o),
               on_every_rank = saved_network(o, training.session, nullptr);
    REQUIRE((saved && on_every_rank));
    CHECK(saved->published == on_every_rank->published);
    CHECK(saved->goes_on != saved->published);
    return saved->published;
  };

  CHECK(is_published());
  training.save(directory);
  CHECK_FALSE(is_published());
}

TEST_CASE("resume: what a file says cannot disturb a terminal") {
  const io::TemporaryDirectory directory;
  const SmallTraining wide(network(5, 3), 0);
  SmallTraining training(network(2, 3), 0);
  io::State file(7);
  file.layout = wide.state.layout();
  file.buffers = wide.state.copy();
  file.metadata.model = "\x1b[2Jfine";

  CHECK_THAT(resume_refusal(training, io::save_one(directory, file)), Contains("(\\x1b[2Jfine)"));
}
