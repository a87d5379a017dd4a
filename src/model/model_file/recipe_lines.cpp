#include "model/model_file/recipe_lines.hpp"

#include <algorithm>
#include <array>

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

TestViews read_views(const Values& values, TestViews usual) {
  constexpr std::array names{"one", "flip", "flip-shift"};
  const std::string name = values.choice("views", {names.begin(), names.end()},
                                         names.at(static_cast<std::size_t>(usual)));
  return static_cast<TestViews>(std::ranges::find(names, name) - names.begin());
}

// Either takes the place of the other, wherever it stands.
void read_evaluation(const Values& values, Recipe& r) {
  r.evaluation_fraction = values.number("evaluation", 0.01, 1, r.evaluation_fraction);
  r.keep_aspect = values.yes("keep-aspect", r.keep_aspect);
  r.resize = values.whole("resize", 1, most_pixels, r.resize);
  r.crop_share = values.number("crop-share", 0.01, 1, r.crop_share);
  r.views = read_views(values, r.views);
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
  r.cutout = values.whole("cutout", 0, most_pixels, r.cutout);
  r.cutout_inside = values.choice("cutout-place", {"any", "inside"},
                                  r.cutout_inside ? "inside" : "any") == "inside";
  if (r.random_erase > 0 && r.cutout > 0)
    throw Error(Exit::usage, "random-erase and cutout", "each erases a part; give one of them");
}

void read_flip(const Values& values, Recipe& r) {
  const std::string usual = r.alternating_flip ? "alternating" : r.flip ? "yes" : "no";
  const std::string flip = values.choice("flip", {"yes", "no", "alternating"}, usual);
  r.flip = flip != "no";
  r.alternating_flip = flip == "alternating";
}

// By timm's names.
void read_mixing(const Values& values, Recipe& r) {
  r.mixup = values.number("mixup", 0, 100, r.mixup);
  r.cutmix = values.number("cutmix", 0, 100, r.cutmix);
  r.mixup_probability = values.number("mixup-prob", 0, 1, r.mixup_probability);
  r.cutmix_share = values.number("mixup-switch-prob", 0, 1, r.cutmix_share);
  r.mixes_by_step =
      values.choice("mixup-mode", {"pair", "batch"}, r.mixes_by_step ? "batch" : "pair") == "batch";
  r.augment_repeats = values.whole("aug-repeats", 1, 100, r.augment_repeats);
  if (r.mixes() && r.jitters_colors())
    throw Error(Exit::usage, "mixup and cutmix",
                "are not for brightness, contrast, saturation and hue, which the device changes "
                "after them");
}

// A name, or with a number behind it.
void read_average(const Values& values, Recipe& r) {
  r.ema_every = values.whole("ema-every", 1, million, r.ema_every);
  r.lookahead = values.yes("lookahead", r.lookahead);
  if (!values.has("ema-warmup")) return;
  r.ema_warmup = values.read("ema-warmup", r.ema_warmup, [](const std::string& text) {
    const std::vector<std::string> parts = split(text, ':');
    const bool counts = parts[0] == "power" || parts[0] == "epochs";
    const bool known = counts || text == "tf" || text == "timm" || text == "none";
    if (!known || parts.size() != (counts ? 2 : 1))
      throw BadValue("must be tf, timm, none, power:P or epochs:E");
    if (counts) number_between(parts[1], 0, million);
    return text;
  });
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
  r.warmup_factor = values.number("warmup-factor", 0, 1, r.warmup_factor);
  r.weight_decay = values.number("weight-decay", 0, 1, r.weight_decay);
  r.norm_decay = values.number("norm-decay", 0, million, r.norm_decay);
  r.bias_decay = values.number("bias-decay", 0, million, r.bias_decay);
  r.lr_factor = values.text("lr-factor", r.lr_factor);
  r.decay_factor = values.text("decay-factor", r.decay_factor);
  r.freeze = values.text("freeze", r.freeze);
  r.momentum = values.number("momentum", 0, 0.9999999, r.momentum);
  r.label_smoothing = values.number("label-smoothing", 0, 0.999, r.label_smoothing);
  r.bce_loss = values.yes("bce-loss", r.bce_loss);
  r.bce_sum = values.yes("bce-sum", r.bce_sum);
  r.bce_target_threshold = values.number("bce-target-thresh", 0, 1, r.bce_target_threshold);
  r.clip_grad = values.number("clip-grad", 0, million, r.clip_grad);
  r.ema = values.number("ema", 0, 0.9999999, r.ema);
  read_average(values, r);
  r.beta1 = values.number("beta1", 0, 0.9999999, r.beta1);
  if (values.has("beta2")) r.beta2 = values.number("beta2", 0, 0.9999999, 0);
  r.epsilon = values.number("epsilon", 0, million, r.epsilon);
  r.source = values.text("source", r.source);
  r.top1 = values.number("top1", 0, 100, r.top1);
}

void read_images(const Values& values, Recipe& r) {
  read_crop(values, r);
  r.pad = values.whole("pad", 0, 512, r.pad);
  r.smallest_area = values.number("smallest-area", 0.0001, 1, r.smallest_area);
  r.pad_reflected = values.choice("pad-mode", {"black", "reflect"},
                                  r.pad_reflected ? "reflect" : "black") == "reflect";
  read_flip(values, r);
  r.auto_augment = values.text("auto-augment", r.auto_augment);
  r.brightness = float(values.number("brightness", 0, 255, r.brightness));
  read_factors(values, "contrast", r.least_contrast, r.most_contrast);
  read_factors(values, "saturation", r.least_saturation, r.most_saturation);
  r.hue = float(values.number("hue", 0, 0.5, r.hue));
  read_erasing(values, r);
  read_mixing(values, r);
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
