#include <utility>
#include <variant>

#include "model/passes/uses.hpp"
#include "ringtrain/model/passes.hpp"

namespace ringtrain::model {
namespace {

class Differentiation {
 public:
  explicit Differentiation(compute::Schedule schedule)
      : schedule_(std::move(schedule)), gradient_(schedule_.tensors.size(), compute::no_tensor) {}

  compute::Schedule run() && {
    const compute::Schedule forward = schedule_;
    const Wanted wanted(forward);
    wanted_ = &wanted;
    for (auto step = forward.steps.rbegin(); step != forward.steps.rend(); ++step)
      if (wanted.of_results(*step))
        std::visit([&](const auto& kind) { differentiate(kind); }, *step);
    return std::move(schedule_);
  }

 private:
  bool wanted(compute::TensorId id) const { return (*wanted_)(id); }
  void push(compute::Step step) { schedule_.steps.push_back(std::move(step)); }
  compute::TensorId like(compute::TensorId id) {
    gradient_.push_back(compute::no_tensor);
    const compute::TensorId result = new_tensor(schedule_, compute::Shape(schedule_.tensors[id]));
    if (schedule_.is_slice(id)) lay(result, schedule_.place_of(id));
    return result;
  }

  // The gradient of a slice is that slice of the gradient.
  void lay(compute::TensorId gradient, const compute::Slice& place) {
    if (gradient_[place.of] == compute::no_tensor) {
      const compute::TensorId whole = like(place.of);
      gradient_[place.of] = whole;
    }
    schedule_.slices[gradient] = {gradient_[place.of], place.first};
  }

  // Adds dx to the gradient of x.
  void contribute(compute::TensorId x, compute::TensorId dx) {
    if (gradient_[x] == compute::no_tensor) {
      gradient_[x] = dx;
      return;
    }
    // Its gradients would all lie in one place.
    expects(!schedule_.is_slice(x), "differentiate: one step reads a slice");
    const compute::TensorId sum = like(x);
    push(compute::Add{gradient_[x], dx, sum});
    gradient_[x] = sum;
  }

  // Pushes `step` with dx a new gradient of x, where that is wanted.
  template <class Kind>
  void backward_to(compute::TensorId x, Kind step) {
    if (!wanted(x)) return;
    step.dx = like(x);
    push(step);
    contribute(x, step.dx);
  }

  // The gradient of `y` before the activation that the forward step applied to it, whose slope
  // follows from y: fuse_forward fuses no other.
  compute::TensorId before(compute::Activation then, compute::TensorId y) {
    if (then == compute::Activation::none) return gradient_[y];
    const compute::TensorId result = like(y);
    push(compute::PointwiseBackward{then, y, gradient_[y], result});
    return result;
  }

