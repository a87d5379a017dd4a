#include "ringtrain/config/options.hpp"

#include <sstream>

#include "config/option_table.hpp"
#include "ringtrain/base/error.hpp"
#include "support/catch.hpp"
#include "unit/train/temporary_file.hpp"

using namespace ringtrain;
using namespace ringtrain::config;
using Catch::Contains;

namespace {

Command parse_words(std::vector<std::string> words) {
  words.insert(words.begin(), "train");
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  return parse(static_cast<int>(argv.size()), argv.data());
}

Command parse_line(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return parse_words(words);
}

Options options(const std::string& line) { return parse_line(line).options; }

/// The text of the usage error that `line` is refused with.
std::string refusal(const std::string& line) {
  try {
    parse_line(line);
  } catch (const Error& error) {
    CHECK(error.code() == Exit::usage);
    return error.what();
  }
  return "accepted";
}

const std::vector<std::string> valid = {"--model resnet50",
                                        "--classes 7",
                                        "--init-from f.h5",
                                        "--recipe lr=1",
                                        "--val-data shapes",
                                        "--balance",
                                        "--class-weights balanced",
                                        "--class-weights w.csv",
                                        "--eval-only --init-from f.h5",
                                        "--data images:/d",
                                        "--data-threads 3",
                                        "--seed 9",
                                        "--ranks 2",
                                        "--epochs 3",
                                        "--steps 4",
                                        "--batch 5",
                                        "--global-batch 6",
                                        "--accumulate 2",
                                        "--shares equal",
                                        "--shares auto",
                                        "--shares 3:5",
                                        "--eval-every 0",
                                        "--eval-only --resume f.h5",
                                        "--device cpu",
                                        "--precision fp32",
                                        "--threads 2",
                                        "--optimizer rmsprop",
                                        "--lr 0.5",
                                        "--lr-schedule step:2:0.94",
                                        "--warmup-epochs 1.5",
                                        "--weight-decay 1e-4",
                                        "--label-smoothing 0.1",
                                        "--ema 0.9999",
                                        "--lr-factor fc.*=10,conv1.*=0.5",
                                        "--decay-factor *.bias=0",
                                        "--head-lr 0.1",
                                        "--layer-decay 0.75",
                                        "--on-nan skip",
                                        "--allreduce ring",
                                        "--bucket-mb 2",
                                        "--gradient-dtype bf16",
                                        "--compress powersgd:4",
                                        "--compress topk:0.01",
                                        "--tuning off",
                                        "--tuning all",
                                        "--tuning blocks=62,sums=4,start=late",
                                        "--tuning sums=2,start=early",
                                        "--interface eth0",
                                        "--watchdog off",
                                        "--watchdog-silence 40s",
                                        "--checkpoint-dir d",
                                        "--checkpoint-dir d --checkpoint-every 100",
                                        "--checkpoint-dir d --keep 2",
                                        "--resume f.h5",
                                        "--checkpoint-dir d --final-save-timeout 30s",
                                        "--max-time 1h30m",
                                        "--log-every 1",
                                        "--slow-below 0.5",
                                        "--metrics m.jsonl",
                                        "--quiet",
                                        "--progress on",
                                        "--baseline",
                                        "--check-every 5",
                                        "--as-ranks 4",
                                        "--restarts 2",
                                        "--restarts 2 --without-lost-hosts",
                                        "--verify-resume 8",
                                        "--baseline --require-efficiency 0.9",
                                        "--plan",
                                        "--plan --plan-device h100",
                                        "--plan --plan-device h200 --precision fp16"};

}  // namespace

TEST_CASE("options: an empty command line trains with the defaults") {
  const Command command = parse_line("");

  CHECK(command.action == Command::Action::train);
  CHECK_FALSE(command.is_local());
  CHECK(canonical_config(command.options) == canonical_config(Options{}));
}

TEST_CASE("options: each option of this release is accepted and changes something") {
  const std::string base = parse_line("--print-config given").text;
  for (const std::string& line : valid) {
    CAPTURE(line);

    CHECK(parse_line(line + " --print-config given").text != base);
  }
}

