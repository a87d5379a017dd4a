#pragma once
#include <cstddef>

namespace ringtrain::optim::kernels {

/// Equal parts of the flat buffers. Slots that a rule does not have are null.
struct Part {
  float* w;
  const float* g;
  float *slot0, *slot1;
  std::size_t size;
};

struct Factors {
  float scale, decay;  ///< the rule's gradient is scale * g + decay * w
  float lr;  ///< adam: divided by the first moment's bias correction; lars: times the trust ratio
  float momentum, mean_square_decay, beta1, beta2, epsilon;
  float root_scale;  ///< adam: 1 / sqrt of the second moment's bias correction
  float shrink;      ///< adamw, lion: what the weights are multiplied by
};

/// Elementwise, compiled for several instruction sets with the same results. Slots in the order
/// they are named in.
void sgd(Part part, Factors f);
void momentum(Part part, Factors f);
void nesterov(Part part, Factors f);
void rmsprop(Part part, Factors f);  ///< mean_square, momentum
void adam(Part part, Factors f);     ///< adam_m, adam_v
void lars(Part part, Factors f);
void lion(Part part, Factors f);

void move_average(float* average, const float* values, std::size_t size, float rate);
/// Sum of squares, added up in an order that depends on `size` alone.
double sum_of_squares(const float* values, std::size_t size);
bool all_finite(const float* values, std::size_t size);

}  // namespace ringtrain::optim::kernels
