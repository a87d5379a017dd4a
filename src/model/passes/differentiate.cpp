#include <utility>
#include <variant>

#include "model/passes/uses.hpp"
#include "ringtrain/model/passes.hpp"

namespace ringtrain::model {
namespace {

class Differentiation {
 public:
  explicit Differentiation(compute::Schedule schedule)
      : schedule_(std::move(schedule)),
        gradient_(schedule_.tensors.size(), compute::no_tensor),
        wanted_(schedule_.tensors.size(), false) {}

  compute::Schedule run() && {
    const std::vector<compute::Step> forward = schedule_.steps;
    for (const compute::Step& step : forward) mark_wanted(step);
    for (auto step = forward.rbegin(); step != forward.rend(); ++step)
      std::visit([&](const auto& kind) { differentiate(kind); }, *step);
    return std::move(schedule_);
  }

 private:
  // All but the image has a gradient; what only depends on the image needs none either.
  void mark_wanted(const compute::Step& step) {
    if (std::holds_alternative<compute::Input>(step)) return;
    const bool trains = std::holds_alternative<compute::ConvolutionForward>(step) ||
                        std::holds_alternative<compute::MatrixProductForward>(step) ||
                        std::holds_alternative<compute::LayerNormForward>(step) ||
                        std::holds_alternative<compute::BatchNormForward>(step);
    bool wanted = trains;
    compute::for_each_tensor(step, [&](compute::TensorId id, compute::Access access) {
      if (access == compute::Access::read) wanted = wanted || wanted_[id];
    });
    compute::for_each_tensor(step, [&](compute::TensorId id, compute::Access access) {
      if (access == compute::Access::write) wanted_[id] = wanted;
    });
  }

  void push(compute::Step step) { schedule_.steps.push_back(std::move(step)); }
  compute::TensorId like(compute::TensorId id) {
    gradient_.push_back(compute::no_tensor);
    wanted_.push_back(false);
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
    if (!wanted_[x]) return;
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
    push(compute::ConvolutionWeightGradient{s.window, s.x, dy, s.w, s.b});
    backward_to(s.x, compute::ConvolutionInputGradient{s.window, dy, compute::no_tensor, s.w});
  }
  void differentiate(const compute::MatrixProductForward& s) {
    const compute::TensorId dy = before(s.then, s.y);
    push(compute::MatrixProductWeightGradient{s.x, dy, s.w, s.b});
    backward_to(s.x, compute::MatrixProductInputGradient{dy, compute::no_tensor, s.w});
  }
  void differentiate(const compute::BatchNormForward& s) {
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
      if (wanted_[s.residual]) b.dresidual = like(s.residual);
    }
    push(b);
    contribute(s.x, b.dx);
    if (residual && wanted_[s.residual]) contribute(s.residual, activated ? b.dresidual : b.dy);
  }
  void differentiate(const compute::Pointwise& s) {
    const compute::TensorId saved = facts_of(s.f).slope_of_output ? s.y : s.x;
    backward_to(s.x, compute::PointwiseBackward{s.f, saved, gradient_[s.y], compute::no_tensor});
  }
  void differentiate(const compute::Add& s) {
    const compute::TensorId dy = before(s.then, s.y);
    if (wanted_[s.a]) contribute(s.a, dy);
    if (wanted_[s.b]) contribute(s.b, dy);
  }
  void differentiate(const compute::ScaleForward& s) {
    const auto result = [&](compute::TensorId id) {
      return wanted_[id] ? like(id) : compute::no_tensor;
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
      if (wanted_[x]) {
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
    if (!wanted_[s.x]) return;
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
  std::vector<bool> wanted_;  // by tensor: whether a parameter depends on its gradient
};

}  // namespace

compute::Schedule differentiate(compute::Schedule schedule) {
  return Differentiation(std::move(schedule)).run();
}

}  // namespace ringtrain::model
