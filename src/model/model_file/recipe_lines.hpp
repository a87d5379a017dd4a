#pragma once
#include <string_view>

#include "model/model_file/parse.hpp"
#include "ringtrain/model/zoo.hpp"

namespace ringtrain::model {

inline constexpr std::string_view recipe_options =
    "batch epochs optimizer lr lr-batch lr-schedule warmup-epochs weight-decay momentum "
    "label-smoothing ema source top1";
/// Changes what a line `recipe` says. Throws Error (usage).
void read_recipe(const Values& values, Recipe& recipe);

inline constexpr std::string_view image_options =
    "crop pad smallest-area flip auto-augment brightness contrast saturation hue random-erase "
    "erase-area erase-aspect erase-spread erase-value evaluation keep-aspect resize "
    "crop-share evaluation-crop interpolation evaluation-interpolation labels";
/// Changes what a line `images` says. Throws Error (usage).
void read_images(const Values& values, Recipe& recipe);

}  // namespace ringtrain::model
