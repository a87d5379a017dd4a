#pragma once
#include <string>
#include <vector>

namespace ringtrain::host {

/// The cpus of the NUMA node of a device on the PCI bus ("0000:3b:00.0"), ascending; none where the
/// system does not say. Reads below `root`, which is the file system's but in tests.
std::vector<int> cpus_near(std::string bus_id, const std::string& root = {});

/// The cores of rank `rank` among those of a host, each as its cpus. A rank has as many as in equal
/// parts, first of those that have a cpu in `near[rank]`; ranks with equal lists share these. Pure:
/// the parts of all ranks are each core once.
std::vector<std::vector<int>> cores_near(const std::vector<std::vector<int>>& cores,
                                         const std::vector<std::vector<int>>& near, int rank);

}  // namespace ringtrain::host
