// What users of timm, torchvision, torchrun, Lightning, Hugging Face and Horovod type: the options
// of theirs that mean the same are taken, the others are answered (docs/guide/from-timm.md).
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "config/option_table.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::config {
namespace {

struct ForeignOption {
  std::string_view names;        // separated by blanks
  std::string_view same = {};    // our option that means the same: taken for it
  std::string_view say = {};     // else what to say here; {} is the value
  std::string_view absent = {};  // else why there is none
};

constexpr std::string_view start_ranks = "mpirun -np {} train ..., or train --ranks {}";
constexpr std::string_view schedules =
    "--lr-schedule cosine, linear, onecycle, step:EPOCHS:FACTOR, multistep:EPOCH,...:FACTOR, ...";

constexpr std::array foreign_options = std::to_array<ForeignOption>({
    {"b batch-size train-batch-size per-device-train-batch-size", "batch"},
    {"j workers num-workers dataloader-num-workers", "data-threads"},
    {"num-classes", "classes"},
    {"initial-checkpoint", "init-from"},
    {"smoothing label-smoothing-factor", "label-smoothing"},
    {"class-weight", "class-weights"},
    {"sync-bn", "sync-batchnorm"},
    {"grad-accum-steps gradient-accumulation-steps accumulate-grad-batches", "accumulate"},
    {"log-interval print-freq log-every-n-steps logging-steps", "log-every"},
    {"wd", "weight-decay"},
    {"clip-grad-norm gradient-clip-val max-grad-norm", "clip-grad"},
    {"test-only evaluate", "eval-only"},
    {"max-epochs num-epochs num-train-epochs", "epochs"},
    {"max-steps", "steps"},
    {"learning-rate", "lr"},
    {"save-total-limit", "keep"},

    {"a arch", {}, "--model NAME; train --model list shows all"},
    {"opt", {}, "--optimizer {}; timm's sgd is nesterov here, torchvision's momentum"},
    {"sched lr-scheduler lr-scheduler-type", {}, schedules},
    {"lr-step-size decay-epochs", {}, "--lr-schedule step:{}:FACTOR"},
    {"lr-gamma decay-rate", {}, "--lr-schedule step:EPOCHS:{}"},
    {"lr-warmup-epochs", {}, "--warmup-epochs {}, from a hundredth of the rate on"},
    {"lr-warmup-decay", {}, "--recipe \"warmup-factor={}\""},
    {"warmup-lr", {}, "--recipe \"warmup-factor=X\", a share of --lr"},
    {"lr-milestones milestones", {}, "--lr-schedule multistep:EPOCH,EPOCH,...:FACTOR"},
    {"min-lr lr-min", {}, "--lr-schedule cosine:FLOOR, a share of --lr"},
    {"lr-base", {}, "--recipe \"lr={} lr-batch=256\""},
    {"lr-base-size", {}, "--recipe \"lr=X lr-batch={}\""},
    {"momentum", {}, "--recipe \"momentum={}\""},
    {"amp mixed-precision", {}, "--precision fp16, bf16 or auto, which is fp16 on a GPU"},
    {"amp-dtype", {}, "--precision bf16, fp16 or fp32"},
    {"fp16 half", {}, "--precision fp16"},
    {"bf16", {}, "--precision bf16"},
    {"accelerator", {}, "--device auto, cuda or cpu"},
    {"img-size image-size", {}, "--recipe \"crop={} evaluation-crop={}\""},
    {"train-crop-size", {}, "--recipe \"crop={}\""},
    {"val-crop-size", {}, "--recipe \"evaluation-crop={}\""},
    {"val-resize-size", {}, "--recipe \"resize={}\""},
    {"crop-pct", {}, "--recipe \"crop-share={}\""},
    {"aa auto-augment", {}, "--recipe \"auto-augment={}\""},
    {"ra-magnitude", {}, "--recipe \"auto-augment=ra-m{}\""},
    {"reprob random-erase", {}, "--recipe \"random-erase={}\""},
    {"norm-weight-decay", {}, "--recipe \"norm-decay=X\", a multiple of --weight-decay"},
    {"bias-weight-decay", {}, "--recipe \"bias-decay=X\", a multiple of --weight-decay"},
    {"bce-loss", {}, "--recipe \"bce-loss=yes\""},
    {"bce-sum bce-target-thresh", {}, "a word of --recipe, by the same name"},
    {"mixup mixup-alpha", {}, "--recipe \"mixup={}\""},
    {"cutmix cutmix-alpha", {}, "--recipe \"cutmix={}\""},
    {"mixup-prob mixup-switch-prob mixup-mode", {}, "a word of --recipe, by the same name"},
    {"aug-repeats ra-reps", {}, "--recipe \"aug-repeats={}\""},
    {"ra-sampler", {}, "--recipe \"aug-repeats=3\""},
    {"tta", {}, "--recipe \"views=flip\""},
    {"remode", {}, "--recipe \"random-erase=X erase-value=0\", one value of the normalised image"},
    {"pretrained weights", {}, "--init-from FILE, which scripts/get_weights.sh NAME fetches"},
    {"model-ema", {}, "--ema X, the decay, such as 0.9998"},
    {"model-ema-decay", {}, "--ema {}"},
    {"checkpoint-hist", {}, "--keep {}, of the newest ones"},
    {"eval-metric", {}, "--keep-best {}, which may be top1, top5 or loss"},
    {"output-dir default-root-dir", {}, "--checkpoint-dir {}"},
    {"resume-from-checkpoint ckpt-path", {}, "--resume auto or FILE"},
    {"dataset", {}, "--data images:DIR, tfrecord:DIR, ...; train --help has all"},
    {"data-dir data-path train-dir",
     {},
     "--data images:{}, a folder with train/ and val/ or the like"},
    {"nproc-per-node np world-size num-gpus gpus devices num-processes", {}, start_ranks},
    {"standalone", {}, "--ranks N, which starts N ranks on this machine"},
    {"nnodes num-nodes",
     {},
     "mpirun -np N --host A,B train ... (docs/guide/multi-node.md), or --emit-sbatch nodes={}"},
    {"max-restarts", {}, "--restarts {}, with scripts/supervise before mpirun"},
    {"fast-dev-run", {}, "--steps 1, or --doctor, which trains nothing"},
    {"start-timeline timeline-filename", {}, "--timeline {}"},
    {"fp16-allreduce", {}, "--gradient-dtype fp16"},

    {"drop-path", {}, {}, "stochastic depth is a layer of the network (--print-model)"},
    {"drop dropout", {}, {}, "dropout is a layer of the network (--print-model)"},
    {"log-wandb report-to", {}, {}, "--metrics FILE.jsonl and --tensorboard DIR write files"},
    {"channels-last", {}, {}, "each device has its own layout; leave it out"},
    {"torchcompile compile", {}, {}, "every network is compiled; leave it out"},
    {"strategy variable-update", {}, {}, "training is data-parallel with all-reduce; leave it out"},
    {"rdzv-backend rdzv-endpoint rdzv-id node-rank local-rank master-addr master-port dist-url "
     "dist-backend",
     {},
     {},
     "mpirun brings the ranks together; leave it out"},
    {"do-train", {}, {}, "train does that; leave it out"},
    {"do-eval", {}, {}, "each epoch ends with an evaluation (--eval-every); leave it out"},
});

struct ForeignValue {
  std::string_view option;
  std::string_view values;  // in lower case, separated by blanks
  std::string_view say;
};

constexpr std::array foreign_values = std::to_array<ForeignValue>({
    {"optimizer", "adam_w adam-w", "say adamw"},
    {"optimizer", "sgd_nesterov sgd-nesterov nag", "say nesterov"},
    {"optimizer", "sgd_momentum sgd-momentum", "say momentum"},
    {"lr-schedule", "cosineannealinglr cosineannealing cosine_annealing", "say cosine"},
    {"lr-schedule", "steplr", "say step:EPOCHS:FACTOR"},
    {"lr-schedule", "multisteplr multi-step multi_step", "say multistep:EPOCH,EPOCH,...:FACTOR"},
    {"lr-schedule", "onecyclelr one-cycle one_cycle", "say onecycle"},
    {"lr-schedule", "linearlr", "say linear:FLOOR"},
    {"lr-schedule", "polynomiallr poly", "say polynomial:POWER"},
    {"lr-schedule", "exponentiallr", "say exponential:EPOCHS:FACTOR"},
    {"precision", "amp mixed", "say fp16 or bf16; auto is fp16 on a GPU"},
    {"precision", "16 16-mixed fp16-mixed float16 half", "say fp16"},
    {"precision", "bf16-mixed bf16-true bfloat16", "say bf16"},
    {"precision", "32 32-true float32", "say fp32"},
    {"gradient-dtype", "float16 half", "say fp16"},
    {"gradient-dtype", "bfloat16", "say bf16"},
    {"device", "gpu", "say cuda"},
    {"val-split", "val valid validation test", "it is a share; a folder val/ is found by itself"},
    {"weights", "imagenet1k_v1 imagenet1k_v2 default", "published ones are for --init-from FILE"},
});

bool holds(std::string_view words, std::string_view word) {
  const std::vector<std::string> all = split(words, ' ');
  return std::ranges::find(all, word) != all.end();
}

const ForeignOption* find_foreign(std::string_view name) {
  const auto* found = std::ranges::find_if(
      foreign_options, [&](const ForeignOption& option) { return holds(option.names, name); });
  return found == foreign_options.end() ? nullptr : found;
}

std::string with_value(std::string_view text, std::string_view value) {
  std::string filled;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t gap = std::min(text.find("{}", at), text.size());
    filled += text.substr(at, gap - at);
    if (gap < text.size()) filled += value;
    at = gap + 2;
  }
  return filled;
}

