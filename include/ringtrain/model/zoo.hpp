#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ringtrain/base/work_progress.hpp"
#include "ringtrain/model/graph.hpp"

namespace ringtrain::model {

/// How images are scaled: Pillow's filters of these names.
enum class Interpolation { bilinear, bicubic };

/// What an evaluation sees of an image.
enum class TestViews {
  one,
  flip,       ///< and its mirror image
  flip_shift  ///< both, and shifted by a pixel to the lower right and to the upper left
};

/// How a model is trained unless the user says otherwise.
struct Recipe {
  int batch = 128;  ///< images a rank and step
  double epochs = 60;
  std::string optimizer = "momentum";
  double learning_rate = 0.1;
  /// The global batch that learning_rate is for, scaled linearly from there; 0: never scaled.
  int learning_rate_batch = 0;
  std::string schedule = "cosine";  ///< as for --lr-schedule
  double warmup_epochs = 0;
  double warmup_factor = 0.01;  ///< of the rate, at the first step
  double weight_decay = 0;
  double norm_decay = 0, bias_decay = 0;  ///< of gammas and betas, and of biases: times that
  std::string lr_factor, decay_factor;    ///< as for --lr-factor and --decay-factor
  std::string freeze;                     ///< as for --freeze
  double momentum = 0.9;
  double label_smoothing = 0;
  /// Binary cross-entropy in training, by timm's names.
  bool bce_loss = false, bce_sum = false;
  double bce_target_threshold = 0;
  double clip_grad = 0;           ///< most that the norm of all gradients may be; 0: any
  double ema = 0;                 ///< decay of the moving average used in evaluation; 0: none
  int ema_every = 1;              ///< updates
  std::string ema_warmup = "tf";  ///< tf, timm, none, power:P or epochs:E
  bool lookahead = false;         ///< weights become their average then
  double beta1 = 0.9;
  std::optional<double> beta2;  ///< none: 0.999, or 0.99 for lion
  double epsilon = 0;           ///< 0: 1e-8, or 1 for rmsprop
  std::string source = "own";   ///< whose network it is
  double top1 = 0;              ///< published, in percent; 0: none

  // How training images are varied; evaluation takes the centre.
  int pad = 0;                       ///< then a random crop back to the input's size
  bool random_crop = false;          ///< of the input's size out of a larger image
  bool random_resized_crop = false;  ///< area and aspect of Szegedy et al. 2015
  double smallest_area = 0.08;       ///< of a random resized crop
  bool pad_reflected = false;        ///< not black
  bool flip = true;
  bool alternating_flip = false;      ///< in place of a random one
  std::string auto_augment = "none";  ///< a policy, as io::parse_policy() reads it
  float brightness = 0;               ///< +- grey levels of 0..255
  float least_contrast = 1, most_contrast = 1;
  float least_saturation = 1, most_saturation = 1;
  float hue = 0;  ///< +- parts of the colour circle
  /// Random erasing of the normalised image: how often, of which area and aspect, with what.
  double random_erase = 0;
  float least_erased_area = 0.02f, most_erased_area = 0.33f;
  float least_erased_aspect = 0.3f, most_erased_aspect = 3.3f;
  bool even_erased_aspect = false;  ///< not even on a log scale
  float erased_value = 0;
  int cutout = 0;  ///< side of a square that is erased; 0: none
  bool cutout_inside = false;
  /// How pairs are mixed, as io::Mixing has it.
  double mixup = 0, cutmix = 0, mixup_probability = 1, cutmix_share = 0.5;
  bool mixes_by_step = false;
  int augment_repeats = 1;         ///< of an image in an epoch
  double evaluation_fraction = 1;  ///< of each side, cut from the centre and stretched
  /// The shorter side's fraction is cut instead, as a square is out of a photograph.
  bool keep_aspect = false;
  /// Of evaluation, in pixels: the shorter side before the centre is cut. 0: as the two above say.
  int resize = 0;
  double crop_share = 0;  ///< evaluation's size of that; in place of `resize` where it is not 0
  int training_size = 0, evaluation_size = 0;  ///< of images; 0: the input's
  Interpolation interpolation = Interpolation::bilinear,
                evaluation_interpolation = Interpolation::bilinear;
  TestViews views = TestViews::one;
  bool imagenet_labels = false;  ///< its classes are imagenet_classes()

  bool mixes() const { return mixup > 0 || cutmix > 0; }
  bool erases() const { return random_erase > 0 || cutout > 0; }
  bool jitters_colors() const {
    return brightness > 0 || hue > 0 || least_contrast != 1 || most_contrast != 1 ||
           least_saturation != 1 || most_saturation != 1;
  }
  friend bool operator==(const Recipe&, const Recipe&) = default;
};

/// A network with its recipe.
struct Model {
  std::string name;
  compute::Shape input;  ///< of one image
  int classes = 0;
  Graph graph;
  Recipe recipe;
};

/// The networks that the program brings: each is a file of models/, which the build embeds.
std::vector<std::string> model_names();
/// The model file of one of them. Throws Error (usage) with the nearest name when there is no such
/// model.
std::string_view model_text(const std::string& name);
/// The network of that file, for `classes` in place of the file's number.
Model make_model(const std::string& name, std::optional<int> classes = std::nullopt);

/// Draws all parameters (keyed by seed and parameter, whatever the number of ranks) and sets
/// running means to 0 and variances to 1. Two billion take a minute: `progress`, if any, is told.
void initialise(const Graph& graph, std::uint64_t seed, std::span<float> parameters,
                std::span<float> statistics, WorkProgress* progress = nullptr);

}  // namespace ringtrain::model
