#include <fmt/core.h>

#include <string>

#include "ringtrain/base/hash.hpp"
#include "support/catch.hpp"
#include "train/plan/run_plan.hpp"
#include "unit/train/temporary_file.hpp"

using namespace ringtrain;
using namespace ringtrain::train;

namespace {

template <class T>
void add(const T& value, Hasher& hasher) {
  hasher.update(std::as_bytes(std::span(&value, 1)));
}

/// All that the first `batches` batches hold, as one number.
std::string hash_of(const io::Dataset& data, const io::LoaderOptions& options, int batches) {
  io::Loader loader(data, options);
  Hasher hasher;
  for (int b = 0; b < batches; ++b) {
    const Batch& batch = *loader.next();
    hasher.update(std::as_bytes(std::span(batch.images)));
    for (const auto& [index, epoch, target, jitter, repeat, erased] : batch.samples) {
      add(index, hasher);
      add(epoch, hasher);
      add(target.label, hasher);
      add(jitter, hasher);
      if (erased.height > 0) add(erased, hasher);
    }
  }
  return hex(hasher.value());
}

/// The plan of a network of 28 x 20 pixels whose model file says so of its images.
RunPlan plan_of(const std::string& images) {
  const TemporaryFile model("model small classes=10\nimages " + images +
                            "\ninput size=28x20\nglobal_pool\n"
                            "fc = matrix_product outputs=$classes\nloss\n");
  config::Options options;
  options.model_file = model.path();
  options.data = "shapes";
  options.batch = 50;
  options.seed = 3;
  return make_run_plan(options, 1, 0, 1);
}

}  // namespace

TEST_CASE("plan: every kind of recipe makes the pixels that it always made") {
  struct Case {
    const char *images, *training, *evaluation;
  };
  const auto [images, training, evaluation] = GENERATE(values<Case>({
      {"crop=none flip=no", "54ee82a764e9b43b", "48bc7cc4bf6a68e7"},
      {"crop=none flip=yes", "517b668804bb56ed", "48bc7cc4bf6a68e7"},
      {"crop=none flip=no pad=4", "1f4afd1f64240bb1", "48bc7cc4bf6a68e7"},
      {"crop=random flip=no", "e18314ddb66976bf", "0d37dfed0f524e99"},
      {"crop=random flip=yes pad=3", "99cfa5e8b055099d", "0d37dfed0f524e99"},
      {"crop=resized flip=no", "83eda7e8cf64c54b", "48bc7cc4bf6a68e7"},
      {"crop=resized flip=yes smallest-area=0.35", "102edc2a56b66d8e", "48bc7cc4bf6a68e7"},
      {"crop=resized flip=yes evaluation=0.875", "a2b22bb28354d731", "a82125296464b3e9"},
      {"crop=resized flip=yes evaluation=0.875 keep-aspect=yes", "a2b22bb28354d731",
       "debeb9e548df0181"},
      {"crop=none flip=yes evaluation=0.875", "9cec79d1fdd3da37", "a82125296464b3e9"},
      {"crop=none flip=yes evaluation=0.875 keep-aspect=yes", "bc9c04c6ac38d4d4",
       "debeb9e548df0181"},
      {"crop=none flip=no pad=4 evaluation=0.875 keep-aspect=yes", "31cb562d0147d9db",
       "debeb9e548df0181"},
      {"crop=none flip=no brightness=63", "7b390ece6292e6ed", "48bc7cc4bf6a68e7"},
      {"crop=none flip=yes contrast=0.2:1.8", "aba5e5fa70ad6e4c", "48bc7cc4bf6a68e7"},
      {"crop=none flip=yes saturation=0.5:1.5", "9c549eeac45f92fa", "48bc7cc4bf6a68e7"},
      {"crop=none flip=yes hue=0.2", "f32c8e5f21842d43", "48bc7cc4bf6a68e7"},
      {"crop=resized flip=yes brightness=32 contrast=0.5:1.5 saturation=0.5:1.5 hue=0.2",
       "3ff2b2828d5100b9", "48bc7cc4bf6a68e7"},
      {"auto-augment=ta_wide", "498716557ab873c9", "48bc7cc4bf6a68e7"},
      {"auto-augment=ra-m15", "890f444da3087418", "48bc7cc4bf6a68e7"},
      {"auto-augment=cifar10 pad=4", "3ea8d2e361fabd29", "48bc7cc4bf6a68e7"},
      {"auto-augment=imagenet crop=resized interpolation=bicubic", "72c1c3583cc79f17",
       "8af86ffef5381ca5"},
      {"auto-augment=rand-m9-mstd0.5-inc1", "322bdc3741300d99", "48bc7cc4bf6a68e7"},
      {"random-erase=0.5", "65abd02b1b6e00c3", "48bc7cc4bf6a68e7"},
      {"random-erase=0.5 erase-area=0.02:0.4 erase-aspect=0.3:1/0.3 erase-spread=even "
       "erase-value=0.4914",
       "760431b962fff24a", "48bc7cc4bf6a68e7"},
  }));
  CAPTURE(images);
  const RunPlan plan = plan_of(images);

  CHECK(hash_of(*plan.training, plan.loader(io::Split::training), 3) == training);
  CHECK(hash_of(*plan.evaluation, plan.loader(io::Split::evaluation), 2) == evaluation);
}