TEST_CASE("options: values arrive where they belong") {
  const Options o = options(
      "--batch 32 --lr=0.045 --lr-schedule step:2:0.94 --optimizer rmsprop --seed "
      "18446744073709551615 --checkpoint-dir d --checkpoint-every 15m --resume x.h5 "
      "--max-time 23:50:00 --on-nan skip");

  CHECK(o.batch == 32);
  CHECK(o.lr == 0.045);
  CHECK(o.lr_schedule == optim::Decay{optim::Decay::Kind::step, 2, 0.94});
  CHECK(o.optimizer == optim::OptimizerKind::rmsprop);
  CHECK(o.seed == 18446744073709551615u);
  CHECK(o.checkpoint_every.seconds == 900);
  CHECK(o.checkpoint_every.steps == 0);
  CHECK(o.resume.from == Resume::From::file);
  CHECK(o.resume.file == "x.h5");
  CHECK(o.max_time_s == 85800);
  CHECK(o.on_nan == OnNan::skip);
  CHECK_FALSE(o.epochs);
}

TEST_CASE("options: a number alone makes checkpoints a matter of steps") {
  const Options o = options("--checkpoint-dir d --checkpoint-every 100");

  CHECK(o.checkpoint_every.steps == 100);
  CHECK(o.checkpoint_every.seconds == 0);
}

TEST_CASE("options: --verify-resume may stand without a number") {
  CHECK(options("--verify-resume").verify_resume == 20);
  CHECK(options("--verify-resume --seed 3").verify_resume == 20);
  CHECK(options("--verify-resume 6 --seed 3").verify_resume == 6);
  CHECK(options("--verify-resume=7").verify_resume == 7);
  CHECK_FALSE(options("--seed 3").verify_resume);
}

TEST_CASE("options: a job does not start itself again, and says who does") {
  CHECK_THAT(refusal("--restarts 2"), Contains("scripts/supervise mpirun -np N train"));
  CHECK_THAT(refusal("--without-lost-hosts"), Contains("--restarts N"));
  CHECK(options("--restarts 2 --without-lost-hosts --restarts 0").restarts == 0);
  CHECK_THAT(parse_line("--restarts 2 --print-config given").text, Contains("\nrestarts = 2\n"));
}

TEST_CASE("options: a plan is a local command, for the device that it names") {
  const Command command = parse_line("--plan --plan-device h100 --precision bf16");

  CHECK(command.is_local());
  CHECK(command.action == Command::Action::plan);
  CHECK(command.options.plan_device == "h100");
  CHECK(command.options.precision == Precision::bf16);
  CHECK(options("--plan --plan-device h100 --gradient-dtype bf16").gradient_dtype == Element::bf16);
  CHECK_THAT(refusal("--plan-device h100"), Contains("--plan"));
  CHECK_THAT(refusal("--plan --precision fp16"), Contains("--plan-device"));
}

TEST_CASE("options: a Slurm script needs no other rank, and says how its run is started again") {
  const Command command = parse_line("--emit-sbatch nodes=2,tasks=4 --model mlp --restarts 3");

  CHECK(command.action == Command::Action::show_text);
  CHECK_THAT(command.text, Contains("\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n") &&
                               Contains("\nset -- --model mlp --restarts 3 \"$@\"\n"));
  CHECK_THAT(parse_line("--emit-sbatch --model mlp").text, Contains("#SBATCH --nodes=1\n"));
  CHECK_THAT(refusal("--emit-sbatch nodes=0"), Contains("--emit-sbatch nodes=0: nodes must be"));
  CHECK_THAT(refusal("--emit-sbatch nodes=2 --modl mlp"), Contains("did you mean --model?"));
}

TEST_CASE("options: the last of several values counts, so that a script can be overridden") {
  CHECK(options("--batch 32 --batch 64").batch == 64);
}

TEST_CASE("options: the help has every option and its default, and fits a terminal") {
  const Command command = parse_line("--lr 3 --help --nonsense");

  CHECK(command.is_local());
  for (const std::string& line : valid)
    CHECK_THAT(command.text, Contains("  " + line.substr(0, line.find(' '))));
  CHECK_THAT(command.text, Contains("--keep K") && Contains("[3]") && Contains("[recipe]"));
  std::istringstream lines(command.text);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 80);
}

TEST_CASE("options: help, version, list and inspect need no other rank") {
  using enum Command::Action;
  CHECK(parse_line("--version").action == show_text);
  CHECK(parse_line("--print-config").action == print_config);
  CHECK(parse_line("--print-config given").action == show_text);
  CHECK(parse_line("--model list").action == list_models);
  CHECK(parse_line("--model mlp --classes 3 --print-model").action == print_model);
  CHECK(parse_line("--model-file own.model --print-model").options.model_file == "own.model");
  CHECK(parse_line("--inspect run/step.h5").inspect == "run/step.h5");
  CHECK(parse_line("--inspect run/step.h5").is_local());
}