// As the option is called here, where it is dashes that differ or it means the same.
std::string own_name(std::string name, const std::vector<OptionEntry>& table) {
  constexpr std::string_view lightning = "trainer.";
  std::ranges::replace(name, '_', '-');
  if (name.starts_with(lightning)) name.erase(0, lightning.size());
  if (find_option(table, name) != nullptr) return name;
  const ForeignOption* foreign = find_foreign(name);
  return foreign != nullptr ? std::string(foreign->same) : "";
}

std::string own_word(const std::string& word, const std::vector<OptionEntry>& table) {
  if (word.size() > 2 && (word.starts_with("-b") || word.starts_with("-j")) &&
      word.find_first_not_of("0123456789", 2) == word.npos)
    return fmt::format("--{}={}", own_name(word.substr(1, 1), table), word.substr(2));
  const std::size_t dashes = word.starts_with("--") ? 2 : 1;
  const std::size_t end = std::min(word.find('='), word.size());
  if (!word.starts_with('-') || end <= dashes) return word;
  const std::string name = word.substr(dashes, end - dashes);
  if ((dashes == 1) != (name.size() == 1)) return word;
  const std::string own = own_name(name, table);
  return own.empty() ? word : "--" + own + word.substr(end);
}

}  // namespace

std::vector<std::string> in_own_words(std::vector<std::string> words,
                                      const std::vector<OptionEntry>& table) {
  for (std::string& word : words) word = own_word(word, table);
  return words;
}

