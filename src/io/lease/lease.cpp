#include "io/lease/lease.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "ringtrain/base/process.hpp"
#include "ringtrain/base/program.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

constexpr std::string_view lease_title = "ringtrain lease 1 ", beat_key = "beat: ";
constexpr std::array<std::pair<Lease::State, std::string_view>, 3> state_words = {
    {{Lease::State::held, "held     "},
     {Lease::State::finishing, "finishing"},
     {Lease::State::released, "released "}}};
constexpr std::size_t longest_value = 128, beat_digits = 20, token_digits = 16;

// What a host or a scheduler says, as one short line of ASCII.
std::string one_line(std::string_view text) {
  std::string line(text.substr(0, longest_value));
  std::erase_if(line, [](char c) { return c < ' ' || c > '~'; });
  return line;
}

// The value of the line `key`, without control characters; empty: there is none.
std::string value_of(std::string_view text, std::string_view key) {
  const std::string begin = fmt::format("\n{}: ", key);
  const auto at = text.find(begin);
  if (at == std::string_view::npos) return "";
  const std::string_view rest = text.substr(at + begin.size());
  return one_line(rest.substr(0, rest.find('\n')));
}

bool is_token(std::string_view text) {
  return text.size() == token_digits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::optional<Lease::State> state_in(std::string_view text) {
  for (const auto& [state, word] : state_words)
    if (text.starts_with(lease_head(state))) return state;
  return std::nullopt;
}

}  // namespace

std::string LeaseHolder::text() const {
  return fmt::format("run {} on host {}, process {}{}", run, host, process,
                     job.empty() ? "" : fmt::format(", Slurm job {}", job));
}

LeaseHolder this_process(const std::string& run) {
  const char* const job = std::getenv("SLURM_JOB_ID");
  const auto status = process_status(::getpid());
  return {.run = one_line(run),
          .host = one_line(own_host()),
          .boot = one_line(boot_id()),
          .job = job == nullptr ? "" : one_line(job),
          .process = ::getpid(),
          .started = status ? status->started : 0,
          .pids = pid_namespace()};
}

// Numbers of processes come again: with its start, one is this one.
bool is_seen_alive(const LeaseHolder& holder) {
  if (holder.started == 0 || holder.pids == 0 || holder.pids != pid_namespace() ||
      holder.boot.empty() || holder.boot != one_line(boot_id()))
    return false;
  const auto status = process_status(holder.process);
  return status && status->started == holder.started && !status->dead();
}

std::string lease_head(Lease::State state) {
  const auto* const found =
      std::ranges::find(state_words, state, &std::pair<Lease::State, std::string_view>::first);
  return fmt::format("{}{}\n", lease_title, found->second);
}

std::string lease_beat(std::uint64_t beat) { return fmt::format("{:0{}}", beat, beat_digits); }

std::size_t lease_beat_offset() { return lease_head(Lease::State::held).size() + beat_key.size(); }

std::string to_text(const Lease& lease) {
  const LeaseHolder& holder = lease.holder;
  return fmt::format(
      "{}{}{}\nrun: {}\nhost: {}\nprocess: {}\nstarted: {}\npids: {}\njob: {}\nboot: {}\ntoken: "
      "{}\n",
      lease_head(lease.state), beat_key, lease_beat(0), holder.run, holder.host, holder.process,
      holder.started, holder.pids, holder.job, holder.boot, lease.token);
}

std::optional<Lease> lease_from_text(std::string_view text) {
  const auto state = state_in(text);
  std::string token = value_of(text, "token");
  if (!state || !is_token(token)) return std::nullopt;
  return Lease{
      .state = *state,
      .holder = {.run = value_of(text, "run"),
                 .host = value_of(text, "host"),
                 .boot = value_of(text, "boot"),
                 .job = value_of(text, "job"),
                 .process = number_in<int>(value_of(text, "process")).value_or(0),
                 .started = number_in<std::uint64_t>(value_of(text, "started")).value_or(0),
                 .pids = number_in<std::uint64_t>(value_of(text, "pids")).value_or(0)},
      .token = std::move(token)};
}

LeaseJudge::LeaseJudge(LeaseHolder self, bool is_local, bool locks_hold, LeaseTerms terms,
                       Clock::duration last_save)
    : self_(std::move(self)),
      is_local_(is_local),
      locks_hold_(locks_hold),
      terms_(terms),
      last_save_(last_save) {}

void LeaseJudge::observe(const LockFileState& sight, Clock::time_point now) {
  const bool first = !seen_;
  // Who could not look for a while, as the server was away, knows of no silence.
  if (now - looked_at_ > terms_.silence / 2) still_since_ = now;
  looked_at_ = now;
  if (first || seen_->text != sight.text || seen_->exists != sight.exists) {
    moved_ = !first;
    still_since_ = now;
    lease_ = lease_from_text(sight.text);
  }
  seen_ = sight;
  const bool finishing = lease_ && lease_->state == Lease::State::finishing;
  if (first || std::exchange(finishing_, finishing) != finishing) waits_since_ = now;
  finishing_ = finishing;
}

bool LeaseJudge::same_host() const {
  return lease_->holder.host == self_.host && lease_->holder.boot == self_.boot;
}

// Of a writer process of this very trainer, which ended before this one.
bool LeaseJudge::is_own() const {
  return same_host() && lease_->holder.run == self_.run && lease_->holder.process == self_.process;
}

// A lock that is free is proof of the holder's death where the kernel, or the server for this very
// host, knows of it. One that is taken is proof of its life on a local disk of this host only: a
// server keeps the locks of hosts that are lost. A process that is seen to live proves most: its
// writer may have died or be stopped, and its host may grant locks to everybody.
LeaseJudge::Verdict LeaseJudge::judge(const LockFileState& sight, Clock::time_point now) {
  observe(sight, now);
  if (!sight.exists) return Verdict::take;
  const bool given_up = !lease_ || lease_->state == Lease::State::released || is_own();
  const bool runs = sight.seen_alive && !given_up && lease_->holder.process != self_.process;
  if (!sight.busy && (given_up || (!runs && locks_hold_ && (is_local_ || same_host()))))
    return Verdict::take;
  const bool lives = runs || (sight.busy && (!lease_ || (locks_hold_ && is_local_ && same_host())));
  if (!lives && now - still_since_ >= terms_.silence) return Verdict::take_over;
  const auto waited = now - waits_since_;
  if (waited < terms_.patience + (finishing_ ? last_save_ : Clock::duration(0)))
    return Verdict::wait;
  // A last save that takes too long is refused once it beats again: its maker may be dead.
  const auto limit = terms_.patience + last_save_;
  const bool beats = moved_ && (!finishing_ || still_since_ - waits_since_ >= limit);
  return lives || beats ? Verdict::refuse : Verdict::wait;
}

std::string LeaseJudge::holder() const {
  if (lease_) return lease_->holder.text();
  const std::string said = seen_ ? one_line(seen_->text) : "";
  return said.empty() ? "an unnamed job" : said;
}

}  // namespace ringtrain::io
