#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "monitor/watchdog/fault_report.hpp"
#include "monitor/watchdog/heartbeat_server.hpp"
#include "ringtrain/base/clock.hpp"
#include "ringtrain/host/network_interfaces.hpp"
#include "ringtrain/host/stack_trace.hpp"
#include "ringtrain/metrics/trace/save_timeline.hpp"
#include "ringtrain/monitor/channel/rendezvous.hpp"
#include "ringtrain/monitor/watchdog/watch.hpp"

namespace ringtrain::monitor {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t most_stacks = 8;
constexpr std::size_t most_ranks_in_table = 64;  // of what other ranks are sent
constexpr int ticks_an_account = 5;
constexpr int ticks_to_connect = 300;
constexpr int ticks_between_returns = 600;
constexpr double reported_after_s = 60;  // before a rank that others wait for is told
constexpr double return_s = 5;           // in which a rank notices that its connection is lost
constexpr auto stack_patience = 1000ms;  // for stacks to arrive

class CoordinatorWatch final : public Watch {
 public:
  CoordinatorWatch(const allreduce::MpiSession& session, const Progress& progress,
                   const config::Options& options, SystemSampler& sampler,
                   std::vector<std::string> hosts, const std::vector<std::string>& addresses,
                   TextMailbox& notices, RankStatsMailbox& accounts)
      : Watch(session, progress, options, sampler),
        server_(token_, session.size(), addresses,
                [&notices](std::string strangers) { notices.add(std::move(strangers)); }),
        hosts_(std::move(hosts)),
        notices_(notices),
        accounts_(accounts) {}

  Rendezvous rendezvous() const {
    return {token_, host::network_name(), server_.endpoints(), own_process()};
  }

