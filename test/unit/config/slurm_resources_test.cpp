#include "config/slurm_resources.hpp"

#include <sstream>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::config;
using Catch::Contains;

namespace {

std::string reason(const std::string& spec) {
  try {
    batch_job(spec);
  } catch (const BadValue& bad) {
    return bad.what();
  }
  return "accepted";
}

std::string script(const std::string& spec, const Options& options = {},
                   const std::vector<std::string>& words = {}) {
  return sbatch_script(batch_job(spec), options, words, "/opt/train");
}

std::string script_refusal(const std::string& spec, const Options& options) {
  try {
    script(spec, options);
  } catch (const Error& error) {
    CHECK(error.code() == Exit::usage);
    return error.what();
  }
  return "accepted";
}

std::vector<std::string> directives(std::string_view text) {
  std::vector<std::string> found;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("#SBATCH --")) found.push_back(line.substr(10));
  return found;
}

}  // namespace

TEST_CASE("batch job: without wishes the script is train.sbatch, with what it is to start") {
  Options options;
  options.checkpoint_dir = "saves";
  const std::string made = script("nodes=1", options);
  const std::size_t begin = made.find("\n# What this run is"),
                    end = made.find("set -- \"$@\"\n") + 12;

  CHECK(made.substr(0, begin) + made.substr(end) == sbatch_file);
  CHECK_THAT(made, Contains("\nRINGTRAIN_TRAIN=${RINGTRAIN_TRAIN:-/opt/train}\n"));
  CHECK_THAT(made, Contains("\nRINGTRAIN_LAUNCHER=${RINGTRAIN_LAUNCHER:-mpirun}\n"));
  CHECK_THAT(made, Contains("\nRINGTRAIN_SPOT=${RINGTRAIN_SPOT:-no}\n"));
  CHECK_THAT(made, Contains("\nRINGTRAIN_REQUEUE=${RINGTRAIN_REQUEUE:-yes}\n"));
}

TEST_CASE("batch job: what would begin anew is not requeued") {
  const std::string made = script("nodes=1");

  CHECK_THAT(made, Contains("\n#SBATCH --no-requeue\n"));
  CHECK_THAT(made, Contains("\nRINGTRAIN_REQUEUE=${RINGTRAIN_REQUEUE:-no}\n"));
}

TEST_CASE("batch job: each wish becomes Slurm's") {
  using Catch::VectorContains;
  const auto asked = directives(script(
      "nodes=4,cpus=8,gpus=2,time=1d2h30m,signal=5m,name=a.b,partition=gpu,account=x,requeue=no"));

  for (const std::string line :
       {"nodes=4", "ntasks-per-node=2", "cpus-per-task=8", "gpus-per-node=2", "time=1-02:30:00",
        "signal=B:USR2@300", "job-name=a.b", "output=a.b-%j.log", "partition=gpu", "account=x",
        "no-requeue"})
    CHECK_THAT(asked, VectorContains(line));
  CHECK_THAT(asked, !VectorContains(std::string("exclusive")));
  CHECK_THAT(directives(script("tasks=3,gpus=2")),
             VectorContains(std::string("ntasks-per-node=3")));
  CHECK_THAT(directives(script("time=61m30s")), VectorContains(std::string("time=0-01:02:00")));
}

TEST_CASE("batch job: the signal leaves time for the last save") {
  Options options;
  options.final_save_timeout_s = 600;

  CHECK_THAT(script("nodes=1", options), Contains("signal=B:USR2@660\n"));
  CHECK_THAT(script_refusal("time=11m", options), Contains("660s") || Contains("11m"));
  CHECK(script_refusal("time=12m", options) == "accepted");
}

TEST_CASE("batch job: an allocation in which the run is to be restarted outlives a node") {
  Options options;
  options.restarts = 1;

  CHECK_THAT(script("nodes=4", options), Contains("\n#SBATCH --no-kill\n"));
  CHECK_THAT(script("nodes=4"), !Contains("--no-kill"));
}

TEST_CASE("batch job: the run's words reach the shell as they are, --emit-sbatch left out") {
  const std::vector<std::string> words = {"--emit-sbatch",
                                          "nodes=2",
                                          "--model",
                                          "mlp",
                                          "--data",
                                          "a b",
                                          "--metrics",
                                          "it's $HOME",
                                          "--quiet",
                                          "",
                                          "--emit-sbatch",
                                          "--baseline",
                                          "--emit-sbatch=tasks=2"};

  CHECK_THAT(script("nodes=2", {}, words),
             Contains("\nset -- --model mlp --data 'a b' --metrics 'it'\\''s $HOME' --quiet '' "
                      "--baseline \"$@\"\n"));
}

TEST_CASE("batch job: a wrong wish is told with what it must be") {
  CHECK_THAT(reason("nods=4"), Contains("no key 'nods'") && Contains("did you mean nodes?"));
  CHECK_THAT(reason("4"), Contains("KEY=VALUE") && Contains("'4'"));
  CHECK_THAT(reason(""), Contains("KEY=VALUE"));
  CHECK_THAT(reason("nodes=4,"), Contains("KEY=VALUE"));
  CHECK_THAT(reason("nodes=0"), Contains("nodes must be a whole number from 1"));
  CHECK_THAT(reason("tasks=two"), Contains("tasks must be a whole number"));
  CHECK_THAT(reason("time=30s"), Contains("time must be a minute or more"));
  CHECK_THAT(reason("time=soon"), Contains("time must be a time such as"));
  CHECK_THAT(reason("signal=0s"), Contains("signal must be from 1s"));
  CHECK_THAT(reason("launcher=ssh"), Contains("launcher must be one of mpirun, srun"));
  CHECK_THAT(reason("spot=maybe"), Contains("spot must be yes or no"));
  CHECK_THAT(reason("name=a b"), Contains("name must be a name"));
  CHECK_THAT(reason("partition=x\n#SBATCH --nodes=9"), Contains("partition must be a name"));
}

TEST_CASE("batch job: what cannot go together is refused with both sides") {
  Options cuda, cpu, lost;
  cuda.device = Device::cuda;
  cpu.device = Device::cpu;
  lost.without_lost_hosts = true;

  CHECK_THAT(script_refusal("nodes=1", cuda), Contains("--device cuda") && Contains("gpus=N"));
  CHECK(script_refusal("gpus=1", cuda) == "accepted");
  CHECK_THAT(script_refusal("gpus=1", cpu), Contains("--device cpu"));
  CHECK_THAT(script_refusal("launcher=srun", lost), Contains("--without-lost-hosts"));
  CHECK_THAT(script_refusal("requeue=yes", {}), Contains("--checkpoint-dir DIR"));
  CHECK_THAT(script_refusal("time=2m", {}), Contains("time=2m") && Contains("signal=T"));
}

TEST_CASE("batch job: a job's text reads back as the same job") {
  const std::string text =
      "nodes=4,tasks=2,cpus=3,gpus=2,time=2h,signal=90s,name=n,partition=p,account=a,"
      "launcher=srun,requeue=no,spot=yes";

  CHECK(to_string(batch_job(text)) == text);
  CHECK(to_string(batch_job("nodes=1")) == "nodes=1");
}
