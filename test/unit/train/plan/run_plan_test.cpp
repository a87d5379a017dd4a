#include "train/plan/run_plan.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "ringtrain/model/model_file.hpp"
#include "support/catch.hpp"
#include "train/engine/schedule.hpp"
#include "unit/train/temporary_file.hpp"

using namespace ringtrain;
using namespace ringtrain::train;
using Catch::Contains;

namespace {

config::Options options_for(const std::string& model) {
  config::Options o;
  o.model = model;
  return o;
}

/// Images to train on, and none to evaluate on.
class TrainingOnly {
 public:
  TrainingOnly() {
    std::filesystem::create_directories(home_ / "train/cat");
    std::ofstream(home_ / "train/cat/1.jpg") << "no pixels are read";
  }
  TrainingOnly(const TrainingOnly&) = delete;
  TrainingOnly& operator=(const TrainingOnly&) = delete;
  ~TrainingOnly() {
    std::error_code ignored;
    std::filesystem::remove_all(home_, ignored);
  }
  std::string data() const { return "images:" + home_.native(); }

 private:
  const std::filesystem::path home_ =
      std::filesystem::temp_directory_path() / ("ringtrain-plan-" + std::to_string(::getpid()));
};

}  // namespace

TEST_CASE("plan: ResNets evaluate 224 pixels of 256, Inception a part of each side") {
  const io::Augmentation resnet = make_run_plan(options_for("resnet18"), 1, 0, 1).augmentation;
  const io::Augmentation inception =
      make_run_plan(options_for("inception_v3"), 1, 0, 1).augmentation;

  CHECK(resnet.cover == io::Extent{256, 256});
  CHECK(resnet.central_fraction == 0);
  CHECK(resnet.natural() == io::Extent{224, 224});  // of training, which stretches parts
  CHECK(inception.central_fraction == 0.875f);
  CHECK(inception.cover == io::Extent{});
  const auto* jitter = inception.find<io::RandomColorJitter>();
  REQUIRE(jitter != nullptr);
  CHECK(jitter->saturation.low == 0.5f);
  CHECK(jitter->hue.high == 0.2f);
  CHECK(resnet.find<io::RandomColorJitter>() == nullptr);
}

TEST_CASE("plan: the recipe fills in what the user left open") {
  const RunPlan plan = make_run_plan(options_for("cifar10_cnn"), 1, 0, 2);

  CHECK(*plan.options.optimizer == optim::OptimizerKind::sgd);
  CHECK(*plan.options.lr == 0.1);
  CHECK(*plan.options.ema == 0.9999);
  CHECK(plan.global_batch == 256);
  CHECK(plan.share.count == 128);
  CHECK(plan.optimizer.decays.size() == 2);
  CHECK(plan.model.classes == 10);
}

TEST_CASE("plan: what is compressed between hosts is counted as it travels") {
  config::Options o = options_for("resnet20");
  const std::size_t parameters = make_run_plan(o, 1, 0, 2).model.graph.parameter_count();
  o.compress = {.kind = allreduce::Compression::Kind::powersgd, .rank = 1};
  RunPlan plan = make_run_plan(o, 1, 0, 2);

  CHECK(plan.gradient_bytes({0, parameters}) == 4.0 * double(parameters));  // on one host
  plan.hosts = 2;
  const double bytes = plan.gradient_bytes({0, parameters});
  CHECK(bytes < 0.1 * 4 * double(parameters));
  CHECK(plan.gradient_bytes({0, 432}) == 4 * (16 + 27));  // the first convolution
  CHECK(plan.gradient_bytes({0, 432}) + plan.gradient_bytes({432, parameters - 432}) == bytes);
}

TEST_CASE("plan: gradients of 16 bits are counted as such where they travel") {
  config::Options o = options_for("mlp");
  o.gradient_dtype = Element::bf16;
  RunPlan plan = make_run_plan(o, 1, 0, 2);

  CHECK(plan.gradient_bytes({0, 100}) == 400);  // on one host
  plan.hosts = 2;
  CHECK(plan.gradient_bytes({0, 100}) == 200);
}

TEST_CASE("plan: gradients of GPUs are compressed by CPUs, and not where NCCL is asked for") {
  config::Options o = options_for("mlp");
  o.device = config::Device::cuda;
  o.compress = {.kind = allreduce::Compression::Kind::topk, .ratio = 0.1};
  CHECK_NOTHROW(make_run_plan(o, 1, 0, 2));

  o.allreduce = config::Allreduce::nccl;
  CHECK_THROWS_WITH(make_run_plan(o, 1, 0, 2),
                    Catch::Contains("--compress with --allreduce nccl: CPUs compress gradients"));
}

TEST_CASE("plan: buffers that NCCL sums as it likes do not go with bits that repeat") {
  config::Options o = options_for("mlp");
  o.device = config::Device::cuda;
  o.nccl_register = true;
  CHECK_NOTHROW(make_run_plan(o, 1, 0, 2));
  o.deterministic = true;

  CHECK_THROWS_WITH(make_run_plan(o, 1, 0, 2),
                    Catch::Contains("--nccl-register with --deterministic"));
}