TEST_CASE("options: manual page and completions have every option") {
  const std::string page = parse_line("--man-page").text;
  const std::string bash = parse_line("--completion bash").text;
  const std::string zsh = parse_line("--completion zsh").text;
  const std::string fish = parse_line("--completion fish").text;
  for (const std::string& line : valid) {
    const std::string name = line.substr(2, line.find(' ') - 2);
    INFO(name);
    std::string escaped = "\\fB\\-\\-";
    for (const char c : name) escaped += c == '-' ? "\\-" : std::string(1, c);
    CHECK_THAT(page, Contains(escaped + "\\fR"));
    CHECK_THAT(bash, Contains("--" + name + " "));
    CHECK_THAT(zsh, Contains("'--" + name + "["));
    CHECK_THAT(fish, Contains("complete -c train -l " + name + " -d"));
  }
  CHECK_THAT(bash, Contains("resnet50") && Contains("'auto cpu cuda'"));
  CHECK_THAT(refusal("--completion tcsh"), Contains("must be one of bash, zsh, fish"));
}

TEST_CASE("options: the version says what is built with and runs with, also as JSON") {
  CHECK_THAT(parse_line("--version").text,
             Catch::StartsWith("ringtrain ") && Contains("commit ") && Contains("oneDNN"));
  CHECK_THAT(parse_line("--version --json").text,
             Catch::StartsWith("{\"program\":\"ringtrain\"") && Contains("\"runs_with\":"));
  CHECK_THAT(refusal("--json"), Contains("--version"));
}

TEST_CASE("options: packing needs a source and a target, and no other rank") {
  const Command command = parse_line("--pack tfrecord:/data /packed --pack-short-side 320");

  CHECK(command.action == Command::Action::pack);
  CHECK(command.is_local());
  CHECK(command.pack_source == "tfrecord:/data");
  CHECK(command.pack_target == "/packed");
  CHECK(command.pack_short_side == 320);
  CHECK(!parse_line("--pack a b").pack_short_side);
  CHECK_THAT(refusal("--pack a"), Contains("--pack") && Contains("At least 2"));
  CHECK_THAT(refusal("--pack-short-side 320"), Contains("--pack DIR OUT"));
  CHECK_THAT(refusal("--pack a b --pack-short-side 15"), Contains("16 to 65500"));
}

TEST_CASE("options: exporting needs a format, a file and weights, and no other rank") {
  const Command command = parse_line("--init-from a.h5 --export onnx b.onnx --uint8-input");

  CHECK(command.action == Command::Action::write_export);
  CHECK(command.is_local());
  CHECK(command.options.init_from == "a.h5");
  CHECK(command.exported.format == ExportFormat::onnx);
  CHECK(command.exported.file == "b.onnx");
  CHECK(command.exported.uint8_input);
  CHECK(!command.exported.fold_batch_norm);
  const std::string from = "--init-from a.h5 ";
  CHECK(parse_line(from + "--export torch b").exported.format == ExportFormat::torch);
  CHECK_THAT(refusal(from + "--export onnx"), Contains("--export") && Contains("At least 2"));
  CHECK_THAT(refusal(from + "--export h5 b"), Contains("one of onnx, safetensors, torch"));
  CHECK_THAT(refusal("--export onnx b"), Contains("--init-from FILE"));
  CHECK_THAT(refusal("--fold-batchnorm"), Contains("--export onnx FILE"));
  CHECK_THAT(refusal(from + "--export torch b --uint8-input"), Contains("--export onnx FILE"));
}

TEST_CASE("options: an unknown name is refused with the nearest one") {
  CHECK_THAT(refusal("--epcohs 90"), Contains("--epcohs") && Contains("--epochs"));
  CHECK_THAT(refusal("--final 3s"), Contains("did you mean --final-save-timeout?"));
  CHECK_THAT(refusal("--weigth-decay=1e-4"),
             Contains("--weigth-decay:") && Contains("--weight-decay"));
  CHECK_THAT(refusal("--shared-optimizer"), Contains("did you mean --shard-optimizer?"));
  CHECK_THAT(refusal("resnet50"), Contains("unexpected argument 'resnet50'"));
}

TEST_CASE("options: the optimizer is shared by the ring between CPUs, in fp32") {
  const std::string shard = "--shard-optimizer ";
  CHECK(refusal(shard + "--allreduce ring --device cpu") == "accepted");
  CHECK_THAT(refusal(shard + "--allreduce mpi"), Contains("whole on all ranks"));
  CHECK_THAT(refusal(shard + "--gradient-dtype fp16"), Contains("stay in fp32"));
  CHECK(refusal(shard + "--device cuda --allreduce nccl") == "accepted");
  CHECK(refusal(shard + "--plan --plan-device h100") == "accepted");
}

