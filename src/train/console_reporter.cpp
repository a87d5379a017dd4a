#include <fmt/core.h>

#include "train/reporter.hpp"

namespace ringtrain {

void Reporter::event(const std::string&, const std::string& text) { note(text); }

namespace {

class ConsoleReporter final : public Reporter {
 public:
  void note(const std::string& text) override {
    fmt::print("{}\n", text);
    std::fflush(stdout);
  }
  void start(const Plan& plan, const std::string&) override {
    steps_ = plan.steps;
    batch_ = plan.global_batch;
  }
  void step(const StepReport& r) override {
    since_ += r.seconds;
    ++count_;
    if (r.position.step % 50 && r.position.step != steps_) return;
    const StepSeconds& s = r.phases;
    fmt::print(
        "step {}, loss = {:.4f} top1 {:.3f} ({:.1f} examples/s) lr {:.4f} | wait {:.2f} fwd {:.2f} "
        "bwd {:.2f} exposed {:.2f} update {:.2f} ckpt {:.2f} ms\n",
        r.position.step, r.loss, r.top1, count_ * batch_ / since_, r.learning_rate,
        s.data_wait * 1e3, s.forward * 1e3, s.backward * 1e3, s.exposed * 1e3, s.update * 1e3,
        r.checkpoint_s * 1e3);
    std::fflush(stdout);
    since_ = 0;
    count_ = 0;
  }
  void save(const SaveEvent& e) override {
    note(fmt::format("checkpoint {} {} {} bytes {:.3f} s {}", int(e.kind), e.file, e.bytes,
                     e.seconds, e.text));
  }
  void evaluation(std::uint64_t step, const Evaluation& e) override {
    note(fmt::format("step {}: top1 {:.4f} top5 {:.4f} loss {:.4f}, {} examples in {:.2f} s", step,
                     e.top1, e.top5, e.loss, e.examples, e.seconds));
  }

 private:
  std::uint64_t steps_ = 0;
  double since_ = 0;
  int count_ = 0, batch_ = 0;
};

}  // namespace

std::unique_ptr<Reporter> make_console_reporter(const Options&, const MpiSession&) {
  return std::make_unique<ConsoleReporter>();
}

}  // namespace ringtrain
