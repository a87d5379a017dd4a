// Where the time of a training step goes on this host's CPUs, by kind of step: the best of all
// runs, and how near it is to its floor, the larger of its arithmetic at the rate of a large matrix
// product and of its bytes at the rate of a copy, both measured here. Winograd convolutions may go
// below it: they multiply less. usage: step_bench [MODEL [BATCH [RUNS [fp32|bf16 [each]]]]]; `each`
// lists every step. OMP_NUM_THREADS sets the threads.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <dnnl.hpp>
#include <map>
#include <numeric>

#include "compute/onednn/program.hpp"
#include "ringtrain/base/clock.hpp"
#include "ringtrain/model/passes.hpp"
#include "ringtrain/model/zoo.hpp"
#include "support/random_batch.hpp"

using namespace ringtrain;

namespace {

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

// What this host does in a second, with the threads of OpenMP.
struct Rates {
  double flops, bytes;
};

template <class F>
double fastest(int times, F f) {
  double best = 1e30;
  for (int i = 0; i < times; ++i) {
    const Stopwatch watch;
    f();
    best = std::min(best, watch.elapsed());
  }
  return best;
}

Rates measure_rates(Element element) {
  using dnnl::memory;
  constexpr memory::dim size = 1024;
  const auto type = element == Element::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const memory::desc desc({size, size}, type, memory::format_tag::ab);
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc product(engine, desc, desc, desc);
#else
  const dnnl::matmul::primitive_desc product(dnnl::matmul::desc(desc, desc, desc), engine);
#endif
  const memory a(desc, engine), b(desc, engine), c(desc, engine);
  for (const memory& m : {a, b, c}) std::memset(m.get_data_handle(), 0, desc.get_size());
  const dnnl::matmul multiply(product);
  const double product_s = fastest(10, [&] {
    multiply.execute(stream, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
    stream.wait();
  });

  std::vector<float> from(std::size_t{32} << 20, 1.f), to(from.size());
  const double copy_s = fastest(5, [&] {
#pragma omp parallel for schedule(static)
    for (std::size_t i = 0; i < from.size(); i += 4096)
      std::memcpy(&to[i], &from[i], 4096 * sizeof(float));
  });
  return {2. * size * size * size / product_s, 2. * double(from.size() * sizeof(float)) / copy_s};
}

// The multiplications and additions of a convolution or matrix product without tricks.
double flops_of(const compute::Schedule& schedule, const compute::Step& step) {
  return std::visit(
      [&](const auto& kind) -> double {
        if constexpr (requires { kind.window, kind.w; }) {
          const compute::TensorId id = [&] {
            if constexpr (requires { kind.y; })
              return kind.y;
            else
              return kind.dy;
          }();
          const compute::Shape& results = schedule.tensors[id];
          return 2. * double(kind.w.count) * results.batch * results.height * results.width;
        } else if constexpr (requires { kind.w; }) {
          return 2. * double(kind.w.count) * schedule.batch;
        } else {
          return 0;
        }
      },
      step);
}

double bytes_of(const compute::Schedule& schedule, const compute::Step& step, Element element) {
  double bytes = 0;
  compute::for_each_tensor(step, [&](compute::TensorId id, compute::Access) {
    bytes += double(schedule.tensors[id].elements()) * double(ringtrain::bytes_of(element));
  });
  std::visit(
      [&](const auto& kind) {
        if constexpr (requires { kind.w; }) bytes += sizeof(float) * double(kind.w.count);
      },
      step);
  return bytes;
}

// "ConvolutionForward 3x3" or "... 3x3/2".
std::string kind_of(const compute::Step& step) {
  return std::visit(
      [&](const auto& kind) -> std::string {
        if constexpr (requires { kind.window, kind.w; }) {
          const compute::Window& w = kind.window;
          return fmt::format("{} {}x{}{}", compute::name_of(step), w.height, w.width,
                             w.stride_y > 1 ? fmt::format("/{}", w.stride_y) : "");
        } else {
          return compute::name_of(step);
        }
      },
      step);
}

void print_kinds(const compute::Schedule& schedule, Element element,
                 const std::vector<std::vector<double>>& seconds) {
  struct Kind {
    double seconds = 0, floor = 0;
  };
  const Rates rates = measure_rates(element);
  fmt::print("floors: {:.0f} GFLOP/s, {:.1f} GB/s\n", rates.flops / 1e9, rates.bytes / 1e9);
  std::map<std::string, Kind> kinds;
  double total = 0;
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const compute::Step& step = schedule.steps[s];
    Kind& kind = kinds[kind_of(step)];
    const double best = *std::ranges::min_element(seconds[s]);
    kind.seconds += best;
    kind.floor += std::max(flops_of(schedule, step) / rates.flops,
                           bytes_of(schedule, step, element) / rates.bytes);
    total += best;
  }
  std::vector<std::pair<std::string, Kind>> sorted(kinds.begin(), kinds.end());
  std::ranges::sort(sorted, std::greater{}, [](const auto& k) { return k.second.seconds; });
  for (const auto& [name, kind] : sorted)
    fmt::print("{:32} {:9.3f} ms {:5.1f} %  floor {:9.3f} ms, {:5.2f} times it\n", name,
               1e3 * kind.seconds, 100 * kind.seconds / total, 1e3 * kind.floor,
               kind.seconds / kind.floor);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "cifar10_cnn";
  const int batch = argc > 2 ? std::stoi(argv[2]) : 128, steps = argc > 3 ? std::stoi(argv[3]) : 20;
  const model::Graph graph = model::make_model(name).graph;
  const bool bf16 = argc > 4 && std::string(argv[4]) == "bf16";
  const auto backend = compute::make_onednn_backend(nullptr, bf16 ? Element::bf16 : Element::fp32);
  const auto supports = [&](const compute::Schedule& at, const compute::Step& step) {
    return backend->supports(at, step);
  };
  const compute::Schedule schedule =
      model::make_schedule(graph, batch, model::Mode::training, 0, supports);
  Buffer parameters = backend->memory().allocate(schedule.parameters),
         gradients = backend->memory().allocate(schedule.parameters),
         statistics = backend->memory().allocate(schedule.statistics),
         batch_statistics = backend->memory().allocate(schedule.statistics);
  model::initialise(graph, 1, parameters.view().host(), statistics.view().host());
  const auto program =
      backend->compile(schedule, {parameters, gradients, statistics, batch_statistics}, 1);
  const auto& onednn = dynamic_cast<const compute::onednn::OnednnProgram&>(*program);
  const Batch data = random_batch(schedule.tensors[0]);

  std::vector<std::vector<double>> seconds(schedule.steps.size());
  std::vector<double> whole, cpu;
  for (int s = -3; s < steps; ++s) {
    const std::clock_t begin = std::clock();
    program->run(data, 1.0 / batch, nullptr);
    if (s < 0) continue;
    cpu.push_back(double(std::clock() - begin) / CLOCKS_PER_SEC);
    for (std::size_t i = 0; i < seconds.size(); ++i) seconds[i].push_back(onednn.step_seconds()[i]);
    whole.push_back(
        std::accumulate(onednn.step_seconds().begin(), onednn.step_seconds().end(), 0.0));
  }
  fmt::print(
      "{} batch {}: median {:.2f} ms, best {:.2f} ms, cpu {:.2f} ms, {:.0f} examples/s, {:.1f} "
      "MiB\n",
      name, batch, 1e3 * median(whole), 1e3 * *std::ranges::min_element(whole), 1e3 * median(cpu),
      batch / median(whole), double(program->bytes()) / (1 << 20));
  print_kinds(schedule, bf16 ? Element::bf16 : Element::fp32, seconds);
  if (argc > 5)
    for (std::size_t i = 0; i < seconds.size(); ++i)
      fmt::print("{:4} {:32} {:9.3f} ms\n", i, kind_of(schedule.steps[i]),
                 1e3 * median(seconds[i]));
  std::map<std::string, int> kernels;
  for (const std::string& kernel : onednn.implementations()) ++kernels[kernel];
  for (const auto& [kernel, count] : kernels) fmt::print("{:3} x {}\n", count, kernel);
}
