#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ringtrain/config/options.hpp"
#include "ringtrain/model/zoo.hpp"

namespace ringtrain::train {

/// The network of the checkpoint that a run goes on from, or starts from.
struct SavedNetwork {
  std::string checkpoint{};  ///< its path
  std::string name{};
  std::string identity{};  ///< as ModelSource::identity() has it
  std::string text{};      ///< a model file; empty: the file does not say
  std::vector<std::string> class_names{};
  std::optional<config::ValSplit> val_split{};  ///< that its training divided its images by
  std::string frozen{};                         ///< --freeze of its training
  config::Factors factors{};                    ///< of its training's rates and decay
  bool counts_skipped = false;                  ///< it says how many steps were left out
  std::string config{};                         ///< of its training, as canonical_config() has it
  std::uint64_t hash = 0;
  bool named = false;    ///< by --resume FILE: the user must not say otherwise
  bool goes_on = false;  ///< its training goes on, so its classes stay
  /// No training goes on, and --init-from names only weights, of safetensors or torch: of the
  /// network of the options.
  bool published = false;
};

/// How many classes a checkpoint's network has; nothing where the text cannot be read.
std::optional<int> classes_in(const std::string& network);
/// The same for the user: "resnet20 for 10 classes", or the name alone.
std::string network_description(const std::string& name, const std::string& network);

/// Where a run's network comes from: --model-file, which is read once, the zoo by --model, a
/// checkpoint, or the default of the zoo.
class ModelSource {
 public:
  /// Throws Error (usage) when the file cannot be read, and where a checkpoint without a network is
  /// not of the zoo.
  explicit ModelSource(const config::Options& options,
                       const std::optional<SavedNetwork>& saved = std::nullopt);

  /// The network for --classes, else for `usual` classes, else for as many as it has. One that goes
  /// on, or is evaluated, has as many as before. Throws Error (usage) where there is none, where
  /// the file is wrong, and where --model, --model-file or --classes contradict --resume FILE.
  model::Model make(std::optional<int> usual = std::nullopt) const;

  /// What tells the network that trains from others: its name, and of a file what it says.
  std::string identity(const model::Model& model) const;

  /// The model file that makes `model`, which make() made.
  std::string text(const model::Model& model) const;
  /// Where that file is, for the user: its path, or that it is built in.
  const std::string& place() const { return place_; }

 private:
  void take_file(const std::string& file);
  void take_saved();
  void take_zoo(const std::string& name);
  void expect_saved(const model::Model& model) const;
  model::Model read(std::optional<int> classes) const;

  std::optional<SavedNetwork> saved_;
  std::string option_;  // that named the network; empty: none did
  std::string place_, text_, identity_, recipe_, without_recipe_;
  bool of_file_ = false, of_saved_ = false;
  std::optional<int> classes_, evaluated_classes_;
};

}  // namespace ringtrain::train
