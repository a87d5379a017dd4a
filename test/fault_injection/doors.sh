#!/usr/bin/env bash
# doors.sh MPIRUN TRAIN: strangers at the ports on which rank 0 listens for other ranks cost a job nothing (strangers.py has what they
# do): it comes to the same bits, its ranks' slices come to rank 0, and the strangers are told of, once a minute.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") here=$(dirname "$(readlink -f "$0")")
enter_folder
export FOLDER=$dir

# job NAME STEPS OPTION...
job() {
  local name=$1 steps=$2
  shift 2
  rm -f 0 1
  limit=300 launch 2 "$support/rank.sh" "$train" --model mlp --data shapes --batch 16 --threads 1 --eval-every 0 \
    --lr-schedule constant --shard-optimizer --steps "$steps" --checkpoint-dir "$name" "$@"
}

# How many steps take 40 s, in which strangers have the time for all they do: 10 s where nothing holds them up.
start=$(now_ms)
job trial 1 && exits "a trial" 0
first=$(($(now_ms) - start)) start=$(now_ms)
job trial2 1601 && exits "a trial" 0
took=$(($(now_ms) - start - first))
steps=$((1600 * 40000 / (took < 1000 ? 1000 : took)))

start=$(now_ms)
job calm $steps --checkpoint-every $((steps / 20))
exits "undisturbed" 0
calm=$(($(now_ms) - start)) start=$(now_ms)

(ulimit -S -n 160; job disturbed $steps --checkpoint-every $((steps / 20))) &
await 60 has_checkpoint disturbed
python3 "$here/strangers.py" "$(cat 0)" "$(cat 1)" >strangers 2>&1
exits "strangers" 0
cat strangers
wait $!
exits "with strangers" 0
echo "$steps steps: $calm ms undisturbed, $(($(now_ms) - start)) ms with strangers"

check "with strangers: the same bits" is "$(bits disturbed $steps)" "$(bits calm $steps)"
check "with strangers: all slices came" lacks "have not all come"
for service in "the watchdog" "slices of checkpoints"; do
  check "strangers at the port for $service are told of" has "port for $service that were not of this job's ranks"
  check "once a minute at most" test "$(count "port for $service")" -le $((($(now_ms) - start) / 60000 + 1))
done
check "strangers are no ranks that are lost" lacks "cannot go on|not watched"
exit $bad
