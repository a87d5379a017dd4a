#!/usr/bin/env bash
# restarts.sh MPIRUN TRAIN SUPERVISE COMPARE_CHECKPOINTS: a job whose rank is killed is started again and comes to the undisturbed
# run's bits; as other ranks, it comes to the same weights; what a restart does not cure, and a signal, end it.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") supervise=$(realpath "$3") compare=$(realpath "$4")
enter_folder
at_end abandon
export OMPI_MCA_btl_vader_backing_directory=$dir  # for what killed jobs leave

job() { # RANKS OPTION...: in the foreground
  local ranks=$1
  shift
  timeout 120 "$supervise" "$mpirun" -np "$ranks" --oversubscribe "$train" --model mlp --data shapes --threads 1 --eval-every 0 --log-every 20 "$@" \
    >log 2>&1 </dev/null
}
start() { # RANKS OPTION...: in the background for 120 s at most, until it has saved; its ranks are $ranks
  : >log
  "$supervise" "$mpirun" -np "$1" --oversubscribe "$train" --model mlp --data shapes --threads 1 --eval-every 0 --log-every 20 "${@:2}" >log 2>&1 </dev/null &
  supervisor=$!
  (for ((i = 0; i < 120; i++)); do sleep 1; kill -0 "$supervisor" || exit; done; abandon) >watchdog 2>&1 &
  await 60 find_ranks "$1"
  await 60 has "checkpoint [1-9]"
}
abandon() {
  local launchers
  launchers=$(pgrep -P "${supervisor:-$$}" -x "$(basename "$mpirun")|prterun") || return
  kill -9 "$supervisor"
  kill $launchers
}
find_ranks() { # COUNT
  local launcher
  launcher=$(pgrep -P "$supervisor" -x "$(basename "$mpirun")|prterun") && mapfile -t ranks < <(pgrep -P "$launcher" -x "$(basename "$train")") &&
    ((${#ranks[@]} == $1))
}
long=(--batch 32 --steps 500 --checkpoint-every 20)

job 2 "${long[@]}" --checkpoint-dir calm
exits "undisturbed" 0
start 2 "${long[@]}" --checkpoint-dir struck --restarts 2
kill -9 "${ranks[1]}"
wait "$supervisor"
exits "a killed rank" 0
check "a killed rank: told with its end and its checkpoint" \
  has "^supervise: restart 1 of 2: rank 1 on $(hostname) (was ended by SIGKILL|has ended without a word) \(exit code (137|71) after [0-9]+ s\); going on from step-[0-9]{10}.h5$"
check "a killed rank: goes on from a checkpoint" has "^resumed from step-"
check "a killed rank: done" has "^supervise: done after [12] restarts?$"
check "a killed rank: the undisturbed run's bits" is "$(bits struck 500)" "$(bits calm 500)"

start 2 "${long[@]}" --checkpoint-dir unsaved --restarts 2
kill -9 $(pgrep -P "${ranks[0]}" -x 'ringtrain-(fork|write)')  # no other writer can be started
wait "$supervisor"
exits "a writer lost for good" 0
check "a writer lost for good: told with its end and its checkpoint" \
  has "^supervise: restart 1 of 2: the checkpoint writer was killed by signal 9 \(Killed\) \(exit code 75 after [0-9]+ s\); going on from step-[0-9]{10}.h5$"
check "a writer lost for good: the undisturbed run's bits" is "$(bits unsaved 500)" "$(bits calm 500)"

start 2 "${long[@]}" --steps 1000000 --checkpoint-dir ended --restarts 2
kill -TERM "${ranks[0]}"
wait "$supervisor"
exits "SIGTERM to a rank" 143
check "SIGTERM to a rank: no restart" lacks "restart 1"
start 2 "${long[@]}" --steps 1000000 --checkpoint-dir ended --restarts 2
kill -TERM "$supervisor"
wait "$supervisor"
exits "SIGTERM to the supervisor" 143
check "SIGTERM to the supervisor: no restart" has "^supervise: SIGTERM: not started again$"

job 2 --global-batch 1 --restarts 2
exits "a wrong option" 64
check "a wrong option: no restart" has "^supervise: exit code 64 after [0-9]+ s is nothing that a restart cures$"
launch 2 "$train" --restarts 2
exits "without the supervisor" 64
check "without the supervisor: told what to type" has "^train: --restarts 2: .*scripts/supervise mpirun"

# Where there is no BatchNorm, other ranks come to the same weights.
job 4 --batch 8 --steps 10 --checkpoint-dir four
job 3 --batch 8 --steps 10 --checkpoint-dir three --as-ranks 4
check "as other ranks: told" has "^as 4 ranks: 32 images a step, 2 times 6 or less on a rank$"
check "as other ranks: the same weights" "$compare" four/step-0000000010.h5 three/step-0000000010.h5 1e-5
exit $bad
