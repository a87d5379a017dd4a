#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ringtrain/base/file.hpp"

namespace ringtrain::monitor {

/// Counters of network interfaces that only their drivers know, as `ethtool -S` shows them. Throws
/// nothing: what cannot be read is 0.
class NicCounters {
 public:
  /// Opens the counters whose names end so, of all interfaces there are now.
  explicit NicCounters(std::string_view ending);
  /// Whether no driver has such a counter.
  bool empty() const { return interfaces_.empty(); }
  double sum() const;

 private:
  struct Interface {
    std::string name;
    std::uint32_t counters = 0;       // that its driver has
    std::vector<std::size_t> places;  // of those that are wanted
  };
  bool ask(const std::string& interface, void* question) const;
  std::uint32_t count_of(const std::string& interface) const;
  void look_at(const std::string& interface, std::string_view ending);

  const FileDescriptor socket_;
  std::vector<Interface> interfaces_;
};

}  // namespace ringtrain::monitor
