#pragma once
#include <functional>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/compute/backend.hpp"
#include "ringtrain/host/signals.hpp"
#include "ringtrain/io/loader/loader.hpp"
#include "ringtrain/monitor/progress.hpp"

namespace ringtrain::train {

/// Over all samples of the evaluation set and all ranks.
struct Evaluation {
  bool whole = true;              ///< else the ranks stopped amid it, and the figures are of a part
  host::StepRequest unsaid = {};  ///< of this rank, which the others have not heard of
  double loss = 0;                ///< mean cross-entropy
  double top1 = 0, top5 = 0;
  std::uint64_t examples = 0;
  double seconds = 0;
  std::vector<std::string> events;  ///< what this rank could not read
};

/// Runs the evaluation program once over the whole data set, each rank on its share, or until a
/// rank asks to stop. Each is asked before every batch, and what all of them ask for is granted on
/// all, two batches and half a second later at most. Collective; all ranks return the same but for
/// `events`.
Evaluation evaluate(compute::Program& program, const io::Dataset& dataset,
                    const io::LoaderOptions& options, const allreduce::MpiSession& session,
                    const std::function<host::StepRequest()>& ask,
                    const std::function<void(const host::StepRequest&)>& grant,
                    monitor::Progress& progress);

}  // namespace ringtrain::train
