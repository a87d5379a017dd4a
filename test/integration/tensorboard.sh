#!/usr/bin/env bash
# tensorboard.sh MPIRUN TRAIN: TensorBoard reads what --tensorboard writes, as one run, also after a resume.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2")
enter_folder
"$python" -c 'import tensorboard' 2>/dev/null || skip "$python has no tensorboard (scripts/setup.sh installs it)"

run() { # STEPS
  launch 2 "$train" --model mlp --data shapes --steps "$1" --log-every 10 --checkpoint-dir ck --tensorboard board
  exits "$1 steps" 0
}
run 40
run 60
"$python" - >log 2>&1 <<'PYTHON'
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

board = EventAccumulator("board")
board.Reload()
print("loss", *(event.step for event in board.Scalars("train/loss")))
print("evaluation", *(event.step for event in board.Scalars("evaluation/top1")))
print("configuration", board.Tensors("configuration")[0].tensor_proto.string_val[0].decode())
phases = [tag for tag in board.Tags()["scalars"] if tag.startswith("ledger/")]
for event, *parts in zip(board.Scalars("speed/seconds_per_batch"), *(board.Scalars(tag) for tag in phases)):
    print("sum", abs(1e3 * event.value / sum(part.value for part in parts) - 1) < 1e-3)
PYTHON
check "the loss is there once a step" has "^loss 10 20 30 40 50 60$"
check "evaluations at both ends" has "^evaluation( [0-9]+)* 40( [0-9]+)* 60$"
check "the configuration is a table" has "^configuration \| option"
check "phases add up to the step" is "$(grep -c '^sum True' log)" 6
exit $bad
