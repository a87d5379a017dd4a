#include "allreduce/mpi.hpp"

#include <array>

#include "ringtrain/base/error.hpp"

namespace ringtrain::mpi {

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

}  // namespace ringtrain::mpi
