#pragma once
#include <optional>
#include <string>

#include "ringtrain/config/options.hpp"
#include "ringtrain/model/zoo.hpp"

namespace ringtrain::train {

/// Where a run's network comes from: a model file of the zoo, or that of --model-file, which is read
/// once.
class ModelSource {
 public:
  /// Throws Error (usage) when the file cannot be read.
  explicit ModelSource(const config::Options& options);

  /// The network for --classes, else for `usual` classes, else for as many as it has. Throws Error
  /// (usage) where there is none, or the file is wrong.
  model::Model make(std::optional<int> usual = std::nullopt) const;

  /// What tells the network that trains from others: its name, and of a file what it says.
  std::string identity(const model::Model& model) const;

  /// The model file that makes `model`, which make() made.
  std::string text(const model::Model& model) const;
  /// Where that file is, for the user: its path, or that it is built in.
  std::string place() const;

 private:
  std::string file_;  // empty: text_ is of the zoo
  std::string text_;
  std::optional<int> classes_;
};

}  // namespace ringtrain::train
