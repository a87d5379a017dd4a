#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "ringtrain/base/batch.hpp"
#include "ringtrain/compute/backend.hpp"
#include "ringtrain/compute/step.hpp"

namespace ringtrain::compute::reference {

/// Everything a step may read or write, in double precision; tensors are dense, height, width and
/// channels from slow to fast. A slice's own values are those that the last step saw in it. Tests
/// set and read it directly.
struct State {
  struct Moments {
    std::vector<double> mean, variance;
    double count;  ///< pixels, perhaps of all ranks
  };

  State(const Schedule& schedule, std::uint64_t dropout_seed);

  /// Over all ranks, which exchange floats.
  void sum_over_ranks(std::vector<double>& values) const;

  const Shape& shape(TensorId id) const { return shapes[id]; }
  std::vector<double>& operator[](TensorId id) { return tensors[id]; }

  std::vector<Shape> shapes;
  std::map<TensorId, Slice> slices;
  std::vector<std::vector<double>> tensors, vectors;
  std::vector<double> parameters, gradients, statistics, batch_statistics;
  std::map<TensorId, Moments> moments;  ///< of each BatchNormForward, by its input
  std::uint64_t seed;
  const Batch* batch = nullptr;
  Program::SumOverRanks sum;  ///< empty: there is one rank
  double sample_weight = 1;
  StepResult result;
};

void run(const Input&, State&);
void run(const ConvolutionForward&, State&);
void run(const ConvolutionInputGradient&, State&);
void run(const ConvolutionWeightGradient&, State&);
void run(const MatrixProductForward&, State&);
void run(const MatrixProductInputGradient&, State&);
void run(const MatrixProductWeightGradient&, State&);
void run(const ReluForward&, State&);
void run(const ReluBackward&, State&);
void run(const BatchNormForward&, State&);
void run(const BatchNormBackward&, State&);
void run(const Add&, State&);
void run(const Concat&, State&);
void run(const ChannelSlice&, State&);
void run(const ShortcutForward&, State&);
void run(const ShortcutBackward&, State&);
void run(const MaxPoolForward&, State&);
void run(const MaxPoolBackward&, State&);
void run(const AveragePoolForward&, State&);
void run(const AveragePoolBackward&, State&);
void run(const LrnForward&, State&);
void run(const LrnBackward&, State&);
void run(const Dropout&, State&);
void run(const SoftmaxCrossEntropy&, State&);
void run(const BatchNormStatistics&, State&);
void run(const BatchNormFinalize&, State&);
void run(const BatchNormApply&, State&);
void run(const BatchNormBackwardReduce&, State&);
void run(const BatchNormBackwardApply&, State&);

/// Executes any step. What it reads of slices comes from the tensors that they are part of, and
/// what it writes goes there.
void run(const Step& step, State& state);

}  // namespace ringtrain::compute::reference
