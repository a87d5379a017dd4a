#include "train/plan/run_plan.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <thread>
#include <utility>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/program.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/compute/backend.hpp"
#include "ringtrain/config/option_values.hpp"
#include "ringtrain/model/model_file.hpp"
#include "train/plan/data_plan.hpp"
#include "train/plan/model_source.hpp"
#include "train/plan/optimizer_settings.hpp"

namespace ringtrain::train {
namespace {

// The options left open, from the recipe.
void complete(config::Options& o, const model::Model& model) {
  const model::Recipe& recipe = model.recipe;
  o.classes = model.classes;
  if (!o.optimizer) o.optimizer = config::enumerator<optim::OptimizerKind>().read(recipe.optimizer);
  if (!o.lr_schedule) o.lr_schedule = optim::parse_decay(recipe.schedule);
  const bool warms_up = o.lr_schedule->warms_up();
  if (!o.warmup_epochs) o.warmup_epochs = warms_up ? 0 : recipe.warmup_epochs;
  if (warms_up && *o.warmup_epochs > 0)
    throw Error(Exit::usage, "--warmup-epochs",
                "is not for --lr-schedule onecycle or piecewise, which begin as they say");
  if (!o.weight_decay) o.weight_decay = recipe.weight_decay;
  if (!o.label_smoothing) o.label_smoothing = recipe.label_smoothing;
  if (!o.ema) o.ema = recipe.ema;
  if (!o.clip_grad && recipe.clip_grad > 0) o.clip_grad = recipe.clip_grad;
  if (!o.bucket_mb) o.bucket_mb = 0.5;
  if (!o.check_every) o.check_every = 100;
}

// Likewise of some parameters. A training that goes on has those of its checkpoint.
void complete_by_name(config::Options& o, const model::Recipe& recipe) {
  if (o.eval_only) return;
  const auto factors = config::name_factors();
  if (o.factors.lr.empty() && !recipe.lr_factor.empty())
    o.factors.lr = factors.read(recipe.lr_factor);
  if (o.factors.decay.empty() && !recipe.decay_factor.empty())
    o.factors.decay = factors.read(recipe.decay_factor);
  if (o.freeze.empty()) o.freeze = recipe.freeze;
}

double usual_rate(const model::Recipe& recipe, double global_batch) {
  return recipe.learning_rate_batch == 0
             ? recipe.learning_rate
             : recipe.learning_rate * global_batch / recipe.learning_rate_batch;
}

// Adam's rate grows with the root of the batch, and Lion's is taken to.
double grown(optim::OptimizerKind kind, double learning_rate, double times) {
  const bool adam = kind == optim::OptimizerKind::adam || compute::decouples_decay(kind);
  return learning_rate * (adam ? std::sqrt(times) : times);
}

int most_on_a_rank(std::int64_t batch, int ranks) {
  return static_cast<int>((batch + ranks - 1) / ranks);
}

// Into so many micro-steps that no rank has more than `most` images at a time. Where nothing
// divides like that, into as many as leave each rank an image.
int micro_steps(std::int64_t global, int ranks, int least, int most) {
  int found = least;
  for (int k = least; global / k >= ranks; ++k) {
    if (global % k != 0) continue;
    found = k;
    if (most_on_a_rank(global / k, ranks) <= most) break;
  }
  return found;
}

// From here on, options say what is done.
void act_as(int ranks, RunPlan& plan, const Tell& tell) {
  config::Options& o = plan.options;
  const int before = most_on_a_rank(plan.global_batch / o.accumulate, ranks);
  o.batch.reset();
  o.global_batch = plan.global_batch;
  o.accumulate = micro_steps(plan.global_batch, plan.ranks, o.accumulate, before);
  const int now = most_on_a_rank(plan.global_batch / o.accumulate, plan.ranks);
  tell(fmt::format(
      "as {} ranks: {} images a step, {} times {} or less on a rank{}", ranks, plan.global_batch,
      o.accumulate, now,
      now > before ? fmt::format("; no division leaves it the {} of before", before) : ""));
}

std::vector<int> equal_shares(int samples, int ranks) {
  std::vector<int> shares;
  for (int rank = 0; rank < ranks; ++rank)
    shares.push_back(io::share_of(samples, rank, ranks).count);
  return shares;
}

// The recipe's. Few images to predict have a smaller one, the same for any number of ranks.
int usual_batch(const RunPlan& plan) {
  const auto batch = static_cast<std::uint64_t>(plan.model.recipe.batch);
  if (!plan.options.predicts()) return plan.model.recipe.batch;
  return static_cast<int>(std::min(batch, std::bit_ceil(plan.evaluation->size())));
}

// Fills batch sizes in and checks that every rank gets work.
void share_work(RunPlan& plan, int rank, const Tell& tell) {
  config::Options& o = plan.options;
  if (!o.batch && !o.global_batch) o.batch = usual_batch(plan);
  const std::int64_t global =
      o.global_batch ? *o.global_batch
                     : std::int64_t{*o.batch} * o.as_ranks.value_or(plan.ranks) * o.accumulate;
  if (global > most_samples)
    throw Error(
        Exit::usage, "batch size",
        fmt::format("{} images in one step are more than the 100,000,000 that fit", global));
  plan.global_batch = static_cast<int>(global);
  if (plan.global_batch % o.accumulate != 0)
    throw Error(Exit::usage, fmt::format("--global-batch {}", plan.global_batch),
                fmt::format("is not a multiple of --accumulate {}", o.accumulate));
  if (o.as_ranks && *o.as_ranks != plan.ranks) act_as(*o.as_ranks, plan, tell);
  plan.micro_batch = plan.global_batch / o.accumulate;
  if (plan.micro_batch < plan.ranks)
    throw Error(Exit::usage, fmt::format("--global-batch {}", plan.global_batch),
                fmt::format("gives {} ranks less than one image a step each; use at least {}",
                            plan.ranks, std::int64_t{plan.ranks} * o.accumulate));
  plan.take_shares(equal_shares(plan.micro_batch, plan.ranks), rank);
  if (plan.training) io::check_enough(*plan.training, plan.global_batch);
}

void set_length(RunPlan& plan) {
  if (!plan.training) return;
  const config::Options& o = plan.options;
  const auto size = static_cast<double>(plan.training->size());
  if (o.steps)
    plan.epochs = double(*o.steps) * plan.global_batch / size;
  else
    plan.epochs = o.epochs ? *o.epochs : plan.model.recipe.epochs;
  constexpr double most = 65'535;  // dropout's random numbers are keyed by 16 bits of epoch
  if (plan.epochs > most)
    throw Error(Exit::usage, "length of training",
                fmt::format("{:.0f} epochs of {} images are more than the {:.0f} that there can be",
                            plan.epochs, plan.training->size(), most));
}

// Whose classes are too few for `data`, and what to do. `given`: by --classes.
Error too_few_classes(const RunPlan& plan, std::optional<int> given,
                      const std::optional<SavedNetwork>& saved, const io::Dataset& data) {
  const config::Options& o = plan.options;
  const int classes = plan.model.classes;
  const std::string has = fmt::format("{} has {} classes", data.description(), data.classes());
  if (given) return Error(Exit::data, fmt::format("--classes {}", *given), "but " + has);
  if (plan.training && plan.training->classes() == classes)
    return Error(
        Exit::data, "--val-data " + printable(o.val_data),
        fmt::format("{}, but --data has {}: give a set of the same classes", has, classes));
  return Error(
      Exit::data, saved ? brief(saved->checkpoint) : "model " + plan.model.name,
      fmt::format("its network has {} classes, but {}: give data of the classes that it learned{}",
                  classes, has,
                  o.eval_only ? "" : ", or start another training from it by --init-from"));
}

void check_classes(const RunPlan& plan, std::optional<int> given,
                   const std::optional<SavedNetwork>& saved) {
  for (const io::Dataset* data : {plan.training.get(), plan.evaluation.get()})
    if (data != nullptr && data->classes() > plan.model.classes)
      throw too_few_classes(plan, given, saved, *data);
}

// Rounded: 9.74848 epochs of 50,000 images are 476 batches of 1,024, and not a bit more.
double samples_wanted(const RunPlan& plan) {
  return std::round(plan.epochs * double(plan.training->size()));
}

}  // namespace

bool RunPlan::shares_are_equal() const { return shares == equal_shares(micro_batch, ranks); }

void RunPlan::take_shares(std::vector<int> all, int rank) {
  expects(static_cast<int>(all.size()) == ranks && std::ranges::min(all) > 0 &&
              std::accumulate(all.begin(), all.end(), 0) == micro_batch,
          "Plan: a share of the micro-step for each rank");
  shares = std::move(all);
  share = {std::accumulate(shares.begin(), shares.begin() + rank, 0), shares[rank]};
}

bool RunPlan::done(const Position& position) const {
  if (options.steps) return position.step >= static_cast<std::uint64_t>(*options.steps);
  return double(position.samples) >= samples_wanted(*this);
}

std::uint64_t RunPlan::last_step(const Position& position) const {
  if (!training) return position.step;
  if (options.steps) return static_cast<std::uint64_t>(*options.steps);
  const double left = samples_wanted(*this) - double(position.samples);
  return position.step + static_cast<std::uint64_t>(std::ceil(std::max(left, 0.0) / global_batch));
}

bool RunPlan::evaluation_due(const Position& position) const {
  if (!evaluation || options.eval_every == 0) return false;
  if (position.samples < static_cast<std::uint64_t>(global_batch)) return false;
  const auto every = training->size() * static_cast<std::uint64_t>(options.eval_every);
  return position.samples / every != (position.samples - global_batch) / every;
}

StepSettings RunPlan::trainer() const {
  return {options.accumulate, micro_batch,   share.count,
          training->size(),   learning_rate, options.on_nan == config::OnNan::skip};
}

bool RunPlan::counts_updates() const {
  const bool adam =
      optimizer.kind == optim::OptimizerKind::adam || optimizer.kind == optim::OptimizerKind::adamw;
  return adam || optimizer.ema > 0;
}

std::size_t RunPlan::bucket_bytes() const {
  return static_cast<std::size_t>(*options.bucket_mb * (1 << 20));
}

void RunPlan::set_gradient_format(Element element, const allreduce::Compression& compression) {
  options.gradient_dtype = element;
  options.compress = compression;
  if (usual_bucket && options.device == config::Device::cuda)
    options.bucket_mb = usual_gpu_bucket_mb(hosts, bool(compression));
}

double usual_gpu_bucket_mb(int hosts, bool compresses) { return hosts == 1 || compresses ? 4 : 16; }

double RunPlan::gradient_bytes(const Range& gradients) const {
  // On one host of CPUs they are summed where they are.
  const bool travel = options.device == config::Device::cuda || hosts > 1;
  const Element element = travel ? options.gradient_dtype : Element::fp32;
  if (!compresses()) return double(gradients.count) * double(bytes_of(element));
  std::vector<allreduce::GradientMatrix> matrices = gradient_matrices(model.graph);
  std::erase_if(matrices, [&](const allreduce::GradientMatrix& matrix) {
    return matrix.first < gradients.first || matrix.first >= gradients.end();
  });
  return allreduce::travelling_numbers(options.compress, matrices, hosts) * sizeof(float);
}

double RunPlan::sum_bytes() const {
  return gradient_bytes({0, model.graph.learning_count()}) +
         double(model.graph.moving_count() * sizeof(float));
}

double RunPlan::learning_rate_of_batch(double times) const {
  const model::Recipe& recipe = model.recipe;
  if (recipe.learning_rate_batch == 0 && *options.lr == recipe.learning_rate)
    times = std::min(times, std::max(1., times * global_batch / recipe.batch));
  return grown(optimizer.kind, *options.lr, times);
}

std::optional<double> RunPlan::recipe_rate_of_batch(double times) const {
  const model::Recipe& recipe = model.recipe;
  if (*options.optimizer != config::enumerator<optim::OptimizerKind>().read(recipe.optimizer))
    return std::nullopt;
  const double images = times * global_batch;
  return grown(optimizer.kind, recipe.learning_rate,
               recipe.learning_rate_batch > 0 ? images / recipe.learning_rate_batch
                                              : std::max(1., images / recipe.batch));
}

io::LoaderOptions RunPlan::loader(io::Split split) const {
  io::LoaderOptions o;
  o.mode = split;
  o.seed = options.seed;
  o.balance = options.balance && split == io::Split::training;
  o.global_batch = micro_batch;
  o.share = share;
  o.micro_steps = options.accumulate;
  o.threads = data_threads;
  o.augmentation = split == io::Split::training ? augmentation : evaluated;
  o.channels = model.input.channels;
  return o;
}

io::LoaderOptions RunPlan::lone_loader() const {
  io::LoaderOptions o = loader(io::Split::training);
  o.global_batch = share.count;
  o.share = {0, share.count};
  o.micro_steps = 1;
  return o;
}

void check_cpu_precision(config::Precision precision) {
  if (precision == config::Precision::fp16)
    throw Error(Exit::usage, "--precision fp16",
                "is for GPUs, but this run computes on CPUs; leave it out, or say bf16 or fp32");
  if (precision == config::Precision::bf16 && !compute::cpu_trains_in(Element::bf16))
    throw Error(Exit::usage, "--precision bf16",
                "this CPU has neither AVX512_BF16 nor AMX; leave it out or say fp32");
}

namespace {

void check_device(const config::Options& o) {
  const bool gpu = o.device == config::Device::cuda, nccl = o.allreduce == config::Allreduce::nccl;
  if (!gpu && nccl)
    throw Error(Exit::usage, "--allreduce nccl",
                "sums between GPUs, but this run computes on CPUs; leave it out or say ring");
  if (gpu && !nccl && o.allreduce != config::Allreduce::automatic)
    throw Error(Exit::usage,
                "--allreduce " + config::enumerator<config::Allreduce>().write(o.allreduce),
                "sums between CPUs, but this run computes on GPUs; leave it out or say nccl");
  if (nccl && o.compress)
    throw Error(Exit::usage, "--compress with --allreduce nccl",
                "CPUs compress gradients and sum them by our ring; leave one of them out");
  if (o.nccl_register && o.deterministic)
    throw Error(Exit::usage, "--nccl-register with --deterministic",
                "registered buffers let NCCL sum inside switches, in another order each time; "
                "leave one of them out");
  if (!gpu) check_cpu_precision(o.precision);
}

void check_sharding(const config::Options& o, int ranks) {
  if (!o.shard_optimizer || o.eval_only) return;
  if (*o.optimizer == optim::OptimizerKind::lars)
    throw Error(
        Exit::usage, "--shard-optimizer with --optimizer lars",
        "a tensor's rate needs all of its gradient, of which a rank has a part; leave one of "
        "them out");
  if (o.clip_grad.value_or(0) > 0 && ranks > 1)
    throw Error(Exit::usage, "--shard-optimizer with --clip-grad",
                "a rank updates its part of the parameters before the norm of all gradients is "
                "known; leave one of them out");
  if (!o.freeze.empty() && o.device == config::Device::cuda && ranks > 1)
    throw Error(Exit::usage, "--shard-optimizer with --freeze " + printable(o.freeze),
                "is not there yet for GPUs; leave --shard-optimizer out: what is frozen has no "
                "state to share");
}

}  // namespace

namespace {

void check_channels(const model::Model& model) {
  const int channels = model.input.channels;
  if (channels != 1 && channels != 3 && channels != 4)
    throw Error(Exit::usage, "model " + model.name,
                fmt::format("its image has {} channels; data sets have images of 3, of 1 as grey "
                            "levels, or of 4 with opacity",
                            channels));
  if (channels == 4 && model.recipe.jitters_colors())
    throw Error(Exit::usage, "model " + model.name,
                "its recipe jitters colours, which would change the opacity of its images of 4 "
                "channels; leave brightness, hue, contrast and saturation out");
}

}  // namespace

namespace {

// Of the checkpoint that goes on, unless the user says the same. One of another network is refused
// later, by that.
void keep_frozen(config::Options& o, const model::Graph& graph,
                 const std::optional<SavedNetwork>& saved) {
  if (!saved || !saved->goes_on || o.eval_only || saved->hash != graph.structure_hash()) return;
  if (o.freeze.empty()) o.freeze = saved->frozen;
  if (o.freeze == saved->frozen) return;
  throw Error(
      Exit::usage, "--freeze " + printable(o.freeze),
      fmt::format(
          "{} goes on with {}: leave --freeze out; to train other parts, start another "
          "training from it by --init-from",
          brief(saved->checkpoint),
          saved->frozen.empty() ? "nothing frozen" : "--freeze " + printable(saved->frozen)));
}

// Of the checkpoint that goes on, unless the user says others.
void keep_factors(config::Options& o, const model::Graph& graph,
                  const std::optional<SavedNetwork>& saved, const Tell& tell) {
  if (!saved || !saved->goes_on || o.eval_only || saved->hash != graph.structure_hash()) return;
  config::Factors& own = o.factors;
  config::Factors kept;
  if (own.lr.empty()) own.lr = kept.lr = saved->factors.lr;
  if (own.decay.empty()) own.decay = kept.decay = saved->factors.decay;
  if (!own.head_lr) own.head_lr = kept.head_lr = saved->factors.head_lr;
  if (!own.layer_decay) own.layer_decay = kept.layer_decay = saved->factors.layer_decay;
  if (kept != config::Factors()) tell(config::factors_text(kept) + ", as in the checkpoint");
}

// In all sizes of the network, as they share their parameters.
void freeze(RunPlan& plan) {
  if (plan.options.freeze.empty() || plan.options.eval_only) return;
  model::freeze(plan.model.graph, plan.options.freeze);
  for (std::optional<model::Graph>* graph : {&plan.training_graph, &plan.evaluation_graph})
    if (*graph) model::freeze(**graph, plan.options.freeze);
}

}  // namespace

RunPlan make_run_plan(const config::Options& options, int cpus, int rank, int ranks,
                      const Tell& tell, WorkProgress* progress,
                      const std::optional<SavedNetwork>& saved) {
  check_device(options);
  RunPlan plan;
  plan.options = options;
  plan.ranks = ranks;
  if (options.eval_only) {  // needs no optimizer's slots, and no average but the checkpoint's
    plan.options.optimizer = optim::OptimizerKind::sgd;
    plan.options.ema = 0;
    plan.options.factors = {};
  }
  plan.data_threads = options.data_threads.value_or(cpus);
  if (!options.model_file.empty()) at(progress, Work::open, options.model_file);
  const ModelSource source(options, saved);
  open_data(plan, {source, saved, tell, progress});
  at(progress, Work::plan, options.model.empty() ? source.place() : options.model);
  plan.model = source.make(plan.data().classes());
  plan.options.model = source.identity(plan.model);
  plan.network = model::canonical(source.text(plan.model));
  complete(plan.options, plan.model);
  keep_frozen(plan.options, plan.model.graph, saved);
  keep_factors(plan.options, plan.model.graph, saved, tell);
  plan.goes_on = saved && saved->goes_on;
  if (!plan.goes_on) complete_by_name(plan.options, plan.model.recipe);
  check_sharding(plan.options, ranks);
  check_classes(plan, options.classes, saved);
  check_channels(plan.model);
  plan_classes(plan, tell);
  share_work(plan, rank, tell);
  set_length(plan);

  const model::Recipe& recipe = plan.model.recipe;
  if (!plan.options.lr) plan.options.lr = usual_rate(recipe, plan.global_batch);
  plan_images(plan);
  freeze(plan);
  plan.optimizer =
      optimizer_settings(plan.options, plan.model, double(plan.last_step({})), plan.epochs);
  plan.learning_rate = {*plan.options.lr, *plan.options.lr_schedule, *plan.options.warmup_epochs,
                        plan.epochs, recipe.warmup_factor};
  plan.keeps_skipped =
      plan.goes_on && saved->counts_skipped && plan.counts_updates() && !plan.options.eval_only;
  return plan;
}

config::Options with_recipe(const config::Options& options, const model::Model& model, int ranks) {
  const model::Recipe& recipe = model.recipe;
  config::Options o = options;
  complete(o, model);
  complete_by_name(o, recipe);
  o.classes = options.classes;      // of the data, which nobody has opened
  o.bucket_mb = options.bucket_mb;  // of the device
  o.check_every = options.check_every;
  if (!o.batch && !o.global_batch) o.batch = recipe.batch;
  const double global = o.global_batch
                            ? *o.global_batch
                            : double(*o.batch) * o.as_ranks.value_or(ranks) * o.accumulate;
  if (!o.lr) o.lr = usual_rate(recipe, global);
  const bool whole = recipe.epochs == std::floor(recipe.epochs);
  if (!o.epochs && !o.steps && whole) o.epochs = static_cast<int>(recipe.epochs);
  return o;
}

RunPlan plan_without_data(const ModelSource& source, const config::Options& options, int ranks,
                          std::optional<int> usual_batch) {
  RunPlan plan;
  plan.options = options;
  plan.ranks = plan.hosts = ranks;
  plan.data_threads =
      options.data_threads.value_or(static_cast<int>(std::thread::hardware_concurrency()));
  plan.model = source.make();
  plan.network = source.text(plan.model);
  complete(plan.options, plan.model);
  plan_images(plan);
  freeze(plan);
  plan.optimizer =
      optimizer_settings(plan.options, plan.model, double(plan.last_step({})), plan.epochs);
  plan.share.count = usual_batch.value_or(plan.model.recipe.batch);
  if (options.global_batch)
    plan.share.count = std::max(1, *options.global_batch / options.accumulate);
  if (options.batch) plan.share.count = *options.batch;
  return plan;
}

std::vector<allreduce::GradientMatrix> gradient_matrices(const model::Graph& graph) {
  std::vector<allreduce::GradientMatrix> matrices;
  std::size_t first = 0;
  for (const model::Parameter& parameter : graph.parameters) {
    if (parameter.frozen) continue;
    const std::size_t count = parameter.count();
    const std::size_t rows = parameter.dims.size() > 1 ? parameter.dims.front() : 1;
    matrices.push_back({first, rows, count / rows});
    first += count;
  }
  return matrices;
}

}  // namespace ringtrain::train
