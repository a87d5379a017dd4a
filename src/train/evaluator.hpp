#pragma once
#include <functional>

#include "ringtrain/allreduce/mpi_session.hpp"
#include "ringtrain/compute/backend.hpp"
#include "ringtrain/io/loader.hpp"
#include "train/progress.hpp"
#include "train/stop_request.hpp"

namespace ringtrain {

/// Over all samples of the evaluation set and all ranks.
struct Evaluation {
  Wish wish;        ///< of the ranks; where it is to stop, the figures are not to be used
  double loss = 0;  ///< mean cross-entropy
  double top1 = 0, top5 = 0;
  std::uint64_t examples = 0;
  double seconds = 0;
  std::vector<std::string> events;  ///< what this rank could not read
};

/// Runs the evaluation program once over the whole data set, each rank on its share, or until a
/// rank wishes to stop; each is asked before every batch. Collective; all ranks return the same but
/// for `events`.
Evaluation evaluate(Program& program, const Dataset& dataset, const LoaderOptions& options,
                    const MpiSession& session, const std::function<Wish()>& ask,
                    Progress& progress);

}  // namespace ringtrain
