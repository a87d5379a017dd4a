// A parameter server and its workers, to compare `train` with: see README.md.
//   parameter_server serve [KEY=VALUE...] -- TRAIN_OPTIONS
//   parameter_server work  [KEY=VALUE...] -- TRAIN_OPTIONS
// Keys and defaults are in Settings; `train`'s options say what is trained, and need --steps.
#include <fmt/core.h>
#include <omp.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "bench/complaints/worker.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/host/threads.hpp"

using namespace ringtrain;

namespace {

struct Settings {
  std::map<std::string, std::string, std::less<>> values{
      {"host", "localhost"},                   // of the server
      {"port", "5000"},                        // 0: any; the server prints which
      {"workers", "1"},      {"worker", "0"},  // this one's number
      {"updates", "async"},                    // or sync
      {"answers", "step"},                     // or variable
      {"save_every", "0"},                     // seconds; worker 0 asks for it
      {"save_to", ""}};                        // a file, on the server

  void read(std::string_view argument) {
    const auto equals = argument.find('=');
    const auto found = values.find(argument.substr(0, equals));
    if (equals == std::string_view::npos || found == values.end())
      throw Error(Exit::usage, argument, "no such setting");
    found->second = argument.substr(equals + 1);
  }
  const std::string& operator[](std::string_view key) const { return values.find(key)->second; }
  int number(std::string_view key) const { return std::stoi((*this)[key]); }
  std::uint16_t port() const { return static_cast<std::uint16_t>(number("port")); }
  Updates updates() const {
    return (*this)["updates"] == "sync" ? Updates::synchronous : Updates::asynchronous;
  }
  Answers answers() const {
    return (*this)["answers"] == "variable" ? Answers::by_variable : Answers::by_step;
  }
};

void run_server(const config::Options& options, const Settings& settings) {
  const train::RunPlan plan = train::make_run_plan(options, 1, 0, settings.number("workers"));
  const Door door(settings.port());
  fmt::print("port {}\n", door.port());
  std::fflush(stdout);
  serve(plan,
        {settings.number("workers"), settings.updates(), settings.answers(), settings["save_to"]},
        door);
}

void run_worker(const config::Options& options, const Settings& settings) {
  const int worker = settings.number("worker");
  const train::RunPlan plan = train::make_run_plan(options, 1, worker, settings.number("workers"));
  omp_set_num_threads(options.threads.value_or(1));
  const Stream server = connect_to(settings["host"], settings.port());
  work(plan, {worker, settings.updates(), settings.number("save_every") * 1.0}, server);
}

void run(int argc, char** argv) {
  char** const end = argv + argc;
  char** const bar = std::find(argv, end, std::string_view("--"));
  const std::string_view role = argc > 1 ? argv[1] : "";
  if (bar == end || (role != "serve" && role != "work"))
    throw Error(Exit::usage, "usage",
                "parameter_server serve|work [KEY=VALUE...] -- TRAIN_OPTIONS");
  Settings settings;
  std::for_each(argv + 2, bar, [&](const char* argument) { settings.read(argument); });
  const config::Options options = config::parse(static_cast<int>(end - bar), bar).options;
  if (!options.steps) throw Error(Exit::usage, "--steps", "how many each worker trains");
  role == "serve" ? run_server(options, settings) : run_worker(options, settings);
}

}  // namespace

int main(int argc, char** argv) {
  host::flush_denormals();  // as in train
  try {
    run(argc, argv);
    return 0;
  } catch (const Error& failure) {
    write_stderr(fmt::format("parameter_server: {}\n", failure.what()));
    return static_cast<int>(failure.code());
  } catch (const std::exception& failure) {
    write_stderr(fmt::format("parameter_server: {}\n", failure.what()));
    return static_cast<int>(Exit::internal);
  }
}