TEST_CASE("options: none has a name that mpirun takes for its own, also behind the program") {
  Request request;
  for (const OptionEntry& entry : option_table(request))
    for (const char* taken : {"x", "am", "tune", "mca", "gmca", "omca", "pmixmca", "prtemca"})
      CHECK(entry.name != taken);
  CHECK(options("--tune off").tune.mode == Tune::Mode::off);
}

TEST_CASE("options: shares are equal, found by a trial, or a list") {
  CHECK_FALSE(options("").shares);
  CHECK(options("--shares equal").shares->mode == Shares::Mode::equal);
  CHECK(options("--shares auto").shares->mode == Shares::Mode::automatic);
  CHECK(options("--shares 3:5").shares->weights == std::vector<double>{3, 5});
  CHECK(options("--shares 7").shares->weights == std::vector<double>{7});
  for (const char* line : {"--shares fast", "--shares 3:", "--shares :3", "--shares 3:0",
                           "--shares 3:-1", "--shares 1.5:2", "--shares 1:1000001"})
    CHECK_THAT(refusal(line), Contains("--shares"));
}

TEST_CASE("options: how sums travel is measured, left alone or given") {
  CHECK(options("").tune.mode == Tune::Mode::automatic);
  CHECK(options("").tune.measures());
  CHECK_FALSE(options("--tuning off").tune.measures());
  CHECK(options("--tuning all").tune.measures());
  CHECK(options("--tuning all --device cuda").tune.measures());
  CHECK(options("--tuning start=late --device cuda --compress powersgd:4").tune.plan.late);
  CHECK(options("--tuning off").tune.plan == allreduce::SumPlan());
  const Tune given = options("--tuning blocks=62,sums=4,start=late").tune;
  CHECK(given.mode == Tune::Mode::given);
  const std::size_t floats = 62 * 256;
  CHECK(given.plan ==
        allreduce::SumPlan{{.largest_segment = floats, .smallest_segment = floats}, 4, true});
  CHECK(options("--tuning start=late").tune.plan == allreduce::SumPlan{.late = true});
  for (const char* line :
       {"--tuning fast", "--tuning report", "--tuning sums=0", "--tuning sums=17",
        "--tuning blocks=0", "--tuning blocks=2000", "--tuning start=soon", "--tuning sums=2,",
        "--tuning sums=2,off", "--tuning sums"})
    CHECK_THAT(refusal(line), Contains("--tuning"));
  CHECK_THAT(refusal("--tuning sums=2 --allreduce mpi"), Contains("only the ring between CPUs"));
  CHECK_THAT(refusal("--tuning all --allreduce mpi"), Contains("only the ring between CPUs"));
  CHECK_THAT(refusal("--tuning all --gradient-dtype bf16"), Contains("leave them out"));
  CHECK_THAT(refusal("--tuning all --compress topk:0.1"), Contains("leave them out"));
  CHECK_THAT(refusal("--tuning all --shard-optimizer"), Contains("stay in fp32"));
  CHECK(refusal("--tuning off --allreduce mpi") == "accepted");
  CHECK_THAT(refusal("--tuning sums=2 --device cuda"), Contains("NCCL makes its own"));
  CHECK_THAT(refusal("--tuning sums=2 --shard-optimizer"), Contains("one sum at a time"));
  CHECK_THAT(refusal("--tuning sums=2 --compress topk:0.1"), Contains("one sum at a time"));
  CHECK(refusal("--tuning start=late --shard-optimizer") == "accepted");
}

