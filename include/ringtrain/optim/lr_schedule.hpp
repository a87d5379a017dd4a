#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace ringtrain::optim {

/// A place in a run: so many epochs from its start, or so many percent of all its epochs.
struct Milestone {
  double value = 0;
  bool percent = false;

  double epoch(double total_epochs) const { return percent ? value / 100 * total_epochs : value; }

  friend bool operator==(const Milestone&, const Milestone&) = default;
};

/// How the learning rate changes over a run. Epochs are those of the global batch, so the same
/// schedule holds for any number of ranks.
struct Decay {
  enum class Kind {
    constant,
    step,
    multistep,
    exponential,
    cosine,
    linear,
    polynomial,
    onecycle,
    piecewise
  };
  struct Knot {
    Milestone at = {};
    double factor = 1;

    friend bool operator==(const Knot&, const Knot&) = default;
  };

  Kind kind = Kind::constant;
  double epochs = 1;  ///< step and exponential: the rate is multiplied by `factor` once in so many
  double factor = 1;  ///< multistep: at each knot; cosine, linear, polynomial: what they fall to
  double power = 1;   ///< of polynomial
  /// multistep and piecewise: in rising order. onecycle: where the peak is.
  std::vector<Knot> knots = {};
  /// The rate of an epoch's first step holds for all of it, as timm's and torchvision's do.
  bool by_epoch = false;

  /// It begins with a warm-up of its own.
  bool warms_up() const { return kind == Kind::onecycle || kind == Kind::piecewise; }

  friend bool operator==(const Decay&, const Decay&) = default;
};

/// Reads, where EPOCH is a number or a percentage of the run:
/// - `constant`
/// - `step:EPOCHS:FACTOR`, a staircase; `multistep:EPOCH,EPOCH,...:FACTOR`, one of uneven steps
/// - `exponential:EPOCHS:FACTOR`, the same factor, spread evenly
/// - `cosine[:FLOOR]`, `linear[:FLOOR]`, `polynomial:POWER[:FLOOR]`: to FLOOR (0) of the peak
/// - `onecycle[:EPOCH]`: the curve of torch's OneCycleLR, by the place in the run in place of the
///   step's number: from 1/25 of the peak to all of it at EPOCH (30%), and to 1/250,000 at the end
/// - `piecewise:EPOCH=FACTOR,...`: linear between these, constant outside
///
/// Behind any of them, `:by-epoch`. Throws std::invalid_argument that says what it must be.
Decay parse_decay(std::string_view text);
/// The text that parse_decay() reads back as `decay`.
std::string to_string(const Decay& decay);

/// A learning rate as a pure function of the position in training: it has no state to save.
struct LearningRate {
  double peak = 0.1;
  Decay decay = {};
  double warmup_epochs = 0;     ///< linear, from `warmup_factor` of the rate to all of it
  double total_epochs = 1;      ///< where cosine, linear, polynomial and onecycle end
  double warmup_factor = 0.01;  ///< a step at 0 would be wasted

  /// The rate of the step that begins `epoch` epochs (position / size) into training.
  double at(double epoch) const;
};

}  // namespace ringtrain::optim
