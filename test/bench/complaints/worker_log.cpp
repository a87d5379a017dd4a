#include "bench/complaints/worker_log.hpp"

#include <fmt/core.h>

#include <chrono>
#include <cmath>

#include "ringtrain/base/error.hpp"
#include "ringtrain/metrics/log_text.hpp"

namespace ringtrain {

WorkerLog::WorkerLog(const train::RunPlan& plan, int worker) : plan_(plan), worker_(worker) {
  if (plan.options.metrics.empty()) return;
  metrics_.open(plan.options.metrics);
  if (!metrics_) throw Error(Exit::storage, "--metrics " + plan.options.metrics, "cannot write");
}

void WorkerLog::step(std::int64_t step, double loss, double seconds) {
  seconds_ += seconds;
  if (step % plan_.options.log_every != 0) return;
  const double batch_s = seconds_ / plan_.options.log_every, rate = plan_.share.count / batch_s;
  seconds_ = 0;
  fmt::print("{}: worker {}, step {}, loss = {:.2f} ({:.1f} examples/sec; {:.3f} sec/batch)\n",
             metrics::timestamp(std::chrono::system_clock::now()), worker_, step, loss, rate,
             batch_s);
  std::fflush(stdout);
  metrics_ << fmt::format(R"({{"kind":"step","step":{},"loss":{},"examples_per_second":{:.6g},)"
                          R"("seconds_per_batch":{:.6g}}})",
                          step, std::isfinite(loss) ? fmt::format("{:.9g}", loss) : "null", rate,
                          batch_s)
           << std::endl;
}

}  // namespace ringtrain
