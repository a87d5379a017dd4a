#include "config/version.hpp"

#include <fmt/core.h>
#include <gnu/libc-version.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "build_commit.hpp"  // written at each build by cmake/WriteCommit.cmake
#include "ringtrain/allreduce/make_communicator.hpp"
#include "ringtrain/base/late_library.hpp"
#include "ringtrain/compute/gpu.hpp"
#include "ringtrain/io/checkpoint_writer/checkpoint_writer.hpp"

namespace ringtrain::config {
namespace {

std::string compiler() {
#ifdef __clang__
  return "Clang " __clang_version__;
#else
  return "GCC " __VERSION__;
#endif
}

LibraryVersion glibc_version() {
  return {"glibc", fmt::format("{}.{}", __GLIBC__, __GLIBC_MINOR__), gnu_get_libc_version()};
}

LibraryVersions libraries() {
  LibraryVersions all = allreduce::allreduce_libraries();
  all.push_back(compute::onednn_version());
  all.push_back(io::hdf5_version());
  std::ranges::copy(compute::gpu_libraries(), std::back_inserter(all));
  all.push_back(glibc_version());
  return all;
}

bool for_gpus() { return !compute::gpu_libraries().empty(); }

}  // namespace

std::string version_text() {
  std::string text =
      fmt::format("ringtrain {} (commit {}), for {}\n\n{:<12}{}\n{:<12}{:<12}{}\n",
                  RINGTRAIN_VERSION, build_commit, for_gpus() ? "GPUs and CPUs" : "CPUs",
                  "compiler", compiler(), "library", "built with", "runs with");
  for (const LibraryVersion& library : libraries())
    text += fmt::format("{:<12}{:<12}{}\n", library.name, library.built_with, library.runs_with);
  return text;
}

std::string version_json() {
  nlohmann::ordered_json versions = nlohmann::ordered_json::object();
  for (const LibraryVersion& library : libraries())
    versions[library.name] = {{"built_with", library.built_with}, {"runs_with", library.runs_with}};
  const nlohmann::ordered_json all = {{"program", "ringtrain"}, {"version", RINGTRAIN_VERSION},
                                      {"commit", build_commit}, {"gpus", for_gpus()},
                                      {"compiler", compiler()}, {"libraries", versions}};
  return all.dump() + "\n";
}

}  // namespace ringtrain::config