TEST_CASE("options: a bad value is refused with what it must be") {
  CHECK_THAT(refusal("--device tpu"), Contains("--device tpu") && Contains("auto, cpu, cuda"));
  CHECK_THAT(refusal("--device cpu --precision fp16"), Contains("auto, fp32, bf16"));
  CHECK_THAT(refusal("--gradient-dtype fp8"), Contains("fp32, fp16, bf16"));
  CHECK(refusal("--device cpu --gradient-dtype fp16") == "accepted");
  CHECK_THAT(refusal("--allreduce mpi --gradient-dtype bf16"), Contains("--allreduce ring"));
  CHECK(refusal("--device cpu --gradient-dtype fp32") == "accepted");
  for (const char* line : {"--compress zip", "--compress powersgd", "--compress powersgd:0",
                           "--compress topk:0", "--compress topk:1.5", "--compress topk:x"})
    CHECK_THAT(refusal(line), Contains("--compress"));
  CHECK_THAT(refusal("--compress zip:3"), Contains("none, powersgd:RANK or topk:RATIO"));
  CHECK(options("--compress powersgd:2").compress ==
        allreduce::Compression{.kind = allreduce::Compression::Kind::powersgd, .rank = 2});
  CHECK(options("--compress none").compress == allreduce::Compression{});
  CHECK_THAT(refusal("--compress topk:0.1 --allreduce mpi"), Contains("--allreduce ring"));
  CHECK_THAT(refusal("--compress topk:0.1 --gradient-dtype fp16"), Contains("give one"));
  CHECK(refusal("--compress topk:0.1 --verify-resume") == "accepted");
  CHECK_THAT(refusal("--compress topk:0.1 --plan --plan-device h100"),
             Contains("the plan is of one GPU"));
  CHECK_THAT(refusal("--allreduce gloo"), Contains("auto, ring, mpi, nccl"));
  CHECK_THAT(refusal("--optimizer larch"),
             Contains("sgd, momentum, nesterov, rmsprop, adam, adamw, lars, lion"));
  CHECK_THAT(refusal("--batch 0"), Contains("whole number from 1 to 1000000"));
  CHECK_THAT(refusal("--batch 1000001"), Contains("whole number"));
  CHECK_THAT(refusal("--batch 3.5"), Contains("whole number"));
  CHECK_THAT(refusal("--seed -1"), Contains("whole number"));
  CHECK_THAT(refusal("--lr nan"), Contains("number from 0"));
  CHECK_THAT(refusal("--lr 0.1x"), Contains("number from 0"));
  CHECK_THAT(refusal("--lr-schedule step:2"), Contains("step:EPOCHS:FACTOR"));
  CHECK_THAT(refusal("--checkpoint-dir d --checkpoint-every 0s"), Contains("above 0"));
  CHECK_THAT(refusal("--max-time soon"), Contains("1h30m"));
  CHECK_THAT(refusal("--quiet=perhaps"), Contains("takes no value"));
  CHECK_THAT(refusal("--lr"), Contains("--lr") && Contains("missing"));
  CHECK(options("--batch 1").batch == 1);
  CHECK(options("--batch 1000000").batch == 1'000'000);
}

TEST_CASE("options: factors by name are a list, whose parts may be given one by one") {
  const std::vector<NameFactor> both = {{"fc.*", 10}, {"*", 1e-3}};

  CHECK(options("--lr-factor fc.*=10,*=1e-3").factors.lr == both);
  CHECK(options("--lr-factor fc.*=10 --lr-factor *=0.001").factors.lr == both);
  CHECK(options("--decay-factor a=b=0").factors.decay == std::vector<NameFactor>{{"a=b", 0}});
  for (const char* line : {"--lr-factor fc.*", "--lr-factor =3", "--lr-factor a=1,b"})
    CHECK_THAT(refusal(line), Contains("--lr-factor") && Contains("PATTERN=FACTOR"));
  for (const char* line :
       {"--lr-factor a=-1", "--lr-factor a=nan", "--lr-factor a=", "--decay-factor a=1,b=2x"})
    CHECK_THAT(refusal(line), Contains("FACTOR must be a number from 0"));
  CHECK_THAT(refusal("--layer-decay 1.1"), Contains("number from 0 to 1"));
  CHECK_THAT(refusal("--head-lr -1"), Contains("number from 0"));
}

TEST_CASE("options: factors come back from the canonical configuration") {
  const Options given =
      options("--lr-factor fc.*=10 --decay-factor *.w=0.1 --head-lr 1e-5 --layer-decay 0.75");

  CHECK(factors_in(canonical_config(given)) == given.factors);
  CHECK(factors_in(canonical_config(Options{})) == Factors{});
  CHECK(factors_text(given.factors) ==
        "--lr-factor fc.*=10 --decay-factor *.w=0.1 --head-lr 1e-05 --layer-decay 0.75");
  CHECK(factors_text({}).empty());
  for (const char* text :
       {"", "[]", "{\"layer-decay\":7}", "{\"lr-factor\":[1]}", "{\"head-lr\":\"x\"}"})
    CHECK(factors_in(text) == Factors{});
}

TEST_CASE("options: control characters in a refused argument do not reach the terminal") {
  CHECK_THAT(refusal("--\x1b[31mred"), !Contains("\x1b") && Contains("\\x1b"));
}

TEST_CASE("options: --predict takes all paths up to the next option, and evaluates only") {
  const Options o = options("--predict a b/c images:d --init-from f --output -");
  CHECK(o.predict == std::vector<std::string>{"a", "b/c", "images:d"});
  CHECK(o.eval_only);
  CHECK(o.output == "-");
  CHECK_FALSE(options("--eval-only --init-from f").predicts());
}

