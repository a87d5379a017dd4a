#pragma once
#include <string_view>

#include "model/model_file/parse.hpp"
#include "ringtrain/model/zoo.hpp"

namespace ringtrain::model {

inline constexpr std::string_view recipe_options =
    "batch epochs optimizer lr lr-batch lr-schedule warmup-epochs warmup-factor lr-factor "
    "weight-decay norm-decay bias-decay decay-factor freeze momentum beta1 beta2 epsilon "
    "label-smoothing bce-loss bce-sum bce-target-thresh clip-grad ema ema-every ema-warmup "
    "lookahead source top1";
/// Changes what a line `recipe` says. Throws Error (usage).
void read_recipe(const Values& values, Recipe& recipe);

inline constexpr std::string_view image_options =
    "crop pad pad-mode smallest-area flip auto-augment brightness contrast saturation hue "
    "random-erase erase-area erase-aspect erase-spread erase-value cutout cutout-place mixup "
    "cutmix mixup-prob mixup-switch-prob mixup-mode aug-repeats evaluation keep-aspect resize "
    "crop-share evaluation-crop views interpolation evaluation-interpolation labels";
/// Changes what a line `images` says. Throws Error (usage).
void read_images(const Values& values, Recipe& recipe);

}  // namespace ringtrain::model
