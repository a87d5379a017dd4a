#include "allreduce/mpi/mpi_check.hpp"

#include <fmt/core.h>

#include <array>

#include "ringtrain/base/error.hpp"

namespace ringtrain::allreduce::mpi {

void check(int code, std::string_view call, std::source_location at) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> reason{};
  int length = 0;
  MPI_Error_string(code, reason.data(), &length);
  throw Error(call, std::string_view(reason.data(), static_cast<std::size_t>(length)), at);
}

MPI_Comm split(MPI_Comm all, int color, int key) {
  MPI_Comm part = MPI_COMM_NULL;
  check(MPI_Comm_split(all, color, key, &part), "MPI_Comm_split");
  return part;
}

// The library's words begin like "Open MPI v4.1.4, package: ...".
LibraryVersion version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> words{};
  int length = 0;
  check(MPI_Get_library_version(words.data(), &length), "MPI_Get_library_version");
  std::string_view here(words.data(), static_cast<std::size_t>(length));
  here = here.substr(0, here.find_first_of(",\n"));
  if (const auto number = here.rfind(" v"); number != here.npos) here.remove_prefix(number + 2);
  const std::string built =
      fmt::format("{}.{}.{}", OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION);
  return {"Open MPI", built, std::string(here)};
}

}  // namespace ringtrain::allreduce::mpi
