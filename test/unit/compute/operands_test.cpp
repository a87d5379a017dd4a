// An operation that the backends do not know: what a kind of step may be. It has two outputs, two
// parameter tensors and a place for tokens: batch x tokens x channels.
#include <array>

#include "compute/onednn/plan.hpp"
#include "support/catch.hpp"
#include "support/gradient_check.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;

namespace {

/// y = x * p, z = x + q, by channel.
struct Branch {
  TensorId x, y, z;
  ParameterRange p, q;
  static constexpr const char* name = "Branch";
  static constexpr auto reads = std::tuple(&Branch::x);
  static constexpr auto writes = std::tuple(&Branch::y, &Branch::z);
};
/// dx = dy * p + dz, dp = sum of dy * x, dq = sum of dz.
struct BranchBackward {
  TensorId x, dy, dz, dx;
  ParameterRange p, q;
  static constexpr const char* name = "BranchBackward";
  static constexpr auto reads =
      std::tuple(&BranchBackward::x, &BranchBackward::dy, &BranchBackward::dz);
  static constexpr auto writes = std::tuple(&BranchBackward::dx);
  static constexpr auto gradients = std::tuple(&BranchBackward::p, &BranchBackward::q);
};

constexpr int channels = 12;
constexpr Shape tokens{2, 7, 1, channels};
constexpr ParameterRange p{0, channels}, q{channels, channels};
enum : TensorId { x, y, z, dy, dz, dx, tensors };
constexpr Branch branch{x, y, z, p, q};
constexpr BranchBackward backward{x, dy, dz, dx, p, q};

Schedule schedule() {
  Schedule s;
  s.tensors = std::vector<Shape>(tensors, tokens);
  s.parameters = q.end();
  s.batch = tokens.batch;
  return s;
}

template <class Kind>
std::array<std::size_t, 2> operands(const Kind& step) {
  std::array<std::size_t, 2> count{};
  for_each_operand(step, [&](TensorId, Access access) { ++count[access == Access::write]; });
  return count;
}

}  // namespace

namespace ringtrain::compute::reference {

template <>
void run(const Branch& step, State& s) {
  for (std::size_t i = 0; i < s[step.x].size(); ++i) {
    const std::size_t c = i % s.shape(step.x).channels;
    s[step.y][i] = s[step.x][i] * s.parameters[step.p.first + c];
    s[step.z][i] = s[step.x][i] + s.parameters[step.q.first + c];
  }
}

template <>
void run(const BranchBackward& step, State& s) {
  std::ranges::fill(s.gradients, 0);
  for (std::size_t i = 0; i < s[step.x].size(); ++i) {
    const std::size_t c = i % s.shape(step.x).channels;
    s[step.dx][i] = s[step.dy][i] * s.parameters[step.p.first + c] + s[step.dz][i];
    s.gradients[step.p.first + c] += s[step.dy][i] * s[step.x][i];
    s.gradients[step.q.first + c] += s[step.dz][i];
  }
}

}  // namespace ringtrain::compute::reference

namespace ringtrain::compute::onednn {

template <>
Action plan(const Branch& step, Planner& planner) {
  return [x = planner.tensor(step.x), y = planner.tensor(step.y), z = planner.tensor(step.z),
          p = planner.parameters(step.p), q = planner.parameters(step.q)](const Frame&) {
    for (std::size_t i = 0; i < x.shape.elements(); ++i) {
      const std::size_t c = i % x.shape.channels, at = x.place(i);
      y.as<float>()[at] = x.as<float>()[at] * p[c];
      z.as<float>()[at] = x.as<float>()[at] + q[c];
    }
  };
}

template <>
Action plan(const BranchBackward& step, Planner& planner) {
  return [x = planner.tensor(step.x), dy = planner.tensor(step.dy), dz = planner.tensor(step.dz),
          dx = planner.tensor(step.dx), p = planner.parameters(step.p),
          dp = planner.gradients(step.p), dq = planner.gradients(step.q)](const Frame&) {
    std::fill_n(dp, x.shape.channels, 0.f);
    std::fill_n(dq, x.shape.channels, 0.f);
    for (std::size_t i = 0; i < x.shape.elements(); ++i) {
      const std::size_t c = i % x.shape.channels, at = x.place(i);
      dx.as<float>()[at] = dy.as<float>()[at] * p[c] + dz.as<float>()[at];
      dp[c] += dy.as<float>()[at] * x.as<float>()[at];
      dq[c] += dz.as<float>()[at];
    }
  };
}

}  // namespace ringtrain::compute::onednn

TEST_CASE("operands: a kind of step may have two outputs and two parameter tensors") {
  CHECK(operands(branch) == std::array<std::size_t, 2>{1, 2});
  CHECK(operands(backward) == std::array<std::size_t, 2>{3, 1});

  reference::State s(schedule(), 1);
  for (const TensorId id : {x, dy, dz}) reference::fill_normal(s[id], 10 + id);
  reference::fill_normal(s.parameters, 3);
  const auto forward = [&] { reference::run(branch, s); };
  forward();
  reference::run(backward, s);

  // By one output at a time: the other's gradient is zero.
  for (const auto& [output, gradient, other] : {std::tuple(y, dy, dz), std::tuple(z, dz, dy)}) {
    reference::State one = s;
    std::ranges::fill(one[other], 0);
    const auto forward_of_one = [&] { reference::run(branch, one); };
    reference::run(backward, one);
    const std::vector<double> r = one[gradient], by_x = one[dx], by_parameters = one.gradients;
    check_derivative(one, output, r, one[x], by_x, forward_of_one);
    check_derivative(one, output, r, one.parameters, by_parameters, forward_of_one);
  }
}

TEST_CASE("operands: oneDNN's planner runs such a step on tokens as the reference does") {
  using namespace onednn;
  const Isa isa = effective_isa();
  const Schedule steps = schedule();
  std::vector<Tensor> placed = choose_layouts(steps, block_of(isa), Element::fp32);
  reference::State s(steps, 1);
  std::vector<std::vector<float>> values;
  HostMemory memory;
  const Buffer parameters = memory.allocate(steps.parameters),
               gradients = memory.allocate(steps.parameters);
  reference::fill_normal(s.parameters, 3);
  std::ranges::copy(s.parameters, parameters.view().host().begin());
  for (Tensor& tensor : placed) {
    values.emplace_back(tensor.elements());
    tensor.data = values.back().data();
  }
  for (const TensorId id : {x, dy, dz}) {
    reference::fill_normal(s[id], 10 + id);
    for (std::size_t i = 0; i < s[id].size(); ++i)
      values[id][placed[id].place(i)] = static_cast<float>(s[id][i]);
  }
  Planner planner(placed, {parameters.view(), gradients.view(), {}, {}}, 1, isa, true, memory);
  const Action forward = plan(branch, planner), back = plan(backward, planner);

  const Batch batch{};
  StepResult result;
  const Program::SumOverRanks sum;
  const Frame frame{batch, 1, result, nullptr, sum};
  forward(frame);
  back(frame);
  reference::run(branch, s);
  reference::run(backward, s);

  for (const TensorId id : {y, z, dx})
    for (std::size_t i = 0; i < s[id].size(); ++i)
      CHECK(values[id][placed[id].place(i)] == Approx(s[id][i]).margin(1e-5));
  for (std::size_t i = 0; i < s.gradients.size(); ++i)
    CHECK(gradients.view().host()[i] == Approx(s.gradients[i]).margin(1e-5));
}
