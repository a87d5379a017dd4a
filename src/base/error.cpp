#include "ringtrain/base/error.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <exception>
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
    case Exit::limit:
      return "limit";
    default:
      return "internal";
  }
}

void write_stderr(std::string_view text) noexcept { write_all(STDERR_FILENO, text); }

void offer_stderr(std::string_view text) noexcept { write_if_read(STDERR_FILENO, text); }

namespace {

// As bash has them.
struct ProcessLimit {
  int error;
  __rlimit_resource resource;
  rlim_t unit;
  const char *option, *unit_name;
};

constexpr std::array limits = {ProcessLimit{EMFILE, RLIMIT_NOFILE, 1, "-n", ""},
                               ProcessLimit{EFBIG, RLIMIT_FSIZE, 1024, "-f", " KiB"},
                               ProcessLimit{ENOMEM, RLIMIT_AS, 1024, "-v", " KiB"}};

}  // namespace

std::string reason_of(int error) {
  const std::string text = std::generic_category().message(error);
  const auto* const found = std::ranges::find(limits, error, &ProcessLimit::error);
  rlimit limit{};
  if (error == ENFILE) return text + " on this host; raise its fs.file-max";
  if (found == limits.end() || ::getrlimit(found->resource, &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY)
    return text;
  return text + "; `ulimit " + found->option + "` is " +
         std::to_string(limit.rlim_cur / found->unit) + found->unit_name + ": raise it";
}

Exit code_of(int error, Exit otherwise) {
  return error == EMFILE || error == ENFILE || error == ENOMEM ? Exit::limit : otherwise;
}

bool lacks_thread(const std::exception& failure) {
  const auto* const error = dynamic_cast<const std::system_error*>(&failure);
  return error != nullptr && error->code() == std::errc::resource_unavailable_try_again;
}

int check_errno(int result, std::string_view call, std::source_location at) {
  if (result >= 0) return result;
  const int error = errno;
  if (code_of(error, Exit::internal) == Exit::limit)
    throw Error(Exit::limit, call, reason_of(error));
  throw Error(call, reason_of(error), at);
}

namespace {

bool is_plain(char c) {
  constexpr std::string_view marks = "_-+.,:/@%=~";
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || marks.find(c) != marks.npos;
}

bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; }

}  // namespace

void FaultContext::resume_from(std::string path) {
  const std::lock_guard lock(mutex_);
  resume_ = std::move(path);
  checked_ = false;
}

// A thread that was stopped may hold the lock for ever.
std::string FaultContext::resume() const {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock ? resume_ : "";
}

void FaultContext::check_resume() noexcept try {
  const std::string path = resume();
  if (path.empty() || checked_.exchange(true) || !is_known_gone(path, std::chrono::seconds(1)))
    return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock && resume_ == path) resume_.clear();
} catch (const std::exception&) {  // no memory: it stays
}

std::string key_value(std::string_view key, std::string_view value) {
  std::string text = " " + std::string(key) + "=";
  if (!value.empty() && std::ranges::all_of(value, is_plain)) return text.append(value);
  text += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    text += is_control(c) ? '?' : c;
  }
  return text + '"';
}

std::string fault_line(Exit code, std::string_view kind, int rank, const FaultContext& context,
                       std::string_view details) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const std::string resume = context.resume();
  return "fault:" + key_value("kind", kind) +
         key_value("code", std::to_string(static_cast<int>(code))) +
         key_value("rank", std::to_string(rank)) + key_value("host", host.data()) +
         key_value("step", std::to_string(context.step())) +
         key_value("resume", resume.empty() ? "none" : resume) + std::string(details) + "\n";
}

}  // namespace ringtrain
