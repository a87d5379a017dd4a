#include <nlohmann/json.hpp>

#include "train/preflight/facts.hpp"

namespace ringtrain {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NetworkInterface, name, up, bridge, mbit, addresses)

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Facts, host, machine, host_number, clock_s, threads, cpus,
                                   cpus_of_job, governor, frequency_driver, stolen, on_gpu, gpus,
                                   network, interfaces, network_of_meeting, addresses, efa_devices,
                                   efa_plugin, fast_fabric, threads_share_mpi, planned, available,
                                   shm_free, files, lockable, data, unreadable, checkpoint_dir,
                                   checkpoint, checkpoint_room, checkpoints_there, keep, failure,
                                   failure_code)

std::string to_text(const Facts& facts) {
  return nlohmann::json(facts).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

Facts facts_from_text(const std::string& text) { return nlohmann::json::parse(text).get<Facts>(); }

}  // namespace ringtrain
