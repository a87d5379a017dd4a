// Memory rate of an optimizer step against that of a plain a += b on the same threads:
// optimizer_bench [parameters in millions]
#include <fmt/core.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "ringtrain/optim/optimizer.hpp"

using namespace ringtrain;

namespace {

template <class Work>
double seconds(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void add(View a, View b) {
  float* x = a.data();
  const float* y = b.data();
  const auto n = static_cast<std::ptrdiff_t>(a.size());
#pragma omp parallel for simd
  for (std::ptrdiff_t i = 0; i < n; ++i) x[i] += y[i];
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

// Interleaved with the plain sum: this kind of machine changes speed from second to second.
void measure(const char* name, optim::OptimizerKind kind, double ema, std::size_t n, int streams) {
  HostMemory memory;
  const Buffer w = memory.allocate(n), g = memory.allocate(n), other = memory.allocate(n);
  optim::OptimizerSettings settings;
  settings.kind = kind;
  settings.ema = ema;
  settings.weight_decay = 1e-4;
  settings.decays = {{{0, n}, 1}};
  optim::Optimizer optimizer(settings, w, g, memory);
  std::vector<double> update, check, sum;
  for (int step = 0; step < 24; ++step) {
    sum.push_back(seconds([&] { add(other, g); }));
    optimizer.begin({.step = step, .learning_rate = 0.1});
    update.push_back(seconds([&] { optimizer.update({0, n}); }));
    check.push_back(seconds([&] { static_cast<void>(optim::first_non_finite(g)); }));
  }
  const auto rate = [&](const std::vector<double>& times, int of_streams) {
    return static_cast<double>(n) * sizeof(float) * of_streams / median(times) / 1e9;
  };
  fmt::print(
      "{:9} ema {:6} {} threads: {:7.3f} ms, {:5.1f} GB/s; a += b {:5.1f} GB/s; "
      "finite? {:6.3f} ms, {:5.1f} GB/s\n",
      name, ema, omp_get_max_threads(), 1e3 * median(update), rate(update, streams), rate(sum, 3),
      1e3 * median(check), rate(check, 1));
}

}  // namespace

int main(int argc, char** argv) {
  const double millions = argc > 1 ? std::atof(argv[1]) : 25.557;
  const auto n = static_cast<std::size_t>(millions * 1e6);
  for (const int threads : {1, omp_get_num_procs()}) {
    omp_set_num_threads(threads);
    measure("sgd", optim::OptimizerKind::sgd, 0, n, 3);
    measure("sgd", optim::OptimizerKind::sgd, 0.9999, n, 5);
    measure("momentum", optim::OptimizerKind::momentum, 0, n, 5);
    measure("rmsprop", optim::OptimizerKind::rmsprop, 0.9999, n, 9);
    measure("adamw", optim::OptimizerKind::adamw, 0, n, 7);
  }
}