TEST_CASE("options: contradictions get one message that names both sides") {
  CHECK_THAT(refusal("--epochs 3 --steps 4"), Contains("--epochs with --steps"));
  CHECK_THAT(refusal("--batch 3 --global-batch 4"), Contains("--batch with --global-batch"));
  CHECK_THAT(refusal("--resume auto"), Contains("--checkpoint-dir"));
  CHECK_THAT(refusal("--checkpoint-every 60s"), Contains("--checkpoint-dir"));
  CHECK_THAT(refusal("--keep 3"), Contains("--checkpoint-dir"));
  CHECK_THAT(refusal("--eval-only"), Contains("nothing to evaluate"));
  CHECK_THAT(refusal("--eval-only --checkpoint-dir d --resume never"),
             Contains("nothing to evaluate"));
  CHECK_THAT(refusal("--predict a"), Contains("nothing to predict with"));
  CHECK_THAT(refusal("--output a.csv"), Contains("--predict"));
  CHECK_THAT(refusal("--predict a --init-from f --output a.txt"), Contains(".csv or .jsonl"));
  CHECK_THAT(refusal("--eval-only --resume f --baseline"), Contains("--baseline"));
  CHECK_THAT(refusal("--verify-resume --baseline"), Contains("--baseline"));
  CHECK_THAT(refusal("--verify-resume --eval-only --resume f"), Contains("--eval-only"));
  CHECK_THAT(refusal("--init-from f --resume g"), Contains("--init-from") && Contains("--resume"));
  CHECK_THAT(refusal("--eval-only --resume f --require-efficiency 0.9"),
             Contains("--require-efficiency") && Contains("does not train"));
  CHECK_THAT(refusal("--quiet --progress on"), Contains("--quiet"));
  CHECK_THAT(refusal("--balance --class-weights balanced"),
             Contains("--balance with --class-weights balanced") && Contains("give one"));
  CHECK(refusal("--balance --class-weights w.csv") == "accepted");
  CHECK(refusal("--quiet --progress auto") == "accepted");
  CHECK(refusal("--eval-only --resume f.h5") == "accepted");
}

TEST_CASE("options: a configuration file gives values and the command line wins") {
  const TemporaryFile file(
      "# run\nepochs = 90 # long\nlr = 0.25\nmodel = \"resnet50\"\nquiet = true\nbaseline = "
      "false\n");

  const Options o = options("--lr 0.5 --config " + file.path());

  CHECK(o.epochs == 90);
  CHECK(o.lr == 0.5);
  CHECK(o.model == "resnet50");
  CHECK(o.quiet);
  CHECK_FALSE(o.baseline);
}

TEST_CASE(
    "options: a configuration file is TOML under the help's headings, and flat ones are read") {
  const TemporaryFile headed(
      "# a run\n[run]\nepochs = 1_0 # ten\nbatch = 0x20\n\n[ optimizer ]\nlr = 2.5e-1\n[run]\n"
      "max-time = 1:30:00\n[checkpoint]\ncheckpoint-dir = \"a\\u0062#\\\"\" # b\n[output]\nquiet = "
      "true");
  const TemporaryFile flat(
      "data = images:/d\ncheckpoint-every = 5m\nquiet\n;lr = 3\nmetrics='a\\b'");

  const Options o = options("--config " + headed.path()), f = options("--config " + flat.path());

  CHECK(o.epochs == 10);
  CHECK(o.batch == 32);
  CHECK(o.lr == 0.25);
  CHECK(o.max_time_s == 5400);
  CHECK(o.checkpoint_dir == "ab#\"");
  CHECK(o.quiet);
  CHECK(f.data == "images:/d");
  CHECK(f.checkpoint_every.seconds == 300);
  CHECK(f.quiet);
  CHECK(f.metrics == "a\\b");
}

TEST_CASE("options: ranks to start are the program with the same words") {
  const Command command = parse_line("--ranks 2 --batch-size 8 --lr 1");

  CHECK(command.options.ranks == 2);
  REQUIRE(command.rank_command.size() == 7);
  CHECK(command.rank_command[0].starts_with("/"));
  CHECK(command.rank_command[3] == "--batch");
  CHECK(parse_line("--lr 1").rank_command.empty());
  CHECK_THAT(refusal("--ranks 0"), Contains("whole number from 1"));
  CHECK_THAT(parse_line("--ranks 2 --print-config given").text, Contains("\nranks = 2\n"));
  CHECK_THAT(parse_line("--ranks 2 --emit-sbatch nodes=2 --lr 1").text,
             Contains("\nset -- --lr 1 \"$@\"\n"));
}