  void differentiate(const compute::Input&) {}
  void differentiate(const compute::SoftmaxCrossEntropy& s) {
    expects(s.dlogits != compute::no_tensor, "differentiate: a training schedule");
    contribute(s.logits, s.dlogits);
  }
  void differentiate(const compute::ConvolutionForward& s) {
    const compute::TensorId dy = before(s.then, s.y);
    if (schedule_.learns(s.w))
      push(compute::ConvolutionWeightGradient{s.window, s.x, dy, s.w, s.b});
    backward_to(s.x, compute::ConvolutionInputGradient{s.window, dy, compute::no_tensor, s.w});
  }
  void differentiate(const compute::MatrixProductForward& s) {
    const compute::TensorId dy = before(s.then, s.y);
    if (schedule_.learns(s.w)) push(compute::MatrixProductWeightGradient{s.x, dy, s.w, s.b});
    backward_to(s.x, compute::MatrixProductInputGradient{dy, compute::no_tensor, s.w});
  }
  // Running statistics do not depend on x.
  void differentiate_frozen(const compute::BatchNormForward& s) {
    const compute::TensorId dy = before(s.then, s.y);
    backward_to(s.x, compute::BatchNormInputGradient{dy, compute::no_tensor, s.gamma, s.beta,
                                                     s.statistics, s.epsilon});
    if (s.residual != compute::no_tensor && wanted(s.residual)) contribute(s.residual, dy);
  }
  void differentiate(const compute::BatchNormForward& s) {
    if (!s.training) return differentiate_frozen(s);
    compute::BatchNormBackward b{s.x,
                                 compute::no_tensor,
                                 gradient_[s.y],
                                 compute::no_tensor,
                                 like(s.x),
                                 compute::no_tensor,
                                 s.gamma,
                                 s.beta,
                                 s.epsilon,
                                 s.then,
                                 s.all_ranks};
    const bool residual = s.residual != compute::no_tensor;
    const bool activated = s.then != compute::Activation::none;
    if (residual && activated) {
      b.y = s.y;
      if (wanted(s.residual)) b.dresidual = like(s.residual);
    }
    push(b);
    contribute(s.x, b.dx);
    if (residual && wanted(s.residual)) contribute(s.residual, activated ? b.dresidual : b.dy);
  }
  void differentiate(const compute::Pointwise& s) {
    const compute::TensorId saved = facts_of(s.f).slope_of_output ? s.y : s.x;
    backward_to(s.x, compute::PointwiseBackward{s.f, saved, gradient_[s.y], compute::no_tensor});
  }
  void differentiate(const compute::Add& s) {
    const compute::TensorId dy = before(s.then, s.y);
    if (wanted(s.a)) contribute(s.a, dy);
    if (wanted(s.b)) contribute(s.b, dy);
  }
  void differentiate(const compute::ScaleForward& s) {
    const auto result = [&](compute::TensorId id) {
      return wanted(id) ? like(id) : compute::no_tensor;
    };
    const compute::TensorId dx = result(s.x), ds = result(s.s);
    if (dx == compute::no_tensor && ds == compute::no_tensor) return;
    push(compute::ScaleBackward{s.x, s.s, gradient_[s.y], dx, ds});
    if (dx != compute::no_tensor) contribute(s.x, dx);
    if (ds != compute::no_tensor) contribute(s.s, ds);
  }
  void differentiate(const compute::Concat& s) {
    int first = 0;
    for (const compute::TensorId x : s.x) {
      if (wanted(x)) {
        const compute::TensorId dx = like(x);
        push(compute::ChannelSlice{gradient_[s.y], dx, first});
        contribute(x, dx);
      }
      first += schedule_.tensors[x].channels;
    }
  }
  void differentiate(const compute::ShortcutForward& s) {
    backward_to(s.x, compute::ShortcutBackward{gradient_[s.y], compute::no_tensor, s.stride});
  }
  void differentiate(const compute::MaxPoolForward& s) {
    backward_to(s.x,
                compute::MaxPoolBackward{s.window, s.x, s.y, gradient_[s.y], compute::no_tensor});
  }
  void differentiate(const compute::AveragePoolForward& s) {
    backward_to(s.x, compute::AveragePoolBackward{s.window, gradient_[s.y], compute::no_tensor});
  }
  void differentiate(const compute::FilterForward& s) {
    backward_to(s.x, compute::FilterBackward{s.window, s.taps, gradient_[s.y], compute::no_tensor});
  }
  void differentiate(const compute::ReflectPadForward& s) {
    backward_to(s.x, compute::ReflectPadBackward{gradient_[s.y], compute::no_tensor, s.border});
  }
  void differentiate(const compute::LrnForward& s) {
    backward_to(s.x, compute::LrnBackward{s.how, s.x, gradient_[s.y], compute::no_tensor});
  }
  void differentiate(const compute::LayerNormForward& s) {
    const compute::TensorId dx = like(s.x);
    push(compute::LayerNormBackward{s.x, gradient_[s.y], dx, s.gamma, s.beta, s.epsilon});
    contribute(s.x, dx);
  }
  // Steps that are their own derivative.
  void differentiate(const compute::Multiply& s) { again(s); }
  void differentiate(const compute::Dropout& s) { again(s); }
  template <class Kind>
  void again(Kind s) {
    if (!wanted(s.x)) return;
    const compute::TensorId x = std::exchange(s.x, gradient_[s.y]);
    s.y = like(x);
    push(s);
    contribute(x, s.y);
  }
  template <class Backward>
  void differentiate(const Backward&) {
    throw Error("differentiate", "only forward steps have derivatives");
  }

  compute::Schedule schedule_;
  std::vector<compute::TensorId> gradient_;  // by tensor
  const Wanted* wanted_ = nullptr;
};

}  // namespace

compute::Schedule differentiate(compute::Schedule schedule) {
  return Differentiation(std::move(schedule)).run();
}

}  // namespace ringtrain::model
