#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "monitor/watchdog/fault_report.hpp"
#include "monitor/watchdog/heartbeat_client.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/host/signals.hpp"
#include "ringtrain/host/stack_trace.hpp"
#include "ringtrain/monitor/channel/rendezvous.hpp"
#include "ringtrain/monitor/watchdog/watch.hpp"

namespace ringtrain::monitor {
namespace {

using namespace std::chrono_literals;

constexpr int ticks_a_beat = 10;
constexpr int ticks_to_report = 300;  // that rank 0 is not reached, as rank 0 does
constexpr double death_s = 5;         // in which mpirun ends the job after rank 0's death
constexpr double goodbye_s = 20;      // likewise after rank 0 left in good order, as it failed
constexpr double answer_s = 30;       // to its own goodbye; less than others wait in MPI_Finalize
constexpr double unheard_s = 3600;    // as long as rank 0 may take for its data

class WorkerWatch final : public Watch {
 public:
  WorkerWatch(const allreduce::MpiSession& session, const Progress& progress,
              const config::Options& options, SystemSampler& sampler, const Rendezvous& rendezvous)
      : Watch(session, progress, options, sampler),
        process_of_rank_0_(rendezvous.process),
        client_(rendezvous.token, session.rank(), endpoints_from_here(rendezvous)) {}

 private:
  void forgive() override { client_.forgive_silence(); }
  void listen(std::chrono::milliseconds time) override { client_.run_for(time); }
  void judge() override {
    if (ticks_++ % ticks_a_beat == 0) client_.send(beat(), own().item);
    if (const auto& ending = client_.ending()) await_end(*ending);
    if (const std::string warning = client_.take_warning(); !warning.empty()) tell(warning);
    if (ticks_ == ticks_to_report && !client_.connected())
      tell("does not reach rank 0: " + client_.trouble());
    // Before all others: its job has failed. Its own message and code are the ones that count.
    if (client_.rank_0_left()) {
      since_goodbye_s_ += tick_s;
      if (since_goodbye_s_ > goodbye_s && !lenient())
        end("rank 0 has failed and left, and nobody has ended this rank", "left", Exit::internal);
      return;
    }
    look_at_rank_0();
    if (rank_0_.process == ProcessState::gone)
      since_death_s_ += tick_s;
    else if (client_.connected() && !lenient() &&
             rank_0_.silent_s > patience_s(rank_0_, silence_s()))
      end(silence(), rank_0_.lost ? "disconnected" : "silent");
    if (since_death_s_ > death_s) end("rank 0 has ended without a word", "dead");
    report_signal();
    // Rank 0 knows nothing of this rank, so it judges itself; and it knows nothing of others, for
    // whom it may wait.
    const double most_s = waits_for_ranks(own().phase) ? unheard_s : own().limit_s;
    if (!client_.connected() && own().in_phase_s > most_s)
      end(fmt::format("rank 0 has never been heard, and this rank has been in {} for {:.0f} s; {}",
                      metrics::phase_names(own().phase).watchdog, own().in_phase_s,
                      client_.trouble()),
          "unheard");
  }
  std::string silence() const {
    const std::string& trouble = client_.trouble();
    return fmt::format("rank 0 has not been heard for {:.0f} s: {}{}{}", rank_0_.silent_s,
                       why_silent(rank_0_), trouble.empty() ? "" : "; ", trouble);
  }
  // A daemon that has lost mpirun ends its ranks by SIGTERM and, a second later, SIGKILL; nobody
  // else can say why. To collect stacks would take longer.
  void report_signal() {
    const int signal = host::stop_signal();
    if (signal == 0 || signal_reported_ || !client_.connected() || client_.silent_s() < looked_at_s)
      return;
    signal_reported_ = true;
    const std::string why =
        fmt::format("signal {} asks this rank to end, and {}\n", signal, silence());
    tell(why +
         write_fault_report(session().rank(), why + restart_hint(options(), progress().saved_step(),
                                                                 session().fault_context())));
  }
  void tell(const std::string& text) const {
    offer_stderr(
        fmt::format("train: rank {} on {}: {}\n", session().rank(), session().host(), text));
  }
  void look_at_rank_0() {
    rank_0_.silent_s = client_.silent_s();
    rank_0_.lost = client_.lost();
    rank_0_.late_s = client_.rank_0_late_s();
    rank_0_.acknowledged = client_.acknowledged();
    rank_0_.process = state_of_unheard(0, rank_0_, process_of_rank_0_);
  }
  Heartbeat beat() {
    return {.account = account(),
            .step = own().step,
            .meetings = own().meetings,
            .in_phase_s = own().in_phase_s,
            .limit_s = own().limit_s,
            .late_s = late_s(),
            .phase = static_cast<std::uint32_t>(own().phase)};
  }
  // Rank 0 tells why and ends all ranks; where that does not reach this one, it ends itself.
  [[noreturn]] void await_end(const HeartbeatClient::Ending& ending) {
    const auto code = static_cast<Exit>(ending.exit_code);
    session().end_within(end_patience(code), code);
    end_launcher_of_job(code);
    client_.send_stack(beat(), own().item, host::main_stack());
    client_.run_for(tick);
    write_fault_report(session().rank(), ending.why + host::all_stacks());
    std::this_thread::sleep_for(5s);
    ::_exit(ending.exit_code);
  }
  [[noreturn]] void end(const std::string& why, const char* how, Exit code = Exit::rank_lost) {
    session().end_within(end_patience(code), code);
    end_launcher_of_job(code);
    const std::string text =
        why + "\n" + restart_hint(options(), progress().saved_step(), session().fault_context());
    const std::string report = write_fault_report(session().rank(), text + host::all_stacks());
    session().abort(Error(code, "the job cannot go on", text + report)
                        .of_kind("", key_value("how", how) + key_value("ranks", "0")));
  }
  bool alone() override { return true; }
  // Until rank 0 has heard it: were it lost with a connection, this rank would be missed.
  void say_goodbye(bool in_peace) override {
    Heartbeat last = beat();
    last.leaving = 1;
    client_.send(last);
    const double most_s = std::min(silence_s(), answer_s);
    const Deadline patience(in_peace && client_.connected() ? most_s : tick_s);
    while (!client_.rank_0_left() && !patience.over()) client_.run_for(goodbye_tick);
  }

  const ProcessName process_of_rank_0_;
  HeartbeatClient client_;
  RankHealth rank_0_;
  int ticks_ = 0;
  double since_death_s_ = 0, since_goodbye_s_ = 0;
  bool signal_reported_ = false;
};

}  // namespace

std::unique_ptr<Watch> make_worker_watch(const allreduce::MpiSession& session,
                                         const Progress& progress, const config::Options& options,
                                         SystemSampler& sampler) {
  session.gather(session.host());
  listening_addresses(session, options.interface);
  const Rendezvous rendezvous = rendezvous_from_text(session.broadcast(""));
  return std::make_unique<WorkerWatch>(session, progress, options, sampler, rendezvous);
}

}  // namespace ringtrain::monitor
