#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ringtrain::metrics {

/// What a thread of a rank is at: one vocabulary for the watchdog, the ledger of a step and
/// --timeline.
enum class Phase : std::uint8_t {
  // Of the main thread, for the watchdog. Those before `data_wait` come in this order, once.
  init,    ///< devices, their libraries, whatever is none of the following
  open,    ///< a file or folder
  list,    ///< the names of data
  index,   ///< makes or reads the index of a data set
  plan,    ///< the model, primitives, memory
  resume,  ///< finds and reads a checkpoint
  // Within a step they come in this order.
  data_wait,  ///< waits for a batch
  copy,       ///< hands a batch to the GPU
  forward,
  backward,
  communication,  ///< waits for gradients of other ranks
  gpu,            ///< waits for a step of the GPU, sums over ranks in it
  update,
  evaluation,
  output,      ///< tells the user, who may have stopped the terminal
  ranks,       ///< waits for the other ranks, in what is not a sum of gradients
  checkpoint,  ///< waits for a save
  exit,
  // For the ledger alone.
  other,  ///< what no phase of a step accounts for
  // For the timeline alone.
  step,
  sum,               ///< of one bucket or, in shared memory, of all
  batch,             ///< a loader thread makes one
  checkpoint_write,  ///< by the writer process
};

/// Those of the watchdog: up to `exit`.
inline constexpr std::size_t watched_phases = static_cast<std::size_t>(Phase::exit) + 1;

/// Those of the ledger: each moment of a step belongs to one of them.
inline constexpr std::array ledger_phases = {
    Phase::data_wait,     Phase::copy,   Phase::forward,    Phase::backward,
    Phase::communication, Phase::update, Phase::checkpoint, Phase::other};
/// Where it lies among those; behind them all where the ledger has no such phase.
constexpr std::size_t ledger_place(Phase phase) {
  return static_cast<std::size_t>(std::ranges::find(ledger_phases, phase) - ledger_phases.begin());
}

/// What users read of a phase; empty where they never do.
struct PhaseNames {
  std::string_view watchdog = {};  ///< in its messages: "all-reduce"
  std::string_view timeline = {};  ///< on a span: "communication"
  std::string_view metric = {};    ///< in records: "comm_exposed"
  std::string_view table = {};     ///< in tables: "communication"
  std::string_view words = {};     ///< in plots and events: "exposed communication"
};
const PhaseNames& phase_names(Phase phase);

}  // namespace ringtrain::metrics
