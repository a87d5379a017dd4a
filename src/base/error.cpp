#include "ringtrain/base/error.hpp"

#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "ringtrain/base/file.hpp"

namespace ringtrain {

Error::Error(std::string_view what, std::string_view reason, std::source_location at)
    : std::runtime_error(std::string(what) + ": " + std::string(reason) + " [" + at.file_name() +
                         ":" + std::to_string(at.line()) + "]") {}

Error::Error(Exit code, std::string_view what, std::string_view reason)
    : std::runtime_error(std::string(what) + ": " + std::string(reason)), code_(code) {}

Error Error::of_kind(std::string kind, std::string details) const {
  Error same(*this);
  same.kind_ = std::move(kind);
  same.details_ = std::move(details);
  return same;
}

std::string_view fault_kind(Exit code) {
  switch (code) {
    case Exit::usage:
      return "usage";
    case Exit::incompatible_checkpoint:
      return "mismatch";
    case Exit::no_valid_checkpoint:
      return "checkpoint";
    case Exit::rank_lost:
      return "rank_lost";
    case Exit::stuck:
      return "stuck";
    case Exit::locked:
      return "locked";
    case Exit::data:
      return "data";
    case Exit::storage:
      return "storage";
    case Exit::not_finite:
      return "nan";
    case Exit::inefficient:
      return "inefficient";
    default:
      return "internal";
  }
}

void write_stderr(std::string_view text) noexcept { write_all(STDERR_FILENO, text); }

void offer_stderr(std::string_view text) noexcept { write_if_read(STDERR_FILENO, text); }

int check_errno(int result, std::string_view call, std::source_location at) {
  if (result >= 0) return result;
  throw Error(call, std::generic_category().message(errno), at);
}

}  // namespace ringtrain
