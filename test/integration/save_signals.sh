#!/usr/bin/env bash
# save_signals.sh MPIRUN TRAIN: SIGUSR1 saves and training goes on: from whichever rank, at whatever time, once a step, never lost.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2")
enter_folder

start() { begin 2 "$train" --model mlp --data shapes --batch 16 --log-every 20 "$@"; }
said() { wait_for 60 has "$@"; }
went_on() { # WHAT: the job has gone on until now, or to its end
  kill -TERM "$(rank 0)" 2>/dev/null
  wait
  check "$1: the run ends as a run does" has "trained .* steps"
}

start --steps 100000 --eval-every 0 --checkpoint-dir one --checkpoint-every 1h
said "step 20,"
kill -USR1 "$(rank 1)"
said "is durable"
went_on "to rank 1"
check "to rank 1: one checkpoint, and the last" has "checkpoints +2 saved, 0 failed, 0 skipped"
check "to rank 1: told" has "SIGUSR1: saving step [0-9]+$"
check "to rank 1: durable" has "SIGUSR1: the checkpoint of step [0-9]+ is durable: step-[0-9]+.h5"

start --steps 100000 --eval-every 0 --checkpoint-dir early --checkpoint-every 1h
for ((i = 0; i < 1000; i++)); do [ -n "$(rank 1)" ] && grep -q 'SigBlk:.*[2367abef]..$' "/proc/$(rank 1)/status" 2>/dev/null && break; done
kill -USR1 "$(rank 1)"
said "is durable"
went_on "to a rank that starts"
check "to a rank that starts: saved" has "SIGUSR1: the checkpoint of step 1 is durable"

start --steps 100000 --eval-every 0 --checkpoint-dir all --checkpoint-every 1h
said "step 20,"
kill -USR1 "$mpi"
said "is durable"
went_on "to mpirun"
check "to mpirun: saved" has "SIGUSR1: the checkpoint of step [0-9]+ is durable"

# Both slots busy: the writer stands still, two saves are handed over, the third waits for it.
start --steps 100000 --eval-every 0 --checkpoint-dir busy --checkpoint-every 1h
said "step 20,"
writer=$(pgrep -P "$(rank 0)" -x ringtrain-write)
kill -STOP "$writer"
for n in 1 2; do
  kill -USR1 "$(rank 0)"
  said "SIGUSR1: saving step" "$n"
done
kill -USR1 "$(rank 0)"
said "SIGUSR1: a checkpoint follows"
check "both slots busy: told" has "SIGUSR1: a checkpoint follows as soon as one before it is written"
check "both slots busy: training goes on" test "$(count 'is durable')" -eq 0
kill -CONT "$writer"
said "is durable" 3
went_on "both slots busy"
check "both slots busy: three saves and the last" has "checkpoints +4 saved, 0 failed, 0 skipped"
check "both slots busy: three are told durable" is "$(count 'SIGUSR1: .* is durable')" 3

# In an evaluation; images are many there.
start --steps 100000 --max-time 20s --eval-every 1 --batch 512 --checkpoint-dir judged --checkpoint-every 1h
said "evaluation:"
for ((i = 0; i < 20; i++)); do kill -USR1 "$(rank 1)"; sleep 0.05; done
said "is durable"
went_on "around evaluations"
check "around evaluations: saved" has "SIGUSR1: the checkpoint of step [0-9]+ is durable"

# Amid matrix products, whose kernels use the stack pointer for other things.
start --steps 80 --eval-every 0 --batch 512 --checkpoint-dir amid --checkpoint-every 1h
said "step 20,"
for ((i = 0; i < 60; i++)); do kill -USR1 "$(rank 0)" "$(rank 1)" 2>/dev/null; sleep 0.01; done
wait
check "amid matrix products: the run ends by itself" has "trained .* steps"

start --steps 100000 --eval-every 0
said "step 20,"
kill -USR1 "$(rank 0)"
said "SIGUSR1: nothing can be saved"
went_on "no --checkpoint-dir"
check "no --checkpoint-dir: told once" is "$(count 'SIGUSR1: nothing can be saved without --checkpoint-dir')" 1
exit $bad