TEST_CASE("plan: lars has a trust ratio for each weight, and for nothing else") {
  config::Options o = options_for("cifar10_cnn");
  o.optimizer = optim::OptimizerKind::lars;

  const auto decays = make_run_plan(o, 1, 0, 1).optimizer.decays;

  std::vector<double> factors;
  for (const optim::WeightDecay& decay : decays) factors.push_back(decay.factor);
  CHECK(factors == std::vector<double>{0, 0, 1, 1, 0});  // local3 and local4 decay
  CHECK(decays[0].range.count == 64 * 5 * 5 * 3);
}

namespace {

// Of each parameter, from the ranges of a plan.
std::map<std::string, double> rates_by_name(const RunPlan& plan) {
  std::map<std::string, double> rates;
  const auto ranges = plan.model.graph.parameter_ranges();
  for (std::size_t p = 0; p < ranges.size(); ++p) {
    double& rate = rates[plan.model.graph.parameters[p].name] = 1;
    for (const optim::RateFactor& each : plan.optimizer.rates)
      if (each.range.first <= ranges[p].first && ranges[p].end() <= each.range.end())
        rate = each.factor;
  }
  return rates;
}

std::string refusal_of_factors(const std::string& model, const config::Factors& factors) {
  config::Options o = options_for(model);
  o.data = "synthetic";
  o.factors = factors;
  try {
    make_run_plan(o, 1, 0, 1);
  } catch (const Error& failure) {
    CHECK(failure.code() == Exit::usage);
    return failure.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("plan: rates have the last pattern's factor, times the layer's, and the head's its own") {
  config::Options o = options_for("cifar10_cnn");
  o.lr = 0.2;
  o.factors.lr = {{"conv*", 3}, {"conv1.*", 5}, {"*.bias", 0}, {"softmax_linear.*", 9}};
  o.factors.layer_decay = 0.5;
  o.factors.head_lr = 0.1;

  const auto rates = rates_by_name(make_run_plan(o, 1, 0, 1));

  CHECK(rates.at("conv1.weight") == 5 * 0.0625);
  CHECK(rates.at("conv1.bias") == 0);
  CHECK(rates.at("conv2.weight") == 3 * 0.125);
  CHECK(rates.at("local3.weight") == 0.25);
  CHECK(rates.at("local4.weight") == 0.5);
  CHECK(rates.at("local4.bias") == 0);
  CHECK(rates.at("softmax_linear.weight") == 0.5);
  CHECK(rates.at("softmax_linear.bias") == 0.5);
}

TEST_CASE("plan: what decays does so by the last pattern's factor") {
  config::Options o = options_for("cifar10_cnn");
  o.factors.decay = {{"*", 2}, {"local4.*", 0.25}};

  const auto decays = make_run_plan(o, 1, 0, 1).optimizer.decays;

  REQUIRE(decays.size() == 2);  // biases and what the network excepts still do not
  CHECK(decays[0].factor == 2);
  CHECK(decays[1].factor == 0.25);
}

TEST_CASE("plan: without factors, and with those of 1, no rate is another one") {
  config::Options o = options_for("resnet20");
  CHECK(make_run_plan(o, 1, 0, 1).optimizer.rates.empty());
  o.factors = {.lr = {{"*", 1}}, .decay = {{"*", 1}}, .head_lr = 0.1, .layer_decay = 1};
  o.lr = 0.1;

  const RunPlan plan = make_run_plan(o, 1, 0, 1);

  CHECK(plan.optimizer.rates.empty());
  CHECK(plan.optimizer.decays.front().factor == 1);
  o.eval_only = true;
  o.factors.lr = {{"nothing", 1}};
  CHECK_NOTHROW(make_run_plan(o, 1, 0, 1));
}

TEST_CASE("plan: neighbours of one factor are one range") {
  config::Options o = options_for("resnet20");
  o.factors.lr = {{"layer1.*", 0.5}, {"layer2.*", 0.5}, {"fc.*", 2}};

  const RunPlan plan = make_run_plan(o, 1, 0, 1);

  REQUIRE(plan.optimizer.rates.size() == 2);
  CHECK(plan.optimizer.rates[0].factor == 0.5);
  CHECK(plan.optimizer.rates[1].range.count == 650);
  CHECK_THAT(plan.rates_line(), Contains("of 269,722 parameters learn at 0.5 to 2 times the rate"));
}

TEST_CASE("plan: a pattern that matches nothing is refused with the nearest one") {
  const auto of = [](const char* pattern) {
    return refusal_of_factors("resnet20", {.lr = {{pattern, 2}}});
  };

  CHECK(of("layer?.[01].conv*.weight") == "accepted");
  CHECK_THAT(of("layr1.*"), Contains("--lr-factor layr1.*: matches no parameter of resnet20") &&
                                Contains("did you mean layer1.*?"));
  CHECK(of("fc") == "accepted");
  CHECK_THAT(of("layer9.*"), Contains("begin with conv1, bn1, layer1, layer2, layer3, fc") &&
                                 !Contains("did you mean"));
  CHECK_THAT(refusal_of_factors("resnet20", {.decay = {{"fc.wieght", 2}}}),
             Contains("--decay-factor fc.wieght") && Contains("did you mean fc.weight?"));
}

TEST_CASE("plan: a rate of the head needs a head, and a rate to be a multiple of") {
  const TemporaryFile headless(
      "model headless classes=10\ninput size=8\nc = convolution channels=$classes kernel=1\n"
      "global_pool\nloss\n");
  config::Options o = options_for("");
  o.model_file = headless.path();
  o.data = "synthetic";
  o.factors.head_lr = 0.5;
  CHECK_THROWS_WITH(make_run_plan(o, 1, 0, 1), Contains("--head-lr 0.5: headless has no"));

  o = options_for("mlp");
  o.lr = 0;
  o.factors.head_lr = 0.5;
  CHECK_THROWS_WITH(make_run_plan(o, 1, 0, 1), Contains("--head-lr with --lr 0"));
}

TEST_CASE("plan: factors that are unset are those of the checkpoint") {
  config::Options o = options_for("mlp");
  o.lr = 0.1;
  o.factors = {.lr = {{"fc1.*", 3}}, .head_lr = 0.2};
  SavedNetwork saved{.checkpoint = "a.h5", .name = "mlp", .identity = "mlp"};
  saved.factors = {.lr = {{"fc2.*", 7}}, .decay = {{"fc1.*", 0}}, .head_lr = 9, .layer_decay = 0.5};
  saved.hash = make_run_plan(o, 1, 0, 1).model.graph.structure_hash();
  saved.goes_on = true;
  std::string told;
  const auto tell = [&](const std::string& line) { told += line + "\n"; };

  const RunPlan plan = make_run_plan(o, 1, 0, 1, tell, nullptr, saved);

  CHECK_THAT(told, Contains("--decay-factor fc1.*=0 --layer-decay 0.5, as in the checkpoint"));
  CHECK(plan.options.factors ==
        config::Factors{
            .lr = {{"fc1.*", 3}}, .decay = {{"fc1.*", 0}}, .head_lr = 0.2, .layer_decay = 0.5});
  const auto rates = rates_by_name(plan);
  CHECK(rates.at("fc1.weight") == 3 * 0.25);
  CHECK(rates.at("fc2.weight") == 0.5);
  CHECK(rates.at("fc3.weight") == 2);
}

TEST_CASE("plan: above 8192 images a step, there is a hint to lars, until it is taken") {
  config::Options o = options_for("mlp");
  o.data = "synthetic";
  const auto hints = [&](int batch, optim::OptimizerKind kind) {
    o.global_batch = batch;
    o.optimizer = kind;
    return make_run_plan(o, 1, 0, 1).hints();
  };

  CHECK(hints(8192, optim::OptimizerKind::momentum).empty());
  REQUIRE(hints(8193, optim::OptimizerKind::momentum).size() == 1);
  CHECK(hints(8193, optim::OptimizerKind::momentum)[0].find("8193 images") != std::string::npos);
  CHECK(hints(8193, optim::OptimizerKind::lars).empty());
}

TEST_CASE("plan: a BatchNorm of one value a channel is told, on the rank with the fewest images") {
  const auto hint = [](int batch, int ranks, bool together) {
    model::GraphBuilder builder;
    const auto image = builder.input(8, 8, 3, {});
    const auto pooled = builder.global_pool(image);
    builder.batch_norm("bn", pooled, {});
    RunPlan plan = make_run_plan(options_for("mlp"), 1, 0, ranks);
    plan.model.graph = std::move(builder).finish();
    plan.options.sync_batchnorm = together;
    plan.micro_batch = batch;
    plan.take_shares(std::vector<int>(static_cast<std::size_t>(ranks), batch / ranks), 0);
    std::string all;
    for (const std::string& line : plan.hints()) all += line;
    return all;
  };

  CHECK_THAT(hint(1, 1, false),
             Contains("bn normalises one value a channel") && !Contains("--sync-batchnorm"));
  CHECK_THAT(hint(2, 2, false),
             Contains("bn normalises one value") && Contains("--sync-batchnorm"));
  CHECK(hint(2, 1, false).empty());
  CHECK(hint(2, 2, true).empty());
}

TEST_CASE("plan: a warm-up longer than half of the run is told") {
  config::Options o = options_for("mlp");
  o.warmup_epochs = 5;
  const auto told = [&](int epochs) {
    o.epochs = epochs;
    const auto hints = make_run_plan(o, 1, 0, 1).hints();
    return hints.size() == 1 && hints[0].find("--warmup-epochs") != std::string::npos;
  };

  CHECK(told(9));
  CHECK_FALSE(told(10));
  o.warmup_epochs = 0;
  CHECK_FALSE(told(1));
}

TEST_CASE("plan: a rate for a batch is scaled with the global batch, one without is not") {
  const auto rate = [](const std::string& model, int ranks) {
    return *make_run_plan(options_for(model), 1, 0, ranks).options.lr;
  };

  CHECK(rate("resnet20", 1) == Approx(0.1));
  CHECK(rate("resnet20", 4) == Approx(0.4));
  CHECK(rate("cifar10_cnn", 4) == Approx(0.1));
}

TEST_CASE("plan: the rate of a larger batch grows with it, from the batch that the rate is for") {
  config::Options small = options_for("cifar10_cnn");  // rate 0.1, batch 128, never scaled
  small.batch = 16;
  const RunPlan plan = make_run_plan(small, 2, 0, 2);
  CHECK(plan.learning_rate_of_batch(2) == Approx(0.1));  // 64 images
  CHECK(plan.learning_rate_of_batch(8) == Approx(0.2));  // 256

  config::Options large = options_for("cifar10_cnn");
  large.batch = 256;
  CHECK(make_run_plan(large, 2, 0, 2).learning_rate_of_batch(2) == Approx(0.2));

  small.lr = 0.01;  // the user's, for what is trained now
  CHECK(make_run_plan(small, 2, 0, 2).learning_rate_of_batch(8) == Approx(0.08));
  small.optimizer = optim::OptimizerKind::adam;
  CHECK(make_run_plan(small, 2, 0, 2).learning_rate_of_batch(4) == Approx(0.02));
}

TEST_CASE("plan: the recipe's own rate of a larger batch, of its optimizer") {
  config::Options o = options_for("cifar10_cnn");  // rate 0.1, batch 128, never scaled
  o.batch = 16;
  o.lr = 1;
  const RunPlan plan = make_run_plan(o, 2, 0, 2);
  CHECK(*plan.recipe_rate_of_batch(2) == Approx(0.1));  // 64 images
  CHECK(*plan.recipe_rate_of_batch(8) == Approx(0.2));  // 256
  config::Options scaled = options_for("resnet20");     // rate 0.1 for a batch of 128
  scaled.batch = 16;
  CHECK(*make_run_plan(scaled, 2, 0, 2).recipe_rate_of_batch(2) == Approx(0.05));

  o.optimizer = optim::OptimizerKind::adam;
  CHECK_FALSE(make_run_plan(o, 2, 0, 2).recipe_rate_of_batch(2));
}

TEST_CASE("plan: a global batch that does not divide gives the first ranks one image more") {
  config::Options o = options_for("mlp");
  o.global_batch = 10;

  CHECK(make_run_plan(o, 1, 0, 3).share.count == 4);
  CHECK(make_run_plan(o, 1, 2, 3).share.count == 3);
  CHECK(make_run_plan(o, 1, 2, 3).share.first == 7);
}

TEST_CASE("plan: as other ranks, the images a step stay, and no rank has more at a time") {
  struct Case {
    int batch, accumulate, as, ranks, global, micro_steps, most;
  };
  const auto c = GENERATE(Case{32, 1, 4, 3, 128, 2, 22}, Case{32, 2, 4, 3, 256, 4, 22},
                          Case{32, 1, 4, 1, 128, 4, 32}, Case{32, 2, 2, 4, 128, 2, 16},
                          Case{1, 1, 4, 3, 4, 1, 2}, Case{127, 1, 1, 1, 127, 1, 127});
  CAPTURE(c.batch, c.accumulate, c.as, c.ranks);
  config::Options o = options_for("mlp");
  o.batch = c.batch;
  o.accumulate = c.accumulate;
  o.as_ranks = c.as;
  std::string told;

  const RunPlan plan =
      make_run_plan(o, 1, 0, c.ranks, [&](const std::string& line) { told += line; });

  CHECK(plan.global_batch == c.global);
  CHECK(plan.options.accumulate == c.micro_steps);
  CHECK(plan.share.count == c.most);
  const std::string division = std::to_string(c.micro_steps) + " times " + std::to_string(c.most);
  CHECK((told.find(division) != std::string::npos) == (c.as != c.ranks));
  CHECK((told.find("no division") != std::string::npos) == (c.batch < c.most));
}

TEST_CASE("plan: as other ranks, a global batch stays what it is") {
  config::Options o = options_for("mlp");
  o.global_batch = 126;
  o.as_ranks = 2;

  CHECK(make_run_plan(o, 1, 0, 1).options.accumulate == 2);
  o.global_batch = 127;  // a prime number
  CHECK(make_run_plan(o, 1, 0, 1).options.accumulate == 127);
}

TEST_CASE("plan: epochs and steps are two ways to say the same length") {
  config::Options o = options_for("mlp");
  o.global_batch = 300;
  o.epochs = 3;
  CHECK(make_run_plan(o, 1, 0, 1).last_step({}) == 100);  // shapes has 10,000 images
  o.epochs.reset();
  o.steps = 50;
  CHECK(make_run_plan(o, 1, 0, 1).epochs == Approx(1.5));
}

TEST_CASE("plan: parts of an epoch are whole samples") {
  config::Options o = options_for("mlp");
  o.global_batch = 100;
  o.recipe = "epochs=0.07";  // of 10,000 images: 700.0000000000001
  const RunPlan plan = make_run_plan(o, 1, 0, 1);

  CHECK(plan.last_step({}) == 7);
  CHECK(plan.done({7, 700}));
  CHECK_FALSE(plan.done({6, 600}));
}

TEST_CASE("plan: epochs are samples, so a resume with another batch ends at the same place") {
  config::Options o = options_for("mlp");
  o.global_batch = 100;
  o.epochs = 4;
  const RunPlan plan = make_run_plan(o, 1, 0, 1);
  const Position half_way{200, 10'000};  // 200 steps of 50 images

  CHECK_FALSE(plan.done(half_way));
  CHECK(plan.last_step(half_way) == 500);
  CHECK(plan.done({500, 40'000}));
  CHECK(plan.evaluation_due({300, 20'000}));
  CHECK_FALSE(plan.evaluation_due({301, 20'100}));
}

TEST_CASE("plan: what cannot work is refused with a reason") {
  config::Options o = options_for("mlp");
  o.global_batch = 2;
  CHECK_THROWS_WITH(make_run_plan(o, 1, 0, 3), Catch::Contains("at least 3"));
  o.global_batch = 10;
  o.accumulate = 4;
  CHECK_THROWS_WITH(make_run_plan(o, 1, 0, 1), Catch::Contains("--accumulate 4"));
  o = options_for("mlp");
  o.classes = 7;
  CHECK_THROWS_WITH(make_run_plan(o, 1, 0, 1), Catch::Contains("10 classes"));
  o = options_for("mlp");
  o.device = config::Device::cuda;
  o.allreduce = config::Allreduce::ring;
  CHECK_THROWS_WITH(make_run_plan(o, 1, 0, 1),
                    Catch::Contains("--allreduce ring: sums between CPUs"));
  o = options_for("mlp");
  o.precision = config::Precision::fp16;
  CHECK_THROWS_WITH(make_run_plan(o, 1, 0, 1), Catch::Contains("--precision fp16: is for GPUs"));
  o = options_for("mlp");
  o.allreduce = config::Allreduce::nccl;
  CHECK_THROWS_WITH(make_run_plan(o, 1, 0, 1),
                    Catch::Contains("--allreduce nccl: sums between GPUs"));
  o = options_for("mlp");
  o.batch = 20'000;
  CHECK_THROWS(make_run_plan(o, 1, 0, 1));
}

TEST_CASE("plan: a model file brings network and recipe, and its text is part of what runs") {
  const std::string layers = "input size=32\nfc = matrix_product outputs=$classes\nloss\n";
  const TemporaryFile file("model own classes=7\nrecipe optimizer=adam lr=0.01 batch=6\n" + layers);
  const TemporaryFile other("model own classes=7 # of another kind\n" + layers);
  config::Options o = options_for("");
  o.model_file = file.path();

  const RunPlan plan = make_run_plan(o, 1, 0, 2);
  CHECK(plan.model.name == "own");
  CHECK(plan.model.classes == 10);  // those of the data
  CHECK(*plan.options.optimizer == optim::OptimizerKind::adam);
  CHECK(*plan.options.lr == 0.01);
  CHECK(plan.global_batch == 12);
  CHECK(plan.options.model.starts_with("own (file "));
  o.data = "synthetic";
  CHECK(make_run_plan(o, 1, 0, 2).model.classes == 7);
  o.model_file = other.path();
  CHECK(make_run_plan(o, 1, 0, 2).options.model != plan.options.model);
}

TEST_CASE("plan: an evaluation alone opens no training data") {
  config::Options o = options_for("mlp");
  o.eval_only = true;

  const RunPlan plan = make_run_plan(o, 1, 0, 2);

  CHECK(plan.training == nullptr);
  CHECK(plan.evaluation->size() == 2000);
  CHECK(plan.model.classes == 10);
  CHECK(plan.last_step({5, 640}) == 5);
}

TEST_CASE("plan: what a recipe freezes and multiplies holds, but where a checkpoint goes on") {
  config::Options o = options_for("mlp");
  o.lr = 0.1;
  SavedNetwork saved{.checkpoint = "a.h5", .name = "mlp", .identity = "mlp"};
  saved.hash = make_run_plan(o, 1, 0, 1).model.graph.structure_hash();
  saved.goes_on = true;
  saved.frozen = "fc2.weight";
  saved.factors.lr = {{"fc3.*", 7}};
  o.recipe = "freeze=fc1.weight lr-factor=fc2.*=3 decay-factor=fc2.*=0";
  const auto plan_of = [&](const std::optional<SavedNetwork>& known) {
    return make_run_plan(
        o, 1, 0, 1, [](const std::string&) {}, nullptr, known);
  };

  const RunPlan fresh = plan_of(std::nullopt), goes_on = plan_of(saved);

  CHECK(fresh.options.freeze == "fc1.weight");
  CHECK(fresh.options.factors == config::Factors{.lr = {{"fc2.*", 3}}, .decay = {{"fc2.*", 0}}});
  CHECK(goes_on.options.freeze == "fc2.weight");
  CHECK(goes_on.options.factors == config::Factors{.lr = {{"fc3.*", 7}}});
  o.recipe = "lr-factor=fc2.*=much";
  CHECK_THROWS_WITH(plan_of(std::nullopt), Contains("lr-factor=fc2.*=much: FACTOR must be"));
}

TEST_CASE("plan: without a name, the network is that of the checkpoint") {
  const config::Options o = options_for("");
  const SavedNetwork own{.checkpoint = "a/step-0000000001.h5",
                         .name = "own",
                         .identity = "own (file 1)",
                         .text =
                             "model own classes=12\nrecipe lr=0.5\ninput size=8\n"
                             "fc = matrix_product outputs=$classes\nloss\n",
                         .named = true,
                         .goes_on = true};
  SavedNetwork started = own;
  started.named = started.goes_on = false;
  const SavedNetwork of_earlier_build{.checkpoint = "a/step-0000000001.h5", .name = "resnet20"};
  const auto plan_of = [&](const std::optional<SavedNetwork>& saved) {
    return make_run_plan(
        o, 1, 0, 1, [](const std::string&) {}, nullptr, saved);
  };

  const RunPlan goes_on = plan_of(own);

  CHECK(goes_on.options.model == "own (file 1)");
  CHECK(goes_on.model.classes == 12);  // the data have 10
  CHECK(goes_on.network == own.text);
  CHECK(*goes_on.options.lr == 0.5);
  CHECK(plan_of(started).model.classes == 10);
  CHECK_THAT(plan_of(started).network, Catch::StartsWith("model own classes=10\n"));
  CHECK(plan_of(of_earlier_build).model.name == "resnet20");
  CHECK(plan_of(std::nullopt).model.name == config::usual_model);
  CHECK_THROWS_WITH(plan_of(SavedNetwork{.checkpoint = "a.h5", .name = "own"}),
                    Contains("a.h5: holds no network, but the name own: give --model-file"));
}

TEST_CASE("plan: a network that is evaluated has its checkpoint's classes, whoever names it") {
  const SavedNetwork saved{.checkpoint = "a.h5",
                           .name = "mlp",
                           .text = model::with_classes(model::model_text("mlp"), 12)};
  const auto classes = [&](bool eval_only) {
    config::Options o = options_for("mlp");  // whose data have 10
    o.eval_only = eval_only;
    return make_run_plan(
               o, 1, 0, 1, [](const std::string&) {}, nullptr, saved)
        .model.classes;
  };

  CHECK(classes(true) == 12);
  CHECK(classes(false) == 10);
}

TEST_CASE("plan: data of too many classes are told with whose classes these are") {
  const SavedNetwork saved{.checkpoint = "a.h5",
                           .name = "mlp",
                           .identity = "mlp",
                           .text = model::with_classes(model::model_text("mlp"), 3),
                           .goes_on = true};
  const auto refused = [](const config::Options& o, const std::optional<SavedNetwork>& known) {
    try {
      make_run_plan(
          o, 1, 0, 1, [](const std::string&) {}, nullptr, known);
    } catch (const Error& failure) {
      CHECK(failure.code() == Exit::data);
      return std::string(failure.what());
    }
    return std::string("accepted");
  };
  config::Options o = options_for("");  // whose data have 10
  const std::string goes_on = refused(o, saved);
  o.eval_only = true;
  const std::string evaluated = refused(o, saved);
  o.classes = 4;
  const std::string given = refused(o, saved);
  const TrainingOnly images;
  config::Options elsewhere = options_for("resnet20");
  elsewhere.data = images.data();
  elsewhere.batch = 1;
  elsewhere.val_data = "shapes";

  CHECK_THAT(goes_on, Catch::StartsWith("a.h5: its network has 3 classes, but ") &&
                          Contains("has 10 classes: give data of") && Contains("by --init-from"));
  CHECK_THAT(evaluated,
             Catch::StartsWith("a.h5: its network has 3 classes, but ") && !Contains("training"));
  CHECK_THAT(given, Catch::StartsWith("--classes 4: but "));
  CHECK_THAT(refused(elsewhere, std::nullopt), Catch::StartsWith("--val-data shapes: ") &&
                                                   Contains("has 10 classes, but --data has"));
}

TEST_CASE("plan: a network that contradicts --resume FILE is refused with both") {
  const model::Model held = model::make_model("resnet20", 10);
  SavedNetwork saved{.checkpoint = "a.h5",
                     .name = "resnet20",
                     .identity = "resnet20",
                     .text = std::string(model::model_text("resnet20")),
                     .hash = held.graph.structure_hash(),
                     .named = true,
                     .goes_on = true};
  const auto refused = [&](const config::Options& o) -> std::string {
    try {
      make_run_plan(
          o, 1, 0, 1, [](const std::string&) {}, nullptr, saved);
    } catch (const Error& failure) {
      CHECK(failure.code() == Exit::usage);
      return failure.what();
    }
    return "accepted";
  };
  config::Options other_classes = options_for("");
  other_classes.classes = 12;

  CHECK(refused(options_for("resnet20")) == "accepted");
  CHECK(refused(options_for("")) == "accepted");
  CHECK_THAT(refused(options_for("mlp")),
             Contains("--model mlp: makes mlp for 10 classes; a.h5 holds resnet20 for 10 classes"));
  CHECK_THAT(refused(other_classes), Contains("--classes 12: makes resnet20 for 12 classes; a.h5 "
                                              "holds resnet20 for 10 classes"));
  saved.text.clear();
  CHECK_THAT(refused(options_for("mlp")), Contains("a.h5 holds resnet20: "));
  saved.named = false;  // --resume auto: what is there is looked at later
  CHECK(refused(options_for("mlp")) == "accepted");
}

TEST_CASE("plan: how images become numbers is what evaluation does") {
  CHECK(input_text(make_run_plan(options_for("resnet18"), 1, 0, 1)) ==
        R"({"size":[224,224],"cover":[256,256],"interpolation":"bilinear","antialias":true,)"
        R"("channels":"RGB","mean":[0.485,0.456,0.406],"deviation":[0.229,0.224,0.225]})");
  CHECK_THAT(input_text(make_run_plan(options_for("inception_v3"), 1, 0, 1)),
             Contains(R"("size":[299,299],"central_fraction":0.875,)"));
  CHECK_THAT(input_text(make_run_plan(options_for("cifar10_cnn"), 1, 0, 1)),
             Contains(R"("size":[24,24],"cover":[32,32],)") && Contains(R"("standardise":true})"));
}

TEST_CASE("plan: what only the trainer knows of a model file is told with its line, too") {
  const auto refused = [](const std::string& recipe) {
    const TemporaryFile file("model own classes=10\n" + recipe + "\n");
    config::Options o = options_for("");
    o.model_file = file.path();
    try {
      make_run_plan(o, 1, 0, 1);
    } catch (const Error& failure) {
      CHECK(failure.code() == Exit::usage);
      return std::string(failure.what()).substr(file.path().size());
    }
    return std::string("accepted");
  };

  CHECK_THAT(refused("recipe optimizer=sdg"),
             Catch::StartsWith(":2: optimizer=sdg: must be one of sgd, momentum"));
  CHECK_THAT(refused("recipe lr-schedule=cosin"),
             Catch::StartsWith(":2: lr-schedule=cosin: must be one of constant, step"));
  CHECK_THAT(refused("images auto-augment=trivial"),
             Catch::StartsWith(":2: auto-augment=trivial: must be none, ta_wide, ra"));
  CHECK_THAT(refused(std::string((1 << 20) + 1, '#')), Catch::EndsWith("has at most 1 MiB"));
}

TEST_CASE("plan: images without val and test are trained on without evaluation") {
  const TrainingOnly images;
  config::Options o = options_for("resnet20");
  o.data = images.data();
  o.batch = 1;

  const RunPlan plan = make_run_plan(o, 1, 0, 1);
  CHECK_FALSE(plan.evaluation_due({1, 1}));
  o.eval_only = true;
  CHECK_THROWS_WITH(make_run_plan(o, 1, 0, 1),
                    Catch::Contains("no directory val/, valid/, validation/ or test/"));
}

namespace {

constexpr const char* any_size =
    "model small classes=10\nimages crop=resized evaluation=0.875 keep-aspect=yes\n"
    "input size=28\nconv = convolution channels=4 kernel=3\nglobal_pool\n"
    "fc = matrix_product outputs=$classes\nloss\n";

RunPlan plan_with(const TemporaryFile& model, const std::string& recipe) {
  config::Options options;
  options.model_file = model.path();
  options.recipe = recipe;
  options.batch = 8;
  return make_run_plan(options, 1, 0, 1);
}

}  // namespace

TEST_CASE("plan: images have one, three or four channels, and opacity is not jittered") {
  const TemporaryFile model(any_size);
  const auto refusal = [&](const std::string& recipe) -> std::string {
    try {
      return input_text(plan_with(model, recipe));
    } catch (const Error& failure) {
      CHECK(failure.code() == Exit::usage);
      return failure.what();
    }
  };

  CHECK_THAT(refusal("channels=1 brightness=9"), Contains(R"("channels":"L")"));
  CHECK_THAT(refusal("channels=2"), Contains("its image has 2 channels"));
  CHECK_THAT(refusal("channels=3 brightness=9"), Contains(R"("channels":"RGB")"));
  CHECK_THAT(refusal("channels=4"), Contains(R"("channels":"RGBA")"));
  CHECK_THAT(refusal("channels=4 brightness=9"), Contains("its recipe jitters colours"));
}

TEST_CASE("plan: training and evaluation may have images of other sizes") {
  const TemporaryFile model(any_size);

  const RunPlan usual = plan_with(model, "pad=0");
  const RunPlan sized =
      plan_with(model, "crop=16 evaluation-crop=24 resize=32 evaluation-interpolation=bicubic");

  CHECK_FALSE(usual.training_graph);
  CHECK_FALSE(usual.evaluation_graph);
  CHECK(sized.graph(model::Mode::training).tensors[0].height == 16);
  CHECK(sized.graph(model::Mode::evaluation).tensors[0].height == 24);
  CHECK(sized.model.graph.structure_hash() == usual.model.graph.structure_hash());
  const io::Augmentation trained = sized.loader(io::Split::training).augmentation,
                         seen = sized.loader(io::Split::evaluation).augmentation;
  CHECK(trained.output == io::Extent{16, 16});
  CHECK(trained.find<io::RandomResizedCrop>() != nullptr);
  CHECK(trained.interpolation == io::Interpolation::bilinear);
  CHECK(seen.output == io::Extent{24, 24});
  CHECK(seen.shorter_side == 32);
  CHECK(seen.interpolation == io::Interpolation::bicubic);
  CHECK_THAT(input_text(sized), Contains("\"size\":[24,24],\"resize\":32") &&
                                    Contains("\"interpolation\":\"bicubic\""));
}

TEST_CASE("plan: crop-share is timm's, which rounds down") {
  const TemporaryFile model(any_size);

  CHECK(plan_with(model, "crop-share=0.9").evaluated.shorter_side == 31);  // 28 / 0.9 = 31.1
  CHECK(plan_with(model, "crop-share=0.875").evaluated.shorter_side == 32);
}

TEST_CASE("plan: a size that would change parameters is refused") {
  const TemporaryFile model(
      "model small classes=10\ninput size=28\nfc = matrix_product outputs=$classes\nloss\n");

  CHECK_THROWS_WITH(plan_with(model, "crop=16"),
                    Contains("would give fc.weight other extents") && Contains("28x28 only"));
  CHECK_THROWS_WITH(plan_with(model, "crops=16"), Contains("did you mean crop?"));
}

TEST_CASE(
    "plan: what is wrong with --recipe is told as such, and what the file has with its line") {
  const auto refused = [](const std::string& text, const std::string& recipe) -> std::string {
    const TemporaryFile model(text);
    try {
      plan_with(model, recipe);
      return "accepted";
    } catch (const Error& failure) {
      CHECK(failure.code() == Exit::usage);
      return failure.what();
    }
  };

  CHECK_THAT(refused(any_size, "crop-share=1.5"),
             Catch::StartsWith(R"(--recipe "crop-share=1.5": crop-share)"));
  CHECK_THAT(refused(any_size, "interpolation=cubic"),
             Catch::StartsWith(R"(--recipe "interpolation=cubic": interpolation)"));
  CHECK_THAT(refused(any_size, "mean=0.5"), Catch::StartsWith(R"(--recipe "mean=0.5": )"));
  CHECK_THAT(refused(any_size, "optimizer=sdg"),
             Catch::StartsWith(R"(--recipe "optimizer=sdg": opt)"));
  CHECK_THAT(refused(std::string(any_size) + "wrong\n", "lr=1 pad=0 size=28"),
             Contains(":8: ") && !Contains("--recipe"));
}

TEST_CASE("plan: --val-data takes the place of the data's own evaluation") {
  const TrainingOnly images;
  config::Options options = options_for("mlp");
  options.batch = 8;
  options.val_data = images.data();

  CHECK_THROWS_WITH(make_run_plan(options, 1, 0, 1), Contains("--val-data images:"));
  options.val_data += "/train";
  CHECK_THROWS_WITH(make_run_plan(options, 1, 0, 1), Contains("training has no such class"));
  options.data = "synthetic";
  options.val_data = "shapes";
  CHECK(make_run_plan(options, 1, 0, 1).evaluation->description() ==
        io::open_dataset("shapes", io::Split::evaluation)->description());
}

namespace {

/// A row a class of `shapes`.
std::string weights_of_shapes(const std::string& of_class_3) {
  std::string rows;
  for (int label = 0; label < 10; ++label)
    rows += std::to_string(label) + "," + (label == 3 ? of_class_3 : "1") + "\n";
  return rows;
}

std::vector<float> weights_in_loss(const RunPlan& plan, model::Mode mode) {
  const auto none = [](const compute::Schedule&, const compute::Step&) { return false; };
  const compute::Schedule schedule = make_schedule(plan, none, mode);
  for (const compute::Step& step : schedule.steps)
    if (const auto* loss = std::get_if<compute::SoftmaxCrossEntropy>(&step))
      return loss->class_weights;
  return {-1};
}

}  // namespace

TEST_CASE("plan: classes weigh what a file says, in training alone, wherever the file lies") {
  const TemporaryFile file(weights_of_shapes("2")), copy(weights_of_shapes("2")),
      other(weights_of_shapes("3")), wrong(weights_of_shapes("-3"));
  std::string told;
  const auto plan_of_weights = [&](const std::string& weights) {
    config::Options o = options_for("mlp");
    o.class_weights = weights;
    return make_run_plan(o, 1, 0, 1, [&](const std::string& line) { told += line; });
  };

  const RunPlan plan = plan_of_weights(file.path());

  CHECK(plan.class_weights == std::vector<float>{1, 1, 1, 2, 1, 1, 1, 1, 1, 1});
  CHECK_THAT(told, Contains("--class-weights: 1 to 2"));
  CHECK(weights_in_loss(plan, model::Mode::training) == plan.class_weights);
  CHECK(weights_in_loss(plan, model::Mode::evaluation).empty());
  CHECK(plan.options.class_weights.starts_with("file "));
  CHECK(plan_of_weights(copy.path()).options.class_weights == plan.options.class_weights);
  CHECK(plan_of_weights(other.path()).options.class_weights != plan.options.class_weights);
  CHECK_THROWS_WITH(plan_of_weights(wrong.path()), Contains("weight -3 of 3 must be"));
  CHECK(plan_of_weights("").class_weights.empty());
}

TEST_CASE("plan: how often classes come, and which have no image, is told") {
  const TrainingOnly images;
  const std::string folder = images.data().substr(images.data().find(':') + 1);
  std::ofstream(folder + "/classes.txt") << "cat\ndog\nbird\n";
  const TemporaryFile labels("1.jpg,cat\n2.jpg,cat\n3.jpg,cat\n4.jpg,bird\n");
  config::Options o = options_for("mlp");
  o.data = images.data();
  o.labels = labels.path();
  o.batch = 1;
  std::string told;
  const auto tell = [&](const std::string& line) { told += line + "\n"; };

  o.balance = true;
  const RunPlan drawn = make_run_plan(o, 1, 0, 1, tell);
  o.balance = false;
  o.class_weights = "balanced";
  const RunPlan weighted = make_run_plan(o, 1, 0, 1, tell);

  CHECK_THAT(told, Contains("--balance: 2 images an epoch of each of 2 classes, which have 1 to 3; "
                            "without an image: dog\n"));
  CHECK(drawn.loader(io::Split::training).balance);
  CHECK_FALSE(drawn.loader(io::Split::evaluation).balance);
  CHECK_FALSE(weighted.loader(io::Split::training).balance);
  CHECK(weighted.class_weights == std::vector<float>{2 / 3.f, 1, 2});
  CHECK(weighted.options.class_weights == "balanced");
  CHECK_THAT(told, Contains("--class-weights: 0.667 to 2; without an image: dog\n"));
}
