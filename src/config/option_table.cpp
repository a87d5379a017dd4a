#include "config/option_table.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "ringtrain/base/text.hpp"
#include "ringtrain/config/option_values.hpp"

namespace ringtrain::config {

template <>
inline constexpr std::array names_of<PrintConfig> = {"all", "given"};

namespace {

constexpr int million = 1'000'000;

class Table {
 public:
  void group(std::string name) { group_ = std::move(name); }

  template <class T>
  void add(T& target, OptionEntry entry, const Codec<T>& codec) {
    entry.set = [&target, read = codec.read](const std::string& text) { target = read(text); };
    entry.value = [&target, write = codec.write] { return write(target); };
    push(std::move(entry), codec.bare);
  }

  template <class T>
  void add(std::optional<T>& target, OptionEntry entry, const Codec<T>& codec) {
    entry.set = [&target, read = codec.read](const std::string& text) { target = read(text); };
    entry.value = [&target, write = codec.write] { return target ? write(*target) : ""; };
    push(std::move(entry), codec.bare);
  }

  void flag(bool& target, std::string name, std::string description) {
    OptionEntry entry{std::move(name), "", std::move(description)};
    entry.set = [&target](const std::string& text) { target = text == "true"; };
    entry.value = [&target] { return target ? "true" : "false"; };
    push(std::move(entry), true);
  }

  std::vector<OptionEntry> take() { return std::move(entries_); }

 private:
  void push(OptionEntry entry, bool bare) {
    entry.group = group_;
    entry.bare = bare;
    entry.in_files = entry.in_files && group_ != "files";
    entries_.push_back(std::move(entry));
  }