 private:
  void forgive() override { server_.forgive_silence(); }
  void listen(std::chrono::milliseconds time) override { server_.run_for(time); }
  void judge() override {
    server_.ranks()[0] = {.status = own(), .account = account(), .connected = true};
    for (std::size_t r = 0; r < hosts_.size(); ++r)
      server_.ranks()[r].host = session().host_of()[r];
    server_.set_late(late_s());
    look_at_unheard();
    if (const auto verdict = ringtrain::monitor::judge(server_.ranks(), silence_s(), lenient()))
      end(*verdict);
    if (++ticks_ == ticks_to_connect) tell_unwatched();
    tell_long_wait();
    tell_returned();
    if (ticks_ % ticks_an_account == 0) accounts_.set(accounts());
  }
  void look_at_unheard() {
    for (std::size_t r = 1; r < hosts_.size(); ++r) {
      RankHealth& rank = server_.ranks()[r];
      rank.process = state_of_unheard(r, rank, server_.process(r));
    }
  }
  std::vector<RankStats> accounts() {
    std::vector<RankStats> accounts;
    for (const RankHealth& rank : server_.ranks()) accounts.push_back(rank.account);
    return accounts;
  }
  void end(const Verdict& verdict) {
    session().end_within(end_patience(verdict.code()), verdict.code());
    const Stopwatch since;
    const std::string verdict_text = describe(verdict, server_.ranks(), hosts_) + "\n";
    const std::string why = verdict_text + table(server_.ranks(), hosts_);
    // A thousand copies of a thousand rows would not be sent in time.
    server_.end_job(static_cast<int>(verdict.code()),
                    hosts_.size() <= most_ranks_in_table ? why : verdict_text);
    end_launcher_of_job(verdict.code());
    server_.run_for(verdict.kind == Verdict::Kind::stuck ? stack_patience : tick);
    const std::string end =
        restart_hint(options(), progress().saved_step(), session().fault_context());
    const std::string stacks = stacks_of(verdict);
    const std::string report = write_fault_report(0, why + end + host::all_stacks());
    session().abort(
        Error(verdict.code(), "the job cannot go on", why + stacks + end + report + timeline(since))
            .of_kind("", details(verdict, hosts_)));
  }
  // Of this rank, where one is wanted. The message has to be out before the process is ended.
  std::string timeline(const Stopwatch& since) const {
    constexpr double latest_s = 3;
    const metrics::Timeline* const spans = progress().timeline();
    if (spans == nullptr) return "";
    const auto left_ms = static_cast<int>(1000 * std::clamp(latest_s - since.elapsed(), 0.1, 2.0));
    return metrics::save_own_timeline(*spans, options().timeline, session().host(),
                                      std::chrono::milliseconds(left_ms)) +
           "\n";
  }
  // Where the main threads of stuck culprits are, as far as they still answer; where nobody is to
  // blame, those of the first ranks.
  std::string stacks_of(const Verdict& verdict) {
    std::string text;
    if (verdict.kind != Verdict::Kind::stuck) return text;
    std::vector<int> asked = verdict.culprits;
    for (int r = 0; asked.size() < most_stacks && verdict.culprits.empty() && r < session().size();
         ++r)
      asked.push_back(r);
    for (const int r : asked) {
      const std::string& stack = server_.ranks()[static_cast<std::size_t>(r)].stack;
      text += fmt::format("rank {}: {}", r,
                          r == 0          ? host::main_stack()
                          : stack.empty() ? "its stack did not come\n"
                                          : stack);
    }
    return text;
  }
  // Here, because the main thread may be one of those that wait.
  void tell_long_wait() {
    const std::string text = long_wait(server_.ranks(), hosts_, reported_after_s);
    if (!text.empty() && !long_wait_told_) offer_stderr(fmt::format("train: {}\n", text));
    long_wait_told_ = !text.empty();
  }
  // Once a minute at most.
  void tell_returned() {
    if (ticks_ < returned_told_ + ticks_between_returns) return;
    for (const std::size_t r : server_.take_returned()) {
      notices_.add(fmt::format("rank {} on {} lost its connection to rank 0 and has made it again",
                               r, hosts_[r]));
      returned_told_ = ticks_;
    }
  }
  // Those that no verdict can be about.
  void tell_unwatched() {
    for (std::size_t r = 1; r < hosts_.size(); ++r)
      if (!server_.ranks()[r].connected)
        notices_.add(fmt::format("rank {} on {} is not watched: it has not reached rank 0 at {}", r,
                                 hosts_[r], fmt::join(door_texts(), " or ")));
  }
  std::vector<std::string> door_texts() const {
    std::vector<std::string> texts;
    for (const Endpoint& endpoint : server_.endpoints()) texts.push_back(to_text(endpoint));
    return texts;
  }
  bool alone() override {
    const auto present = [](const RankHealth& r) { return r.connected && !r.left; };
    return std::ranges::none_of(server_.ranks().subspan(1), present);
  }
  // The others would take this rank's end for a failure. One that lost its connection as it left
  // comes again for its answer.
  void say_goodbye(bool in_peace) override {
    server_.say_goodbye();
    const Deadline patience(in_peace ? return_s : tick_s);
    while (server_.connected() && !patience.over()) server_.run_for(goodbye_tick);
  }

  const JobToken token_ = new_token();
  HeartbeatServer server_;
  const std::vector<std::string> hosts_;
  TextMailbox& notices_;
  RankStatsMailbox& accounts_;
  int ticks_ = 0;
  int returned_told_ = -ticks_between_returns;
  bool long_wait_told_ = false;
};

}  // namespace

std::unique_ptr<Watch> make_coordinator_watch(const allreduce::MpiSession& session,
                                              const Progress& progress,
                                              const config::Options& options,
                                              SystemSampler& sampler, TextMailbox& notices,
                                              RankStatsMailbox& accounts) {
  std::vector<std::string> hosts = session.gather(session.host());
  const std::vector<std::string> addresses = listening_addresses(session, options.interface);
  auto watch = std::make_unique<CoordinatorWatch>(session, progress, options, sampler,
                                                  std::move(hosts), addresses, notices, accounts);
  session.broadcast(to_text(watch->rendezvous()));
  return watch;
}

}  // namespace ringtrain::monitor
