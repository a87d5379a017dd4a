#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "model/model_file/operations.hpp"
#include "model/model_file/parse.hpp"
#include "ringtrain/model/graph.hpp"

namespace ringtrain::model {

/// Where in the file reading is, for messages.
struct TextPlace {
  int line = 0;
  std::string within;  ///< the block around it, "layer1.0 of line 30"; empty: none
};

/// Layers that a line below can use like an operation.
struct Block {
  int first_line = 0, last_line = 0;
  std::map<std::string, std::string> parameters;  ///< and their defaults; empty: must be given
  std::vector<Line> lines;
  bool used = false;
};

/// Makes a graph of the lines of a model file that are its layers. Everything throws Error (usage)
/// and keeps `at` where reading is.
class Layers {
 public:
  Layers(int classes, TextPlace& at) : classes_(classes), at_(at) {}

  void input(const Line& line);
  void define(const std::string& name, Block block);
  void add(const Line& line) { add(line, top_); }
  /// Once all lines are read: checks that they make a network, and all of them do.
  Graph finish();

 private:
  /// What lines of the file, or of a block, can name.
  struct Scope {
    std::string prefix = {};                                ///< of the names of what has parameters
    std::map<std::string, compute::TensorId> results = {};  ///< of lines, by their names
    std::map<std::string, std::string> values = {};         ///< what `$name` stands for
    compute::TensorId last = compute::no_tensor;            ///< of the line before
  };

  void add(const Line& line, Scope& scope);
  compute::TensorId layer(const Line& line, const std::string& name, const Scope& scope);
  compute::TensorId operation(const Line& line, const std::string& name, const Scope& scope);
  compute::TensorId use(Block& block, const Line& line, const std::string& name,
                        const Scope& scope);
  std::vector<compute::TensorId> inputs_of(const Line& line, const Scope& scope) const;
  compute::TensorId find(const std::string& name, const Scope& scope) const;
  /// The name in full of what has parameters, which there may be once.
  std::string claim(const Line& line, const std::string& name, const Scope& scope);
  std::string unknown(const std::string& word) const;
  void check_size(compute::TensorId result) const;

  const int classes_;
  TextPlace& at_;
  GraphBuilder builder_;
  Scope top_{.values = {{"classes", std::to_string(classes_)}}};
  std::map<std::string, Block> blocks_;
  std::set<std::string> claimed_;
  std::vector<TextPlace> places_;  ///< of each node
};

}  // namespace ringtrain::model
