#pragma once
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace ringtrain {

/// How the job ends, as the exit code of every rank. Documented in docs/reliability.md.
enum class Exit : int {
  usage = 64,                    ///< bad option, or the ranks were started with different ones
  incompatible_checkpoint = 65,  ///< valid, but of another model or training
  no_valid_checkpoint = 66,      ///< checkpoints are there, none passes its hashes
  internal = 70,                 ///< a bug, or a library call that must not fail did
  rank_lost = 71,
  stuck = 72,
  locked = 73,  ///< another job owns the checkpoint directory
  data = 74,
  storage = 75,
  not_finite = 76,  ///< the loss or a gradient became NaN or infinite
  inefficient = 77,
};

/// What `code` stands for, in a word that programs read: "storage", "rank_lost".
std::string_view fault_kind(Exit code);

/// A failure this process cannot continue from. what() reads "<what>: <reason>"; internal failures
/// add " [<file>:<line>]". main() puts rank and host in front.
class Error : public std::runtime_error {
 public:
  Error(std::string_view what, std::string_view reason,
        std::source_location at = std::source_location::current());
  /// A failure the user can mend: the reason says how, and no source line is shown.
  Error(Exit code, std::string_view what, std::string_view reason);

  Exit code() const noexcept { return code_; }

  /// The same failure, with more for the line that programs read (base/fault.hpp): a kind that is
  /// not its code's, empty: it is; and `details`, made by key_value().
  Error of_kind(std::string kind, std::string details = "") const;
  std::string_view kind() const { return kind_.empty() ? fault_kind(code_) : kind_; }
  const std::string& details() const noexcept { return details_; }

 private:
  Exit code_ = Exit::internal;
  std::string kind_, details_;
};

/// Writes `text` to standard error past all buffers and locks. What cannot be written is lost: a
/// report must not change how the process ends.
void write_stderr(std::string_view text) noexcept;
/// Likewise, but never waits for a reader: a thread that others rely on loses the text instead.
void offer_stderr(std::string_view text) noexcept;

/// Throws Error when the caller broke a documented promise.
inline void expects(bool kept, std::string_view promise,
                    std::source_location at = std::source_location::current()) {
  if (!kept) throw Error("broken precondition", promise, at);
}

/// Checks a POSIX call that sets errno: throws when `result` is negative, else returns it.
int check_errno(int result, std::string_view call,
                std::source_location at = std::source_location::current());

}  // namespace ringtrain
