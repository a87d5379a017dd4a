#include "model/model_file/recipe_lines.hpp"

#include "ringtrain/base/error.hpp"

namespace ringtrain::model {
namespace {

constexpr int million = 1'000'000, most_pixels = 4096;

// LEAST:MOST
void read_factors(const Values& values, const std::string& option, float& least, float& most,
                  double low = 0, double high = 100) {
  const auto factors = values.numbers(option, ':', low, high, {least, most});
  if (factors[0] > factors[1])
    throw Error(Exit::usage, option, "must be LEAST:MOST, the smaller number first");
  least = float(factors[0]);
  most = float(factors[1]);
}

// MODE, SIZE or MODE:SIZE
void read_crop(const Values& values, Recipe& r) {
  if (!values.has("crop")) return;
  values.read("crop", "", [&](const std::string& text) {
    const std::vector<std::string> parts = split(text, ':');
    const auto size = number_in<int>(parts.back());
    const bool names_mode = parts.size() > 1 || !size;
    const bool known = parts[0] == "none" || parts[0] == "random" || parts[0] == "resized";
    if (parts.size() > 2 || (names_mode && !known) || (parts.size() == 2 && !size) ||
        (size && (*size < 1 || *size > most_pixels)))
      throw BadValue("must be one of none, random, resized, a size, or both as resized:176");
    if (size) r.training_size = *size;
    if (names_mode) r.random_crop = parts[0] == "random";
    if (names_mode) r.random_resized_crop = parts[0] == "resized";
    return 0;
  });
}

Interpolation read_interpolation(const Values& values, const std::string& option,
                                 Interpolation usual) {
  const auto name = [](Interpolation i) {
    return i == Interpolation::bicubic ? "bicubic" : "bilinear";
  };
  return values.choice(option, {"bilinear", "bicubic"}, name(usual)) == "bicubic"
             ? Interpolation::bicubic
             : Interpolation::bilinear;
}

// Either takes the place of the other, wherever it stands.
void read_evaluation(const Values& values, Recipe& r) {
  r.evaluation_fraction = values.number("evaluation", 0.01, 1, r.evaluation_fraction);
  r.keep_aspect = values.yes("keep-aspect", r.keep_aspect);
  r.resize = values.whole("resize", 1, most_pixels, r.resize);
  r.crop_share = values.number("crop-share", 0.01, 1, r.crop_share);
  r.evaluation_size = values.whole("evaluation-crop", 1, most_pixels, r.evaluation_size);
  if (values.has("interpolation"))
    r.interpolation = r.evaluation_interpolation =
        read_interpolation(values, "interpolation", r.interpolation);
  r.evaluation_interpolation =
      read_interpolation(values, "evaluation-interpolation", r.evaluation_interpolation);
  if (r.resize > 0 && r.crop_share > 0)
    throw Error(Exit::usage, "resize and crop-share",
                "each says how far evaluation scales; give one of them");
}

void read_erasing(const Values& values, Recipe& r) {
  r.random_erase = values.number("random-erase", 0, 1, r.random_erase);
  read_factors(values, "erase-area", r.least_erased_area, r.most_erased_area, 0, 1);
  read_factors(values, "erase-aspect", r.least_erased_aspect, r.most_erased_aspect, 0.01, 100);
  r.even_erased_aspect = values.choice("erase-spread", {"log", "even"},
                                       r.even_erased_aspect ? "even" : "log") == "even";
  r.erased_value = float(values.number("erase-value", -100, 100, r.erased_value));
}

}  // namespace

void read_recipe(const Values& values, Recipe& r) {
  r.batch = values.whole("batch", 1, million, r.batch);
  r.epochs = values.number("epochs", 0.001, million, r.epochs);
  r.optimizer = values.text("optimizer", r.optimizer);
  r.learning_rate = values.number("lr", 0, million, r.learning_rate);
  r.learning_rate_batch = values.whole("lr-batch", 0, 1000 * million, r.learning_rate_batch);
  r.schedule = values.text("lr-schedule", r.schedule);
  r.warmup_epochs = values.number("warmup-epochs", 0, million, r.warmup_epochs);
  r.weight_decay = values.number("weight-decay", 0, 1, r.weight_decay);
  r.momentum = values.number("momentum", 0, 0.9999999, r.momentum);
  r.label_smoothing = values.number("label-smoothing", 0, 0.999, r.label_smoothing);
  r.ema = values.number("ema", 0, 0.9999999, r.ema);
  r.source = values.text("source", r.source);
  r.top1 = values.number("top1", 0, 100, r.top1);
}

void read_images(const Values& values, Recipe& r) {
  read_crop(values, r);
  r.pad = values.whole("pad", 0, 512, r.pad);
  r.smallest_area = values.number("smallest-area", 0.0001, 1, r.smallest_area);
  r.flip = values.yes("flip", r.flip);
  r.auto_augment = values.text("auto-augment", r.auto_augment);
  r.brightness = float(values.number("brightness", 0, 255, r.brightness));
  read_factors(values, "contrast", r.least_contrast, r.most_contrast);
  read_factors(values, "saturation", r.least_saturation, r.most_saturation);
  r.hue = float(values.number("hue", 0, 0.5, r.hue));
  read_erasing(values, r);
  r.imagenet_labels = values.choice("labels", {"data", "imagenet"},
                                    r.imagenet_labels ? "imagenet" : "data") == "imagenet";
  read_evaluation(values, r);
  if ((r.resize > 0 || r.crop_share > 0) && r.random_crop)
    throw Error(Exit::usage, r.resize > 0 ? "resize" : "crop-share",
                "is not for crop=random, which cuts out of 4/3 of the input");
  if (r.keep_aspect && r.random_crop)
    throw Error(Exit::usage, "keep-aspect=yes", "is not for crop=random, which always does");
  if (r.evaluation_fraction < 1 && r.random_crop)
    throw Error(Exit::usage, "evaluation",
                "is not for crop=random, which cuts out of 4/3 of the input");
  if (r.pad > 0 && r.random_resized_crop)
    throw Error(Exit::usage, "pad", "is not for crop=resized, which needs no border");
}

}  // namespace ringtrain::model
