#include "ringtrain/metrics/scaling/phase.hpp"

namespace ringtrain::metrics {
namespace {

constexpr std::size_t phases = static_cast<std::size_t>(Phase::checkpoint_write) + 1;

constexpr std::array<PhaseNames, phases> rows = {{
    {.watchdog = "init"},
    {.watchdog = "open"},
    {.watchdog = "list"},
    {.watchdog = "index"},
    {.watchdog = "plan"},
    {.watchdog = "resume"},
    {.watchdog = "data",
     .timeline = "wait for data",
     .metric = "data_wait",
     .table = "waiting for data",
     .words = "data wait"},
    {.watchdog = "copy",
     .timeline = "copy",
     .metric = "copy",
     .table = "copying input",
     .words = "copy to GPU"},
    {.watchdog = "forward",
     .timeline = "forward",
     .metric = "forward",
     .table = "forward",
     .words = "forward"},
    {.watchdog = "backward",
     .timeline = "backward",
     .metric = "backward",
     .table = "backward",
     .words = "backward"},
    {.watchdog = "all-reduce",
     .timeline = "communication",
     .metric = "comm_exposed",
     .table = "communication",
     .words = "exposed communication"},
    {.watchdog = "GPU's step"},
    {.watchdog = "update",
     .timeline = "update",
     .metric = "update",
     .table = "update",
     .words = "update"},
    {.watchdog = "evaluation", .timeline = "evaluation"},
    {.watchdog = "output"},
    {.watchdog = "ranks"},
    {.watchdog = "save",
     .timeline = "checkpoint",
     .metric = "checkpoint",
     .table = "checkpointing",
     .words = "checkpoint"},
    {.watchdog = "exit"},
    {.metric = "other", .table = "other", .words = "other"},
    {.timeline = "step"},
    {.timeline = "sum"},
    {.timeline = "make batch"},
    {.timeline = "write checkpoint"},
}};

}  // namespace

const PhaseNames& phase_names(Phase phase) { return rows.at(static_cast<std::size_t>(phase)); }

}  // namespace ringtrain::metrics
