#include <variant>

#include "model/passes/uses.hpp"
#include "ringtrain/model/passes.hpp"

namespace ringtrain {
namespace {

class Differentiation {
 public:
  explicit Differentiation(Schedule schedule)
      : schedule_(std::move(schedule)),
        gradient_(schedule_.tensors.size(), no_tensor),
        wanted_(schedule_.tensors.size(), false) {}

  Schedule run() && {
    const std::vector<Step> forward = schedule_.steps;
    for (const Step& step : forward) mark_wanted(step);
    for (auto step = forward.rbegin(); step != forward.rend(); ++step)
      std::visit([&](const auto& kind) { differentiate(kind); }, *step);
    return std::move(schedule_);
  }

 private:
  // All but the image has a gradient; what only depends on the image needs none either.
  void mark_wanted(const Step& step) {
    if (std::holds_alternative<Input>(step)) return;
    const bool trains = std::holds_alternative<ConvolutionForward>(step) ||
                        std::holds_alternative<MatrixProductForward>(step) ||
                        std::holds_alternative<BatchNormForward>(step);
    bool wanted = trains;
    for_each_tensor(step, [&](TensorId id, Access access) {
      if (access == Access::read) wanted = wanted || wanted_[id];
    });
    for_each_tensor(step, [&](TensorId id, Access access) {
      if (access == Access::write) wanted_[id] = wanted;
    });
  }

  void push(Step step) { schedule_.steps.push_back(std::move(step)); }
  TensorId like(TensorId id) {
    gradient_.push_back(no_tensor);
    wanted_.push_back(false);
    const TensorId result = new_tensor(schedule_, Shape(schedule_.tensors[id]));
    if (schedule_.is_slice(id)) lay(result, schedule_.place_of(id));
    return result;
  }

  // The gradient of a slice is that slice of the gradient.
  void lay(TensorId gradient, const Slice& place) {
    if (gradient_[place.of] == no_tensor) {
      const TensorId whole = like(place.of);
      gradient_[place.of] = whole;
    }
    schedule_.slices[gradient] = {gradient_[place.of], place.first};
  }

  // Adds dx to the gradient of x.
  void contribute(TensorId x, TensorId dx) {
    if (gradient_[x] == no_tensor) {
      gradient_[x] = dx;
      return;
    }
    // Its gradients would all lie in one place.
    expects(!schedule_.is_slice(x), "differentiate: one step reads a slice");
    const TensorId sum = like(x);
    push(Add{gradient_[x], dx, sum});
    gradient_[x] = sum;
  }

  // Pushes `step` with dx a new gradient of x, where that is wanted.
  template <class Kind>
  void backward_to(TensorId x, Kind step) {
    if (!wanted_[x]) return;
    step.dx = like(x);
    push(step);
    contribute(x, step.dx);
  }

  // The gradient of `y` before a ReLU that the forward step applied to it.
  TensorId before_relu(bool relu, TensorId y) {
    if (!relu) return gradient_[y];
    const TensorId masked = like(y);
    push(ReluBackward{y, gradient_[y], masked});
    return masked;
  }

  void differentiate(const Input&) {}
  void differentiate(const SoftmaxCrossEntropy& s) {
    expects(s.dlogits != no_tensor, "differentiate: a training schedule");
    contribute(s.logits, s.dlogits);
  }
  void differentiate(const ConvolutionForward& s) {
    const TensorId dy = before_relu(s.relu, s.y);
    push(ConvolutionWeightGradient{s.window, s.x, dy, s.w, s.b});
    backward_to(s.x, ConvolutionInputGradient{s.window, dy, no_tensor, s.w});
  }
  void differentiate(const MatrixProductForward& s) {
    const TensorId dy = before_relu(s.relu, s.y);
    push(MatrixProductWeightGradient{s.x, dy, s.w, s.b});
    backward_to(s.x, MatrixProductInputGradient{dy, no_tensor, s.w});
  }
  void differentiate(const BatchNormForward& s) {
    BatchNormBackward b{s.x,     no_tensor, gradient_[s.y], no_tensor, like(s.x),  no_tensor,
                        s.gamma, s.beta,    s.epsilon,      s.relu,    s.all_ranks};
    const bool residual = s.residual != no_tensor;
    if (residual && s.relu) {
      b.y = s.y;
      if (wanted_[s.residual]) b.dresidual = like(s.residual);
    }
    push(b);
    contribute(s.x, b.dx);
    if (residual && wanted_[s.residual]) contribute(s.residual, s.relu ? b.dresidual : b.dy);
  }
  void differentiate(const ReluForward& s) {
    backward_to(s.x, ReluBackward{s.y, gradient_[s.y], no_tensor});
  }
  void differentiate(const Add& s) {
    const TensorId dy = before_relu(s.relu, s.y);
    if (wanted_[s.a]) contribute(s.a, dy);
    if (wanted_[s.b]) contribute(s.b, dy);
  }
  void differentiate(const Concat& s) {
    int first = 0;
    for (const TensorId x : s.x) {
      if (wanted_[x]) {
        const TensorId dx = like(x);
        push(ChannelSlice{gradient_[s.y], dx, first});
        contribute(x, dx);
      }
      first += schedule_.tensors[x].channels;
    }
  }
  void differentiate(const ShortcutForward& s) {
    backward_to(s.x, ShortcutBackward{gradient_[s.y], no_tensor, s.stride});
  }
  void differentiate(const MaxPoolForward& s) {
    backward_to(s.x, MaxPoolBackward{s.window, s.x, s.y, gradient_[s.y], no_tensor});
  }
  void differentiate(const AveragePoolForward& s) {
    backward_to(s.x, AveragePoolBackward{s.window, gradient_[s.y], no_tensor});
  }
  void differentiate(const LrnForward& s) {
    backward_to(s.x,
                LrnBackward{s.x, gradient_[s.y], no_tensor, s.radius, s.bias, s.alpha, s.beta});
  }
  void differentiate(const Dropout& s) {
    if (!wanted_[s.x]) return;
    const TensorId dx = like(s.x);
    push(Dropout{gradient_[s.y], dx, s.keep, s.layer});
    contribute(s.x, dx);
  }
  template <class Backward>
  void differentiate(const Backward&) {
    throw Error("differentiate", "only forward steps have derivatives");
  }

  Schedule schedule_;
  std::vector<TensorId> gradient_;  // by tensor
  std::vector<bool> wanted_;        // by tensor: whether a parameter depends on its gradient
};

}  // namespace

Schedule differentiate(Schedule schedule) { return Differentiation(std::move(schedule)).run(); }

}  // namespace ringtrain