TEST_CASE("options: a byte order mark before a configuration file is read over, UTF-16 is told") {
  const TemporaryFile marked(
      "\xef\xbb\xbf"
      "model = \"resnet50\"\nepochs = 90\n");
  const TemporaryFile wide(
      std::string("\xff\xfe"
                  "e\0=\0",
                  6));

  CHECK(options("--config " + marked.path()).model == "resnet50");
  CHECK_THAT(refusal("--config " + wide.path()), Contains("is in UTF-16; save it as UTF-8"));
}

TEST_CASE("options: a ~ that no shell has replaced is told, wherever a path is") {
  const TemporaryFile file("checkpoint-dir = \"~/runs\"\n");

  for (const std::string& words :
       {std::string("--checkpoint-dir=~/runs"), std::string("--data images:~/data"),
        std::string("--metrics=~/m"), std::string("--resume=~/a.h5"), "--config " + file.path()})
    CHECK_THAT(refusal(words), Contains("write $HOME"));
  CHECK(refusal("--checkpoint-dir ~runs --checkpoint-every 5") == "accepted");
  CHECK(refusal("--checkpoint-dir a/~/runs") == "accepted");
}

TEST_CASE("options: what other trainers call the newest or the best checkpoint is told") {
  for (const char* name : {"latest", "last", "newest"})
    CHECK_THAT(refusal(std::string("--resume ") + name), Contains("say auto"));
  CHECK_THAT(refusal("--resume best"), Contains("DIR/best.h5"));
  CHECK(refusal("--resume ./latest") == "accepted");
}

TEST_CASE("options: a model file takes the place of a model of the zoo, also in written files") {
  CHECK(options("--model-file own.model").model.empty());
  CHECK(options("").model.empty());
  CHECK_THAT(refusal("--model mlp --model-file own.model"), Contains("--model with --model-file"));

  const char* arguments[] = {"train", "--model-file", "own.model", "--print-config", "given"};
  const TemporaryFile file(parse(5, arguments).text);
  CHECK(options("--config " + file.path()).model_file == "own.model");
}

TEST_CASE("options: a configuration file is refused as strictly as the command line") {
  const auto [text, message] = GENERATE(table<const char*, const char*>(
      {{"epochs = 90\nlrr = 1\n", "key 'lrr': unknown; train --help lists all; did you mean lr?"},
       {"help = true\n", "key 'help': unknown"},
       {"[runs]\nepochs = 3\n", "line 1, heading [runs]: there are model, data, run, device"},
       {"[run\nepochs = 3\n", "line 1, heading [run: there are"},
       {"[[run]]\nepochs = 3\n", "line 1, heading [[run]]: there are"},
       {"[run]\nbatch_size = 3\n", "line 2, key 'batch_size': unknown; in ringtrain it is batch"},
       {"drop-path = 0.1\n", "key 'drop-path': unknown; ringtrain does not have it"},
       {"[run]\nepochs = true\n", "line 2, key 'epochs': true must be a whole number"},
       {"[optimizer]\n\nlr = \"fast\"\n", "line 3, key 'lr': fast must be a number"},
       {"precision = \"bfloat16\"\n",
        "key 'precision': bfloat16 must be one of auto, fp32, bf16, "
        "fp16; say bf16"},
       {"metrics = \"a\\qb\"\n", "line 1, key 'metrics': \"a\\qb\" is no text of TOML"},
       {"[run]\nseed = 1\n[data]\nseed = 1\n", "line 4, key 'seed': line 2 has it, too"},
       {"quiet = perhaps\n", "key 'quiet': must be true or false"},
       {"batch = 0\n", "line 1, key 'batch': 0 must be a whole number"},
       {"seed = 1\nlr = 0,05\n", "line 2, key 'lr': 0,05 is no single value"},
       {"lr = 0.1 0.2\n", "line 1, key 'lr': 0.1 0.2 is no single value"},
       {"lr = [0.1,\n0.2]\n", "line 1, key 'lr': [0.1, is no single value"},
       {"data = \"a\", \"b\"\n", "line 1, key 'data': \"a\", \"b\" goes on behind"},
       {"data = \"a\n", "line 1, key 'data': \"a has no closing quote"},
       {"lr = 0.1\n\n# twice\nlr = 0.2\n", "line 4, key 'lr': line 1 has it, too"},
       {"metrics\n", "line 1, key 'metrics': has no value"},
       {"lr =\n", "line 1, key 'lr': has no value"},
       {"epochs = 1\nsteps = 1\n", "--epochs with --steps"}}));
  const TemporaryFile file(text);

  CHECK_THAT(refusal("--config " + file.path()), Contains(message));
}

