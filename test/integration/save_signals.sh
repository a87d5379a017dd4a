#!/usr/bin/env bash
# save_signals.sh MPIRUN TRAIN: SIGUSR1 saves and training goes on: from whichever rank, at whatever time, once a step, never lost.
set -u
mpirun=$1 train=$(realpath "$2")
. "$(dirname "$0")/checks.sh"
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

# Starts a job on two ranks in the background; its mpirun is $mpi.
start() {
  : >log
  timeout 100 "$mpirun" -np 2 --oversubscribe "$train" --model mlp --data shapes --batch 16 --log-every 20 "$@" \
    >log 2>&1 </dev/null &
  until mpi=$(pgrep -P $!) || ! kill -0 $!; do sleep 0.01; done
}
# await TEXT [N]: until N lines have it.
await() { for ((i = 0; i < 600 && $(count "$1") < ${2:-1}; i++)); do sleep 0.1; done; }
rank() { pgrep -P "$mpi" -x train | sed -n "$(($1 + 1))p"; }
ends() { # WHAT: the job has gone on until now, or to its end
  kill -TERM "$(rank 0)" 2>/dev/null
  wait
  check "$1: the run ends as a run does" has "trained .* steps"
}
count() { grep -cE "$1" log; }

start --steps 100000 --eval-every 0 --checkpoint-dir one --checkpoint-every 1h
await "step 20,"
kill -USR1 "$(rank 1)"
await "is durable"
ends "to rank 1"
check "to rank 1: one checkpoint, and the last" has "checkpoints +2 saved, 0 failed, 0 skipped"
check "to rank 1: told" has "SIGUSR1: saving step [0-9]+$"
check "to rank 1: durable" has "SIGUSR1: the checkpoint of step [0-9]+ is durable: step-[0-9]+.h5"

start --steps 100000 --eval-every 0 --checkpoint-dir early --checkpoint-every 1h
for ((i = 0; i < 1000; i++)); do [ -n "$(rank 1)" ] && grep -q 'SigBlk:.*[2367abef]..$' "/proc/$(rank 1)/status" 2>/dev/null && break; done
kill -USR1 "$(rank 1)"
await "is durable"
ends "to a rank that starts"
check "to a rank that starts: saved" has "SIGUSR1: the checkpoint of step 1 is durable"

start --steps 100000 --eval-every 0 --checkpoint-dir all --checkpoint-every 1h
await "step 20,"
kill -USR1 "$mpi"
await "is durable"
ends "to mpirun"
check "to mpirun: saved" has "SIGUSR1: the checkpoint of step [0-9]+ is durable"

# Both slots busy: the writer stands still, two saves are handed over, the third waits for it.
start --steps 100000 --eval-every 0 --checkpoint-dir busy --checkpoint-every 1h
await "step 20,"
writer=$(pgrep -P "$(rank 0)" -x ringtrain-write)
kill -STOP "$writer"
for n in 1 2; do
  kill -USR1 "$(rank 0)"
  await "SIGUSR1: saving step" "$n"
done
kill -USR1 "$(rank 0)"
await "SIGUSR1: a checkpoint follows"
check "both slots busy: told" has "SIGUSR1: a checkpoint follows as soon as one before it is written"
check "both slots busy: training goes on" test "$(count 'is durable')" -eq 0
kill -CONT "$writer"
await "is durable" 3
ends "both slots busy"
check "both slots busy: three saves and the last" has "checkpoints +4 saved, 0 failed, 0 skipped"
check "both slots busy: three are told durable" is "$(count 'SIGUSR1: .* is durable')" 3

# In an evaluation; images are many there.
start --steps 100000 --max-time 20s --eval-every 1 --batch 512 --checkpoint-dir judged --checkpoint-every 1h
await "evaluation:"
for ((i = 0; i < 20; i++)); do kill -USR1 "$(rank 1)"; sleep 0.05; done
await "is durable"
ends "around evaluations"
check "around evaluations: saved" has "SIGUSR1: the checkpoint of step [0-9]+ is durable"

# Amid matrix products, whose kernels use the stack pointer for other things.
start --steps 80 --eval-every 0 --batch 512 --checkpoint-dir amid --checkpoint-every 1h
await "step 20,"
for ((i = 0; i < 60; i++)); do kill -USR1 "$(rank 0)" "$(rank 1)" 2>/dev/null; sleep 0.01; done
wait
check "amid matrix products: the run ends by itself" has "trained .* steps"

start --steps 100000 --eval-every 0
await "step 20,"
kill -USR1 "$(rank 0)"
await "SIGUSR1: nothing can be saved"
ends "no --checkpoint-dir"
check "no --checkpoint-dir: told once" is "$(count 'SIGUSR1: nothing can be saved without --checkpoint-dir')" 1
exit $bad
