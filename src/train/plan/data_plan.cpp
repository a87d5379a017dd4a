#include "train/plan/data_plan.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/program.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/io/dataset/class_weights.hpp"
#include "ringtrain/model/imagenet.hpp"
#include "ringtrain/model/model_file.hpp"

namespace ringtrain::train {
namespace {

io::Extent scaled(io::Extent extent, double factor) {
  return {static_cast<int>(std::lround(extent.height * factor)),
          static_cast<int>(std::lround(extent.width * factor))};
}

// Of training and of evaluation.
io::Extent extent_of(const model::Model& model, int size) {
  return size > 0 ? io::Extent{size, size} : io::Extent{model.input.height, model.input.width};
}

// What evaluation scales the shorter side to, as torchvision and timm say it; 0: neither.
int shorter_side_of(const model::Recipe& recipe, io::Extent evaluated) {
  const int shorter = std::min(evaluated.height, evaluated.width);
  return recipe.crop_share > 0 ? static_cast<int>(shorter / recipe.crop_share) : recipe.resize;
}

io::Interpolation interpolation_of(model::Interpolation named) {
  return named == model::Interpolation::bicubic ? io::Interpolation::bicubic
                                                : io::Interpolation::bilinear;
}

// What `value` of the normalised image is in 8 bits. Before images are mixed they are not
// normalised, so that is where parts are erased.
io::Colour colour_of(const model::Model& model, float value) {
  const auto& input = std::get<model::ImageInput>(model.graph.nodes[0].operation);
  if (input.normalisation == compute::Normalisation::standardise_image)
    throw Error(Exit::usage, "random-erase and cutout with mixup or cutmix",
                "need an input with mean and deviation, not standardise=yes");
  io::Colour colour{};
  for (std::size_t c = 0; c < colour.size(); ++c) {
    const float part = input.mean[std::min(c, input.mean.size() - 1)] +
                       value * input.deviation[std::min(c, input.deviation.size() - 1)];
    colour[c] = static_cast<std::uint8_t>(std::clamp(std::nearbyint(255 * part), 0.f, 255.f));
  }
  return colour;
}

// What timm puts where an image does not reach: the mean that is normalised away.
io::Colour outside_of(const model::Model& model) {
  const auto& input = std::get<model::ImageInput>(model.graph.nodes[0].operation);
  if (input.normalisation == compute::Normalisation::standardise_image) return {128, 128, 128};
  return colour_of(model, 0);
}

void add_erasing(const model::Model& model, io::Augmentation& a) {
  const model::Recipe& recipe = model.recipe;
  if (!recipe.erases()) return;
  std::optional<io::Colour> colour;
  if (recipe.mixes()) colour = colour_of(model, recipe.random_erase > 0 ? recipe.erased_value : 0);
  if (recipe.cutout > 0)
    a.operations.push_back(io::Cutout{recipe.cutout, recipe.cutout_inside, colour});
  else
    a.operations.push_back(
        io::RandomErasing{.probability = recipe.random_erase,
                          .area = {recipe.least_erased_area, recipe.most_erased_area},
                          .aspect = {recipe.least_erased_aspect, recipe.most_erased_aspect},
                          .even_aspect = recipe.even_erased_aspect,
                          .value = recipe.erased_value,
                          .colour = colour});
}

void add_policy(const model::Model& model, io::Augmentation& a) {
  auto policy = io::parse_policy(model.recipe.auto_augment);
  if (!policy) return;
  if (auto* timm = std::get_if<io::TimmRandAugment>(&*policy)) timm->outside = outside_of(model);
  a.operations.push_back(*policy);
}

// What needs to be smaller than the image.
void check_extent(const model::Recipe& recipe, io::Extent extent) {
  const int side = std::min(extent.height, extent.width);
  if (recipe.pad_reflected && 2 * recipe.pad > side)
    throw Error(Exit::usage, fmt::format("pad={} pad-mode=reflect", recipe.pad),
                fmt::format("an image of {} pixels is reflected over half of them at most", side));
  if (recipe.cutout_inside && recipe.cutout >= side)
    throw Error(Exit::usage, fmt::format("cutout={} cutout-place=inside", recipe.cutout),
                fmt::format("an image of {} pixels has no such square inside", side));
}

io::Augmentation augmentation_of(const model::Model& model, io::Split split) {
  const model::Recipe& recipe = model.recipe;
  const bool trains = split == io::Split::training;
  const io::Extent evaluated = extent_of(model, recipe.evaluation_size),
                   extent = trains ? extent_of(model, recipe.training_size) : evaluated;
  check_extent(recipe, extent_of(model, recipe.training_size));
  io::Augmentation a{extent};
  a.interpolation =
      interpolation_of(trains ? recipe.interpolation : recipe.evaluation_interpolation);
  if (const int side = shorter_side_of(recipe, evaluated))  // as much of the image in training
    a.shorter_side =
        trains ? static_cast<int>(std::lround(double(side) * extent.height / evaluated.height))
               : side;
  if (recipe.random_crop)  // a window of three quarters: 24 of 32
    a.cover = {extent.height * 4 / 3, extent.width * 4 / 3};
  if (recipe.keep_aspect && !recipe.random_crop)  // 224 of 256
    a.cover = scaled(extent, 1 / recipe.evaluation_fraction);
  else if (recipe.evaluation_fraction < 1 && a.shorter_side == 0)
    a.central_fraction = static_cast<float>(recipe.evaluation_fraction);

  if (recipe.random_resized_crop)
    a.operations.push_back(
        io::RandomResizedCrop{.area = {static_cast<float>(recipe.smallest_area), 1}});
  else if (recipe.random_crop || recipe.pad > 0)
    a.operations.push_back(io::RandomCrop{recipe.pad, recipe.pad_reflected});
  if (recipe.alternating_flip)
    a.operations.push_back(io::AlternatingFlip{});
  else if (recipe.flip)
    a.operations.push_back(io::RandomHorizontalFlip{});
  add_policy(model, a);
  if (recipe.jitters_colors())
    a.operations.push_back(
        io::RandomColorJitter{.brightness = {-recipe.brightness, recipe.brightness},
                              .contrast = {recipe.least_contrast, recipe.most_contrast},
                              .saturation = {recipe.least_saturation, recipe.most_saturation},
                              .hue = {-recipe.hue, recipe.hue}});
  add_erasing(model, a);
  a.mixing = {recipe.mixup, recipe.cutmix, recipe.mixup_probability, recipe.cutmix_share,
              recipe.mixes_by_step};
  a.repeats = recipe.augment_repeats;
  return a;
}

// Folders named by wnid have ImageNet's labels where the network is to have its 1,000 classes: with
// published weights, with as many --classes, and with checkpoints of such a training.
std::vector<std::string> wnids_of(const config::Options& o, const ModelSource& source,
                                  const std::optional<SavedNetwork>& saved) {
  std::vector<std::string> wnids;
  for (const model::ImagenetClass& each : model::imagenet_classes()) wnids.emplace_back(each.wnid);
  const bool learned = saved && saved->class_names == wnids;
  const bool wanted =
      (saved && saved->published && !o.classes) || o.classes == static_cast<int>(wnids.size());
  if (learned || (wanted && source.make().recipe.imagenet_labels)) return wnids;
  return {};
}

// A training that goes on, or is evaluated, keeps its images: what it learned is not evaluated on.
std::optional<io::ValSplit> keep_val_split(config::Options& o,
                                           const std::optional<SavedNetwork>& saved) {
  const bool required = o.val_split.has_value(), was_kept = saved && saved->val_split;
  const bool same = !o.val_split || (was_kept && !o.val_split->seed &&
                                     o.val_split->share == saved->val_split->share);
  if (was_kept && same && (saved->goes_on || o.eval_only)) o.val_split = saved->val_split;
  if (!o.val_split) return std::nullopt;
  if (!o.val_split->seed) o.val_split->seed = o.seed;
  return io::ValSplit{o.val_split->share, *o.val_split->seed, required};
}

io::DatasetOptions dataset_options(RunPlan& plan, const DataToOpen& how) {
  const auto& [source, saved, tell, progress] = how;
  const auto val_split = keep_val_split(plan.options, saved);
  const config::Options& o = plan.options;
  io::DatasetOptions data{.cache_folder = cache_folder(),
                          .threads = plan.data_threads,
                          .tell = tell,
                          .progress = progress};
  if (saved) data.class_names = saved->class_names;
  data.val_split = val_split;
  data.labels_file = o.labels;
  data.only_evaluated = o.eval_only;
  data.wnids = wnids_of(o, source, saved);
  if (o.data != "synthetic" && o.val_data != "synthetic") return data;
  // It has no extent and classes of its own: it takes the model's.
  const model::Model model = source.make();
  data.extent = augmentation_of(model, io::Split::training).natural();
  data.classes = model.classes;
  return data;
}

std::vector<std::string> names_in_file(const std::string& file, std::size_t classes) {
  const std::string option = "--class-names " + brief(file);
  std::vector<std::string> names = lines_in(read_small_file(file, option));
  if (names.size() == classes) return names;
  throw Error(Exit::usage, option,
              fmt::format("holds {} names, a line each, but the network has {} classes",
                          names.size(), classes));
}

// One a class of the network: of --class-names, the checkpoint, ImageNet, or its number.
std::vector<std::string> names_of(const model::Model& model, const config::Options& o,
                                  const std::optional<SavedNetwork>& saved) {
  const auto classes = static_cast<std::size_t>(model.classes);
  if (!o.class_names.empty()) return names_in_file(o.class_names, classes);
  if (saved && saved->class_names.size() == classes) return saved->class_names;
  const auto imagenet = model::imagenet_classes();
  std::vector<std::string> names;
  for (std::size_t label = 0; label < classes; ++label)
    names.push_back(model.recipe.imagenet_labels && classes == imagenet.size()
                        ? std::string(imagenet[label].name)
                        : std::to_string(label));
  return names;
}

void open_to_predict(RunPlan& plan, const DataToOpen& how) {
  plan.class_names = names_of(how.source.make(), plan.options, how.saved);
  plan.evaluation =
      io::open_to_predict(plan.options.predict, plan.class_names, dataset_options(plan, how));
  how.tell(plan.evaluation->description() + ", to predict");
}

// Of --val-data, else of the data itself.
void open_evaluation(RunPlan& plan, io::DatasetOptions data) {
  const config::Options& o = plan.options;
  const bool elsewhere = !o.val_data.empty();
  const std::string& spec = elsewhere ? o.val_data : o.data;
  data.elsewhere = elsewhere;
  if (plan.training) data.class_names = plan.training->class_names();
  plan.evaluation = io::open_dataset(spec, io::Split::evaluation, data);
  if (!plan.evaluation && o.follows_best())
    throw Error(Exit::usage, "--keep-best, --until and --patience",
                "judge by evaluations, but the data has no part for them: add --val-data SPEC");
  if (plan.evaluation || !(o.eval_only || elsewhere)) return;
  throw Error(Exit::data, (elsewhere ? "--val-data " : "--eval-only on ") + printable(spec),
              "no directory val/, valid/, validation/ or test/ beside it, and no shards for "
              "evaluation");
}

// The network for images of `size`; nothing where it has that size. What it learns must not depend
// on it.
std::optional<model::Graph> sized_graph(const RunPlan& plan, io::Extent size) {
  if (size == io::Extent{plan.model.input.height, plan.model.input.width}) return std::nullopt;
  const std::string word = fmt::format("size={}x{}", size.height, size.width);
  model::Graph graph = model::read_model_file(model::with_words(plan.network, word),
                                              plan.model.name + ".model at " + word, std::nullopt,
                                              [](const model::Recipe&) {})
                           .graph;
  for (std::size_t p = 0; p < graph.parameters.size(); ++p)
    if (graph.parameters[p].dims != plan.model.graph.parameters[p].dims)
      throw Error(
          Exit::usage, "images of " + word,
          fmt::format("would give {} other extents: this network is for images of {}x{} "
                      "only",
                      graph.parameters[p].name, plan.model.input.height, plan.model.input.width));
  return graph;
}

// Those without images, for a line that says so; empty: there are none.
std::string without_images(const std::vector<std::uint64_t>& counts,
                           const std::vector<std::string>& names) {
  std::vector<std::string> empty;
  for (std::size_t label = 0; label < counts.size(); ++label)
    if (counts[label] == 0) empty.push_back(names[label]);
  if (empty.empty()) return "";
  return fmt::format("; without an image: {}", brief(fmt::format("{}", fmt::join(empty, ", "))));
}

// What decides how often a class comes.
std::string balance_text(const std::vector<std::uint64_t>& counts,
                         const std::vector<std::string>& names) {
  std::uint64_t images = 0, classes = 0, least = 0, most = 0;
  for (const std::uint64_t count : counts) {
    if (count == 0) continue;
    least = classes == 0 ? count : std::min(least, count);
    most = std::max(most, count);
    images += count;
    ++classes;
  }
  return fmt::format("--balance: {} images an epoch of each of {} classes, which have {} to {}{}",
                     images / classes, classes, least, most, without_images(counts, names));
}

// Of the loss, by label. What a checkpoint says of a file are its weights, wherever it lies.
std::vector<float> weights_of(config::Options& o, const std::vector<std::uint64_t>& counts,
                              const std::vector<std::string>& names, int classes) {
  if (o.class_weights == config::balanced_weights) return io::balanced_weights(counts, classes);
  std::vector<float> weights = io::read_class_weights(o.class_weights, names, classes);
  o.class_weights = "file " + hex(hash_bytes(std::as_bytes(std::span(weights))));
  return weights;
}

// As Pillow calls them.
const char* channels_of(int count) { return count == 1 ? "L" : count == 4 ? "RGBA" : "RGB"; }

}  // namespace

void open_data(RunPlan& plan, const DataToOpen& how) {
  const config::Options& o = plan.options;
  if (o.predicts()) return open_to_predict(plan, how);
  io::DatasetOptions data = dataset_options(plan, how);
  if (!o.eval_only) plan.training = io::open_dataset(o.data, io::Split::training, data);
  open_evaluation(plan, std::move(data));
}

void plan_classes(RunPlan& plan, const Tell& tell) {
  config::Options& o = plan.options;
  if (plan.training && o.balance && plan.model.recipe.augment_repeats > 1)
    throw Error(Exit::usage, "--balance with aug-repeats",
                "each says how often an image comes in an epoch; leave one of them out");
  if (!plan.training || (!o.balance && o.class_weights.empty())) return;
  const std::vector<std::string>& names = plan.training->class_names();
  const std::vector<std::uint64_t> counts = io::class_counts(*plan.training);
  if (o.balance) tell(balance_text(counts, names));
  if (o.class_weights.empty()) return;
  plan.class_weights = weights_of(o, counts, names, plan.model.classes);
  const auto [least, most] = std::ranges::minmax(plan.class_weights);
  tell(fmt::format("--class-weights: {:.3g} to {:.3g}{}", least, most,
                   without_images(counts, names)));
}

void plan_images(RunPlan& plan) {
  plan.augmentation = augmentation_of(plan.model, io::Split::training);
  plan.evaluated = augmentation_of(plan.model, io::Split::evaluation);
  plan.training_graph = sized_graph(plan, plan.augmentation.output);
  plan.evaluation_graph = sized_graph(plan, plan.evaluated.output);
}

const model::Graph& RunPlan::graph(model::Mode mode) const {
  const auto& sized = mode == model::Mode::training ? training_graph : evaluation_graph;
  return sized ? *sized : model.graph;
}

std::string input_text(const RunPlan& plan) {
  const auto& image = std::get<model::ImageInput>(plan.model.graph.nodes[0].operation);
  const io::Augmentation& seen = plan.evaluated;
  const io::Extent size = seen.output, cover = seen.cover == io::Extent{} ? size : seen.cover;
  const bool whole = image.normalisation == compute::Normalisation::standardise_image;
  return fmt::format(
      R"({{"size":[{},{}],{},"interpolation":"{}","antialias":true,"channels":"{}",{}}})",
      size.height, size.width,
      seen.shorter_side > 0       ? fmt::format(R"("resize":{})", seen.shorter_side)
      : seen.central_fraction > 0 ? fmt::format(R"("central_fraction":{})", seen.central_fraction)
                                  : fmt::format(R"("cover":[{},{}])", cover.height, cover.width),
      seen.interpolation == io::Interpolation::bicubic ? "bicubic" : "bilinear",
      channels_of(plan.model.input.channels),
      whole ? R"("standardise":true)"
            : fmt::format(R"("mean":[{}],"deviation":[{}])", fmt::join(image.mean, ","),
                          fmt::join(image.deviation, ",")));
}

}  // namespace ringtrain::train