std::string foreign_option(std::string name, std::string_view value) {
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
  std::ranges::replace(name, '_', '-');
  if (name.starts_with("trainer.")) name.erase(0, name.find('.') + 1);
  const ForeignOption* foreign = find_foreign(name);
  if (foreign == nullptr) return "";
  if (foreign->say.empty()) return fmt::format("ringtrain does not have it: {}", foreign->absent);
  return "in ringtrain it is " + with_value(foreign->say, value.empty() ? "X" : value);
}

std::string foreign_value(std::string_view option, std::string value) {
  const std::string as_typed = brief(value);
  const auto lower = [](unsigned char c) { return static_cast<char>(std::tolower(c)); };
  std::ranges::transform(value, value.begin(), lower);
  if (option == "device" && value.starts_with("cuda:"))
    return "; say cuda: each rank takes a GPU of its own, of those in CUDA_VISIBLE_DEVICES";
  if (option == "output") return "; checkpoints go to --checkpoint-dir " + as_typed;
  for (const ForeignValue& foreign : foreign_values)
    if (foreign.option == option && holds(foreign.values, value))
      return fmt::format("; {}", foreign.say);
  return "";
}

std::vector<std::string> foreign_texts() {
  std::vector<std::string> texts;
  for (const ForeignOption& foreign : foreign_options)
    texts.push_back(foreign.same.empty() ? fmt::format("{}{}", foreign.say, foreign.absent)
                                         : fmt::format("--{}", foreign.same));
  for (const ForeignValue& foreign : foreign_values) texts.emplace_back(foreign.say);
  return texts;
}

}  // namespace ringtrain::config
