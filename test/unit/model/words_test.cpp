#include "ringtrain/base/error.hpp"
#include "ringtrain/model/imagenet.hpp"
#include "ringtrain/model/model_file.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::model;
using Catch::Contains;

namespace {

constexpr std::string_view small = R"(# A network.
model small classes=3
recipe lr=0.5 epochs=7
images crop=resized evaluation=0.875 keep-aspect=yes   # as published
input size=20 mean=0.1,0.2,0.3
global_pool
fc = matrix_product outputs=$classes
loss
)";

Model read(std::string_view text) {
  return read_model_file(text, "small.model", std::nullopt, [](const Recipe&) {});
}

std::string refusal(std::string_view words) {
  try {
    read(with_words(small, words));
    return "accepted";
  } catch (const Error& failure) {
    CHECK(failure.code() == Exit::usage);
    return failure.what();
  }
}

}  // namespace

TEST_CASE("words: each takes the place of the file's, on the line that it belongs to") {
  const Model changed = read(with_words(small, "lr=0.25 flip=no mean=0.5,0.5,0.5 deviation=1,1,1"));

  CHECK(changed.recipe.learning_rate == 0.25);
  CHECK(changed.recipe.epochs == 7);
  CHECK_FALSE(changed.recipe.flip);
  CHECK(changed.recipe.random_resized_crop);
  const auto& input = std::get<ImageInput>(changed.graph.nodes[0].operation);
  CHECK(input.mean == std::vector<float>{0.5f, 0.5f, 0.5f});
  CHECK(input.deviation == std::vector<float>{1, 1, 1});
  CHECK(changed.input.height == 20);
  CHECK_THAT(with_words(small, "lr=0.25"),
             Contains("# A network.\n") && Contains("# as published"));
}

TEST_CASE("words: policies and erasing are options of the line images") {
  const std::string words =
      "auto-augment=ta_wide random-erase=0.5 erase-area=0.02:0.4 erase-aspect=0.3:1/0.3 "
      "erase-spread=even erase-value=0.4914";

  const Model plain = read(small), changed = read(with_words(small, words));

  CHECK(plain.recipe.auto_augment == "none");
  CHECK_FALSE(std::get<ImageInput>(plain.graph.nodes[0].operation).erase);
  CHECK(changed.recipe.auto_augment == "ta_wide");
  CHECK(changed.recipe.random_erase == 0.5);
  CHECK(changed.recipe.most_erased_area == 0.4f);
  CHECK(changed.recipe.most_erased_aspect == Approx(1 / 0.3));
  CHECK(changed.recipe.even_erased_aspect);
  CHECK(changed.recipe.erased_value == 0.4914f);
  CHECK(std::get<ImageInput>(changed.graph.nodes[0].operation).erase);
}

TEST_CASE("words: mixing, cutout, flips and pads are options of the line images") {
  const Recipe r = read(with_words(small,
                                   "mixup=0.2 cutmix=1 mixup-prob=0.9 mixup-switch-prob=0.25 "
                                   "mixup-mode=batch aug-repeats=3 cutout=8 cutout-place=inside "
                                   "flip=alternating crop=none pad=2 pad-mode=reflect"))
                       .recipe;

  CHECK((r.mixup == 0.2 && r.cutmix == 1 && r.mixup_probability == 0.9 && r.cutmix_share == 0.25));
  CHECK((r.mixes_by_step && r.augment_repeats == 3));
  CHECK((r.cutout == 8 && r.cutout_inside && r.flip && r.alternating_flip));
  CHECK((r.pad == 2 && r.pad_reflected));
  CHECK_THAT(refusal("cutout=8 random-erase=0.5"), Contains("give one of them"));
  CHECK_THAT(refusal("mixup=0.2 brightness=10"), Contains("mixup and cutmix"));
  CHECK_THAT(refusal("flip=maybe"), Contains("alternating"));
}

TEST_CASE("words: a size alone leaves the mode of the crop, and resizes take each other's place") {
  const Recipe sized = read(with_words(small, "crop=16")).recipe;
  const Recipe twice = read(with_words(with_words(small, "crop=16"), "crop=12")).recipe;
  const Recipe other = read(with_words(small, "crop=none:18 resize=23")).recipe;
  const Recipe share = read(with_words(with_words(small, "resize=23"), "crop-share=0.9")).recipe;

  CHECK((sized.random_resized_crop && sized.training_size == 16));
  CHECK((twice.random_resized_crop && twice.training_size == 12));
  CHECK((!other.random_resized_crop && other.training_size == 18 && other.resize == 23));
  CHECK((share.resize == 0 && share.crop_share == 0.9));
}

TEST_CASE("words: evaluation may scale in another way than training") {
  const Recipe both = read(with_words(small, "interpolation=bicubic")).recipe;
  const Recipe apart = read(with_words(small, "evaluation-interpolation=bicubic")).recipe;

  CHECK((both.interpolation == Interpolation::bicubic &&
         both.evaluation_interpolation == Interpolation::bicubic));
  CHECK((apart.interpolation == Interpolation::bilinear &&
         apart.evaluation_interpolation == Interpolation::bicubic));
}

TEST_CASE("words: what no line has, or cannot be, is refused") {
  CHECK_THAT(refusal("learning=1"), Contains("--recipe learning"));
  CHECK_THAT(refusal("flips=no"), Contains("did you mean flip?"));
  CHECK_THAT(refusal("lr"), Contains("OPTION=VALUE"));
  CHECK_THAT(refusal("lr=1 lr=2"), Contains("twice"));
  CHECK_THAT(refusal("crop=square"), Contains("none, random, resized, a size"));
  CHECK_THAT(refusal("crop=resized:0"), Contains("none, random, resized, a size"));
  CHECK_THAT(refusal("interpolation=nearest"), Contains("bilinear, bicubic"));
  CHECK_THAT(refusal("resize=20 crop-share=0.9"), Contains("give one of them"));
  CHECK_THAT(refusal("crop=random keep-aspect=no evaluation=1 resize=20"),
             Contains("is not for crop=random"));
}

TEST_CASE("imagenet: a thousand classes in the order of their wnids") {
  const auto classes = imagenet_classes();

  REQUIRE(classes.size() == 1000);
  CHECK((classes[0].wnid == "n01440764" && classes[0].name == "tench"));
  CHECK((classes[999].wnid == "n15075141" && classes[999].name == "toilet tissue"));
  for (std::size_t i = 1; i < classes.size(); ++i) CHECK(classes[i - 1].wnid < classes[i].wnid);
}
