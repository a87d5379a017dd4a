// evaluation_pixels MODEL DATA OUT: what the network sees in an evaluation of DATA. OUT.u8: images,
// height x width x 3 each; OUT.i32: their labels.
#include <cstdio>
#include <fstream>

#include "train/plan/run_plan.hpp"

using namespace ringtrain;

namespace {

template <class T>
void append(std::ofstream& file, const std::vector<T>& values, std::size_t count) {
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(count * sizeof(T)));
}

config::Options evaluation_of(const char* model, const char* data) {
  config::Options options;
  options.model = model;
  options.data = data;
  options.eval_only = true;
  options.batch = 50;
  return options;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) return 64;
  const train::RunPlan plan = train::make_run_plan(evaluation_of(argv[1], argv[2]), 2, 0, 1);
  io::Loader loader(*plan.evaluation, plan.loader(io::Split::evaluation));
  std::ofstream images(std::string(argv[3]) + ".u8", std::ios::binary);
  std::ofstream labels(std::string(argv[3]) + ".i32", std::ios::binary);
  while (const Batch* batch = loader.next()) {
    std::vector<std::int32_t> filled;
    for (const Sample& sample : batch->samples)
      if (sample.target.label >= 0) filled.push_back(sample.target.label);
    append(images, batch->images, filled.size() * batch->image_bytes());
    append(labels, filled, filled.size());
  }
} catch (const std::exception& failure) {
  std::fprintf(stderr, "evaluation_pixels: %s\n", failure.what());
  return 70;
}