TEST_CASE("options: a configuration file must be a file of at most one MiB") {
  const TemporaryFile full("#" + std::string((1 << 20) - 1, 'x'));
  const TemporaryFile over("#" + std::string(1 << 20, 'x'));

  CHECK(refusal("--config " + full.path()) == "accepted");
  CHECK_THAT(refusal("--config " + over.path()), Contains("1 MiB"));
  CHECK_THAT(refusal("--config /"), Contains("not a regular file"));
  CHECK_THAT(refusal("--config /proc/self/mem"), Contains("cannot be read to its end"));
  CHECK_THAT(refusal("--config " + over.path() + ".none"), Contains("No such file"));
}

TEST_CASE("options: the printed configuration reads back as the same configuration") {
  for (const std::string& line : valid) {
    CAPTURE(line);
    const std::string printed = parse_line(line + " --print-config given").text;
    const TemporaryFile file(printed);

    CHECK(parse_line("--print-config given --config " + file.path()).text == printed);
  }
}

TEST_CASE("options: a value with quotes or spaces survives the printed configuration") {
  const auto value =
      GENERATE("a b", "say \"hi\"", "it's", "back\\slash", "#5", "a #5", "[x]", "a,b",
               "it's \"all\" \\", "two\nlines", "caf\xc3\xa9", "caf\xe9", "''");
  const std::string printed =
      parse_words({"--checkpoint-dir", value, "--print-config", "given"}).text;
  const TemporaryFile file(printed);

  CHECK(options("--config " + file.path()).checkpoint_dir == value);
}

TEST_CASE("options: the canonical configuration has what changes the numbers and nothing else") {
  const std::string base = canonical_config(options(""));

  CHECK(canonical_config(options("--threads 7 --log-every 3 --quiet --checkpoint-dir d --keep 9 "
                                 "--data-threads 3 --max-time 9s --metrics m --interface e "
                                 "--watchdog off --watchdog-silence 30s")) == base);
  for (const char* line :
       {"--lr 0.1", "--seed 2", "--batch 3", "--optimizer adam", "--ema 0.9",
        "--gradient-dtype fp16", "--compress topk:0.5", "--balance", "--class-weights balanced",
        "--class-weights w.csv", "--freeze fc", "--lr-factor *=1", "--decay-factor *=1",
        "--head-lr 1", "--layer-decay 1"})
    CHECK(canonical_config(options(line)) != base);
  CHECK(canonical_config(options("--data cifar10:/here")) ==
        canonical_config(options("--data cifar10:/there")));
}

TEST_CASE("options: the canonical configuration tells other training data") {
  const std::string before = canonical_config(options(""), "8 samples, a1");

  CHECK(differences(before, canonical_config(options(""), "9 samples, b2")) ==
        std::vector<std::string>{"training-data: 8 samples, a1 -> 9 samples, b2"});
  CHECK(differences(before, canonical_config(options(""), "8 samples, a1")).empty());
}

TEST_CASE("options: differences of a file's options are bounded and cannot disturb a terminal") {
  const std::string deep =
      "{\"a\":" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}";

  CHECK(differences(deep, "{}") == std::vector<std::string>{"a: <discarded> -> unset"});
  CHECK(differences(R"({"\u001b[2J":"\u0007"})", "{}") ==
        std::vector<std::string>{"\\x1b[2J: \\x07 -> unset"});
}

TEST_CASE("options: differences name each option that changed, old and new") {
  const std::string before = canonical_config(options("--lr 0.1 --batch 32 --optimizer sgd"));
  const std::string after =
      canonical_config(options("--lr 0.2 --optimizer adam --batch 32 --ema 0"));

  CHECK(differences(before, before).empty());
  CHECK(differences(before, after) ==
        std::vector<std::string>{"ema: unset -> 0", "lr: 0.1 -> 0.2", "optimizer: sgd -> adam"});
  CHECK(differences("{\"gone\":1}", "{}") == std::vector<std::string>{"gone: 1 -> unset"});
  CHECK(differences("{}", "{\"new\":\"x\"}") == std::vector<std::string>{"new: unset -> x"});
  CHECK(differences(before, canonical_config(options("--lr 0.1 --batch 32 --optimizer sgd "
                                                     "--balance --class-weights w.csv"))) ==
        std::vector<std::string>{"balance: unset -> true", "class-weights: unset -> w.csv"});
  CHECK_THROWS_AS(differences("nonsense", "{}"), Error);
}
