#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ringtrain::compute::cuda {

/// What cuDNN is asked for: the pattern and the shape of a Request.
using RequestKey = std::pair<std::string, std::string>;

/// Which of cuDNN's proposals for a request was the fastest.
struct Choice {
  std::size_t place = 0;  ///< among all proposals, cuDNN's first choice is 0
  std::string engine;     ///< its name, by which it is known that proposals are still the same
  double microseconds = 0;
  std::size_t workspace = 0;  ///< bytes
};

/// What a choice depends on beside its request.
struct EngineScope {
  std::size_t cudnn = 0;  ///< version, as cudnnGetVersion() says it
  std::string device;     ///< the GPU's name
  int capability = 0;     ///< 90 is 9.0
  bool deterministic = false;
};

/// Choices that were timed, here and by earlier runs: one JSON file for each scope
/// (docs/internals/gpu.md). Nothing that is wrong with files is an error. Not for several threads;
/// any number of processes may use one folder.
class EngineCache {
 public:
  /// Reads what is known. `folder` may be missing; empty: nothing is known or kept.
  EngineCache(const std::filesystem::path& folder, EngineScope scope);

  /// Null where it is not known.
  const Choice* find(const RequestKey& request) const;
  void add(const RequestKey& request, Choice choice) { added_[request] = std::move(choice); }
  /// Writes what was added since the last save, beside what other processes have written meanwhile.
  /// Readers see the file before or after, never a part.
  void save();

  /// The scope, as a file's name.
  std::string name() const;
  /// All that is known, as a file has it.
  std::string text() const;
  /// What is known from now on: another cache's text(). The file stays as it is.
  void follow(const std::string& text);

  /// Why a file could not be read or written, one sentence each.
  const std::vector<std::string>& notes() const { return notes_; }
  const std::filesystem::path& file() const { return file_; }

 private:
  using Choices = std::map<RequestKey, Choice>;
  Choices read(bool tell);
  Choices parse(const std::string& text) const;

  const EngineScope scope_;
  std::filesystem::path file_;  // empty: none is read or written
  Choices known_, added_;
  std::vector<std::string> notes_;
};

}  // namespace ringtrain::compute::cuda
