#pragma once
#include <optional>
#include <string>

#include "ringtrain/model/graph.hpp"

namespace ringtrain {

/// Why a graph whose layers fit each other is no network to train, by the node to look at.
struct Fault {
  std::size_t node = 0;
  std::string what, why;
};

/// A result that nothing reads; no loss, or two; no parameters, or too many. `graph` has a node.
std::optional<Fault> first_fault(const Graph& graph);

}  // namespace ringtrain
