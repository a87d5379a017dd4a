#include <fmt/core.h>

#include <algorithm>

#include "train/fault_report.hpp"
#include "train/meeting.hpp"
#include "train/own_addresses.hpp"
#include "train/side_server.hpp"
#include "train/stacks.hpp"
#include "train/watch.hpp"

namespace ringtrain {
namespace {

using namespace std::chrono_literals;

constexpr auto goodbye = 2000ms;         // at most
constexpr auto stack_patience = 1000ms;  // for stacks to arrive

class FirstWatch final : public Watch {
 public:
  FirstWatch(const MpiSession& session, const Progress& progress, double last_save_s,
             std::vector<std::string> hosts, Notices& notices)
      : Watch(session, progress, last_save_s),
        server_(token_, session.size()),
        stragglers_(session.size()),
        hosts_(std::move(hosts)),
        notices_(notices) {}

  Meeting meeting() const { return {token_, server_.port(), own_addresses()}; }

 private:
  void forgive() override { server_.forgive_silence(); }
  void listen(std::chrono::milliseconds time) override { server_.run_for(time); }
  void judge() override {
    server_.ranks()[0] = {.status = own(), .work = work(), .connected = true};
    if (const auto verdict = ringtrain::judge(server_.ranks(), silence_s, lenient())) end(*verdict);
    std::vector<Work> work;
    for (const RankView& rank : server_.ranks()) work.push_back(rank.work);
    for (std::string& sentence : stragglers_.look(work, hosts_)) notices_.add(std::move(sentence));
  }
  void end(const Verdict& verdict) {
    const std::string why = describe(verdict, server_.ranks(), hosts_);
    const std::string all = table(server_.ranks(), hosts_);
    server_.end_job(static_cast<int>(verdict.code()), why);
    const std::string report = write_fault_report(0, why + "\n" + all + all_stacks());
    session().abort(Error(verdict.code(), "the job cannot go on",
                          why + "\n" + all + stacks_of(verdict) + report));
  }
  // Where the main threads of the culprits are, as far as they still answer.
  std::string stacks_of(const Verdict& verdict) {
    if (verdict.kind != Verdict::Kind::stuck) {
      server_.run_for(tick);
      return "";
    }
    server_.run_for(stack_patience);
    std::string text;
    for (const int r : verdict.culprits) {
      const std::string& stack = server_.ranks()[static_cast<std::size_t>(r)].stack;
      text += fmt::format("rank {}: {}", r,
                          r == 0          ? main_stack()
                          : stack.empty() ? "its stack did not come\n"
                                          : stack);
    }
    return text;
  }
  // The others would take this rank's end for a failure.
  void say_goodbye() override {
    const auto present = [](const RankView& r) { return r.connected && !r.left && !r.ended; };
    server_.say_goodbye();
    Stopwatch watch;
    do server_.run_for(tick);
    while (std::ranges::any_of(server_.ranks().subspan(1), present) &&
           watch.elapsed() * 1s < goodbye);
  }

  const JobToken token_ = new_token();
  SideServer server_;
  Stragglers stragglers_;
  const std::vector<std::string> hosts_;
  Notices& notices_;
};

}  // namespace

std::unique_ptr<Watch> make_first_watch(const MpiSession& session, const Progress& progress,
                                        double last_save_s, Notices& notices) {
  auto watch = std::make_unique<FirstWatch>(session, progress, last_save_s,
                                            session.gather(session.host()), notices);
  session.broadcast(to_text(watch->meeting()));
  return watch;
}

}  // namespace ringtrain