  std::string group_;
  std::vector<OptionEntry> entries_;
};

template <class E>
std::string choice() {
  return joined(names_of<E>, "|");
}

void add_model_and_data(Table& t, Request& r) {
  Options& o = r.options;
  t.group("model");
  t.add(o.model,
        {"model", "NAME", "network to train; \"list\" shows all",
         fmt::format("the checkpoint's, else {}", usual_model)},
        any_text());
  t.add(o.model_file,
        {"model-file", "FILE", "instead: a network of your own (docs/guide/models.md)", "none"},
        any_text());
  t.add(o.classes, {"classes", "N", "classes to tell apart", "from the data"}, whole(1, million));
  t.add(o.recipe,
        {"recipe", "WORDS", "change what the network's file says: \"crop=176 mean=0.5,0.5,0.5\"",
         "none"},
        any_text());
  t.add(o.init_from,
        {"init-from", "FILE", "start from the weights of a checkpoint, safetensors or torch's .pth",
         "none"},
        any_text());
  t.add(o.freeze,
        {"freeze", "PATTERN,...",
         "leave these parameters as they are: 'features,stem.*', or '*,!fc': all but fc",
         "none, or as resumed"},
        any_text());
  t.flag(o.sync_batchnorm, "sync-batchnorm", "normalise by the images of all ranks");

  t.group("data");
  t.add(o.data,
        {"data", "SPEC",
         "synthetic | shapes | cifar10:DIR | mnist:DIR | images:DIR | tfrecord:DIR | records:DIR"},
        any_text());
  t.add(o.val_data,
        {"val-data", "SPEC", "evaluate on another set than --data's own: images:DIR and the like",
         "--data"},
        any_text());
  t.add(o.labels,
        {"labels", "FILE.csv", "path,label of the images in images:DIR, in place of class folders",
         "none"},
        any_text());
  t.add(o.val_split,
        {"val-split", "X[:SEED]",
         "evaluate on this share of each class where images:DIR has no val/: 0.2", "none"},
        val_split_value());
  t.flag(o.balance, "balance",
         "draw every class equally often: images of rare ones come again, augmented otherwise");
  t.add(r.pack_source,
        {.name = "pack",
         .argument = "DIR OUT",
         .description = "copy images (DIR, tfrecord:DIR) into files for records:OUT",
         .unset = "none",
         .in_files = false},
        any_text());
  t.add(r.pack_short_side,
        {.name = "pack-short-side",
         .argument = "N",
         .description = "with --pack: scale larger images to this shorter side",
         .unset = "as they are",
         .in_files = false},
        whole(16, 65'500));
  t.add(o.data_threads, {"data-threads", "N", "threads a rank that decode and augment", "its cpus"},
        whole(1, 1024));
  t.add(o.seed, {"seed", "N", "of initial weights, order and augmentation"}, seed_value());
}

void add_run_and_device(Table& t, Options& o) {
  t.group("run");
  t.add(o.ranks,
        {"ranks", "N", "start N ranks on this machine, by mpirun", "as mpirun or srun does"},
        whole(1, 4096));
  t.add(o.epochs, {"epochs", "E", "passes over the data, resumed ones too", "recipe"},
        whole(1, million));
  t.add(o.steps,
        {"steps", "N", "instead of --epochs: steps, over which the learning rate falls", "none"},
        long_whole(1, 1'000'000'000'000));
  t.add(o.batch, {"batch", "N", "images a rank and step", "recipe"}, whole(1, million));
  t.add(o.global_batch,
        {"global-batch", "N", "instead of --batch: images a step, all ranks", "none"},
        whole(1, 1000 * million));
  t.add(o.accumulate, {"accumulate", "K", "batches whose gradients make one step"},
        whole(1, million));
  t.add(o.shares,
        {"shares", "equal|auto|A:B:...",
         "of a step's images, by rank or host; auto: as a trial of all shows to be fastest",
         "equal, or as resumed"},
        shares_value());
  t.add(o.as_ranks,
        {"as-ranks", "R", "train on the images a step of R ranks; accumulate to have room", "none"},
        whole(1, million));
  t.add(o.eval_every, {"eval-every", "E", "epochs between evaluations; 0: at the end"},
        whole(0, million));
  t.add(o.until,
        {"until", "METRIC=VALUE",
         "end with the evaluation that reaches this: top1=0.94, top5=..., loss=...", "none"},
        metric_goal());
  t.add(o.patience,
        {"patience", "N", "end after N evaluations in a row without a better one", "none"},
        whole(1, million));
  t.flag(o.eval_only, "eval-only", "evaluate a checkpoint and end");
  t.add(o.predict,
        {.name = "predict",
         .argument = "PATH...",
         .description = "tell the classes of these files, folders or data set, and end",
         .unset = "none",
         .in_files = false},
        paths());
  t.add(o.output,
        {"output", "FILE", "with --predict: FILE.csv, FILE.jsonl, or - for standard output"},
        output_value());
  t.add(o.top_k, {"top-k", "N", "with --predict: the best classes to tell of each image"},
        whole(1, million));
  t.add(o.class_names,
        {"class-names", "FILE", "with --predict: what classes are called, a name a line",
         "the network's"},
        any_text());
  t.add(o.weights,
        {"weights", choice<Weights>(),
         "of a checkpoint to evaluate or start from; auto: their average if it has one"},
        enumerator<Weights>());
  t.add(o.check_every,
        {"check-every", "N", "steps between checks that all ranks have equal weights; 0: none",
         "100; GPUs: 1000"},
        whole(0, million));

  t.group("device");
  t.add(o.device, {"device", choice<Device>(), "auto: on a GPU if there is one"},
        enumerator<Device>());
  t.add(o.precision,
        {"precision", choice<Precision>(),
         "of activations; auto: fp16 on a GPU, else fp32; CPUs: no fp16"},
        enumerator<Precision>());
  t.add(o.threads, {"threads", "N", "compute threads a rank", "cpus / ranks"}, whole(1, 4096));
  t.flag(o.deterministic, "deterministic", "on a GPU: the same bits every time (CPUs: always)");
  t.flag(o.autotune, "autotune", "on a GPU: time cuDNN's engines, keep the choice");
  t.add(o.fusion,
        {"fusion", choice<ConvolutionFusion>(),
         "on a GPU: off computes BatchNorm beside its convolutions"},
        enumerator<ConvolutionFusion>());
  t.flag(o.no_graph, "no-graph", "on a GPU: launch kernels one by one, to compare");
  t.flag(o.nccl_register, "nccl-register", "on GPUs: register gradients with NCCL (user buffers)");
  t.flag(o.nccl_blocking, "nccl-blocking", "on GPUs: NCCL's calls block, to compare");
}

void add_optimizer(Table& t, Options& o) {
  const std::string recipe = "recipe";
  t.group("optimizer");
  t.add(o.optimizer, {"optimizer", "NAME", joined(names_of<optim::OptimizerKind>, " | "), recipe},
        enumerator<optim::OptimizerKind>());
  t.add(o.lr, {"lr", "X", "peak learning rate", recipe}, number(0, million));
  t.add(o.lr_schedule,
        {"lr-schedule", "S",
         "constant | cosine[:FLOOR] | linear[:FLOOR] | polynomial:POWER[:FLOOR] | onecycle | "
         "step:EPOCHS:FACTOR | multistep:EPOCH,...:FACTOR | exponential:EPOCHS:FACTOR | "
         "piecewise:EPOCH=FACTOR,...; EPOCH may be 50%; behind it :by-epoch, if it changes so",
         recipe},
        decay_value());
  t.add(o.warmup_epochs, {"warmup-epochs", "E", "in which the rate rises to --lr", recipe},
        number(0, million));
  t.add(o.weight_decay, {"weight-decay", "X", "L2 factor of the weights that decay", recipe},
        number(0, 1));
  t.add(o.label_smoothing,
        {"label-smoothing", "X", "share of a label given to all classes", recipe},
        number(0, 0.999));
  t.add(o.class_weights,
        {"class-weights", "balanced|FILE.csv",
         "of the loss; balanced: in inverse proportion to a class's images; FILE: class,weight",
         "all 1"},
        any_text());
  t.add(o.clip_grad,
        {"clip-grad", "X", "most that the norm of all gradients may be; 0: any", "none"},
        number(0, million));
  t.add(o.ema, {"ema", "X", "decay of the weights' average; 0: none", recipe},
        number(0, 0.9999999));
  t.add(o.factors.lr,
        {.name = "lr-factor",
         .argument = "PATTERN=X,...",
         .description = "times --lr, for parameters of these names: \"fc.*=10,conv1.weight=0.1\"",
         .unset = "none, or as resumed",
         .joins = true},
        name_factors());
  t.add(o.factors.decay,
        {.name = "decay-factor",
         .argument = "PATTERN=X,...",
         .description = "likewise, times --weight-decay",
         .unset = "none, or as resumed",
         .joins = true},
        name_factors());
  t.add(o.factors.head_lr,
        {"head-lr", "X", "peak learning rate of the layer that gives the logits",
         "--lr, or as resumed"},
        number(0, million));
  t.add(o.factors.layer_decay,
        {"layer-decay", "X", "each block learns at this part of the next one's rate",
         "1, or as resumed"},
        number(0, 1));
  t.add(o.on_nan, {"on-nan", choice<OnNan>(), "if loss or gradient is not finite"},
        enumerator<OnNan>());
}

void add_communication(Table& t, Request& r) {
  Options& o = r.options;
  t.group("communication");
  t.add(o.allreduce, {"allreduce", choice<Allreduce>(), "mpi: to compare; nccl: between GPUs"},
        enumerator<Allreduce>());
  t.add(o.bucket_mb,
        {"bucket-mb", "X", "MiB of gradients summed at a time",
         "0.5; GPUs: 4, NCCL between hosts 16"},
        number(0.001, 4096));
  t.add(o.gradient_dtype,
        {"gradient-dtype", choice<Element>(), "of gradients between GPUs, or hosts"},
        enumerator<Element>());
  t.add(
      o.compress,
      {"compress", "none|powersgd:RANK|topk:RATIO", "gradients between hosts, with error feedback"},
      compression_value());
  t.add(o.tune,
        {"tuning", "auto|all|off|PLAN",
         "how sums travel between hosts; all: also in 16 bits or compressed, where that is faster; "
         "PLAN: blocks=KIB,sums=N,start=late"},
        tune_value());
  t.flag(o.shard_optimizer, "shard-optimizer", "each rank keeps its part of the optimizer's state");
  t.add(o.interface, {"interface", "NAME", "network interface between hosts", "any"}, any_text());
  t.add(o.watchdog,
        {"watchdog", choice<Watching>(), "end a job in which a rank is gone, cut off or stuck"},
        enumerator<Watching>());
  t.add(o.watchdog_silence_s,
        {"watchdog-silence", "T", "a rank that is not heard for so long is lost"}, silence());

  t.group("cluster");
  t.add(o.restarts,
        {"restarts", "N",
         "with scripts/supervise before mpirun: start again when a rank is lost or stuck, or the "
         "writer lost"},
        whole(0, million));
  t.flag(o.without_lost_hosts, "without-lost-hosts", "then leave out hosts that were lost");
  t.add(r.batch_job,
        {.name = "emit-sbatch",
         .argument = "[SPEC]",
         .description = "print a Slurm script that does this run: "
                        "nodes=4,tasks=2,gpus=2,time=2h ... (docs/guide/slurm.md)",
         .unset = "none",
         .alone = "nodes=1",
         .in_files = false},
        Codec<SlurmResources>{batch_job, [](const SlurmResources& job) { return to_string(job); }});
}

void add_checkpoint(Table& t, Options& o) {
  t.group("checkpoint");
  t.add(o.checkpoint_dir, {"checkpoint-dir", "DIR", "where checkpoints go and are found", "none"},
        any_text());
  t.add(o.checkpoint_every, {"checkpoint-every", "T|N", "time (60s, 15m, 1h30m) or steps"},
        checkpoint_every());
  t.add(o.keep, {"keep", "K", "newest checkpoints to keep"}, whole(1, million));
  t.add(o.keep_best,
        {"keep-best", choice<Metric>(), "keep what was evaluated best as best.h5", "none"},
        enumerator<Metric>());
  t.add(o.resume, {"resume", "auto|never|FILE", "auto: newest valid checkpoint"}, resume_value());
  t.add(o.final_save_timeout_s, {"final-save-timeout", "T", "longest wait for the last save"},
        time_span());
  t.add(o.max_time_s, {"max-time", "T", "save and end after 90s, 1h30m, 23:50:00", "none"},
        time_span());
  t.add(
      o.verify_resume,
      {.name = "verify-resume",
       .argument = "[K]",
       .description = "only prove that K steps (20) come to the same bits with a resume amid them",
       .unset = "none",
       .alone = "20"},
      whole(2, million));
}

void add_output_and_measure(Table& t, Options& o) {
  t.group("output");
  t.add(o.log_every, {"log-every", "N", "steps between log lines"}, whole(1, 1000 * million));
  t.add(o.slow_below,
        {"slow-below", "X", "tell of a slow-down below this share of the run's speed; 0: never"},
        number(0, 0.95));
  t.add(o.metrics, {"metrics", "FILE.jsonl", "append one JSON object a record", "none"},
        any_text());
  t.add(o.tensorboard, {"tensorboard", "DIR", "an event file for TensorBoard", "none"}, any_text());
  t.add(o.report, {"report", "FILE.html", "a page with plots of the run", "none"}, any_text());
  t.add(o.timeline,
        {"timeline", "FILE.json", "what each thread of each rank did, for Perfetto", "none"},
        any_text());
  t.add(o.timeline_spans, {"timeline-spans", "N", "newest spans of a rank that --timeline keeps"},
        whole(16, 100 * million));
  t.flag(o.quiet, "quiet", "print warnings and errors only");
  t.add(o.progress,
        {"progress", choice<ShowProgress>(), "auto: bar if standard error is a terminal"},
        enumerator<ShowProgress>());

  t.group("measure");
  t.flag(o.baseline, "baseline", "one rank alone, then all: speed-up and verdict");
  t.add(o.require_efficiency,
        {"require-efficiency", "X", "exit 77 below X (0..1), by --baseline or an earlier run",
         "none"},
        number(0, 1));
  t.flag(o.doctor, "doctor", "check hosts, devices, data and directories; no training");
  t.flag(o.plan, "plan", "memory, bytes an image, step time; no training");
  t.add(o.plan_device,
        {"plan-device", "GPU", "with --plan: h100, a100, t4, ...; it may be absent", "the CPU"},
        any_text());
}

void add_files(Table& t, Request& r) {
  t.group("files");
  t.add(r.config,
        {"config", "FILE.toml", "read options; the command line wins; -: from standard input",
         "none"},
        any_text());
  t.add(r.print_config,
        {.name = "print-config",
         .argument = "[given]",
         .description = "print the configuration as TOML, which repeats the run; given: only what "
                        "was given",
         .unset = "none",
         .alone = "all"},
        enumerator<PrintConfig>());
  t.flag(r.print_model, "print-model", "print the model file of --model, to change it");
  t.add(
      r.inspect,
      {"inspect", "FILE.h5|DIR",
       "verify and describe a checkpoint; DIR: say which one --resume auto takes, and why", "none"},
      any_text());
  t.add(r.exported.file,
        {.name = "export",
         .argument = choice<ExportFormat>() + " FILE",
         .description = "write --init-from's network for other programs (docs/guide/export.md)",
         .unset = "none"},
        any_text());
  t.flag(r.exported.fold_batch_norm, "fold-batchnorm",
         "with --export onnx: BatchNorms become part of convolutions");
  t.flag(r.exported.uint8_input, "uint8-input",
         "with --export onnx: take uint8 pixels, normalise them");
  t.flag(r.version, "version", "print version, commit and the libraries' versions");
  t.flag(r.json, "json", "with --version: as JSON");
  t.flag(r.man_page, "man-page", "print the manual page, for man -l -");
  t.add(r.completion,
        {.name = "completion",
         .argument = choice<Shell>(),
         .description = "print what completes options; bash: source <(train --completion bash)",
         .unset = "none",
         .in_files = false},
        enumerator<Shell>());
  t.flag(r.help, "help", "print this");
}

}  // namespace

std::vector<OptionEntry> option_table(Request& request) {
  Table table;
  add_model_and_data(table, request);
  add_run_and_device(table, request.options);
  add_optimizer(table, request.options);
  add_communication(table, request);
  add_checkpoint(table, request.options);
  add_output_and_measure(table, request.options);
  add_files(table, request);
  return table.take();
}

const OptionEntry* find_option(const std::vector<OptionEntry>& table, const std::string& name) {
  const auto found = std::ranges::find(table, name, &OptionEntry::name);
  return found == table.end() ? nullptr : &*found;
}

std::string option_hint(std::string_view name, const std::vector<OptionEntry>& table,
                        std::string_view prefix) {
  std::vector<std::string> names;
  for (const OptionEntry& entry : table)
    if (entry.in_files || !prefix.empty()) names.push_back(entry.name);
  if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  const std::string_view question = "; did you mean ";
  std::string hint = did_you_mean(name, names);
  if (!hint.empty()) hint.insert(question.size(), prefix);
  return "train --help lists all" + hint;
}

Error usage_error(std::string_view what, std::string_view reason) {
  return Error(Exit::usage, brief(what), brief(reason));
}

}  // namespace ringtrain::config
