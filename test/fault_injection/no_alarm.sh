#!/usr/bin/env bash
# no_alarm.sh MPIRUN TRAIN MINUTES [RANKS_A_CORE]: trains one thing after another with four times as many ranks as cores, and
# nothing wrong with any of it: the watchdog must end none and blame nobody. On demand; says what it saw.
set -u
mpirun=$1 train=$2 minutes=$3 crowd=${4:-4} runs=0 bad=0 slow=0
work=$(mktemp -d)
export TMPDIR=$work
trap 'rm -rf "$work"' EXIT
ranks=$(($(nproc) * crowd)) until=$((SECONDS + 60 * minutes))
alarms='the job cannot go on|has ended without a word|has not been heard|others wait for it|waited for one another|not done after'

trainings=(
  "--model mlp --data shapes --batch 32 --steps 4000"
  "--model cifar10_cnn --data shapes --batch 8 --steps 150 --eval-every 1"
  "--model resnet20 --data shapes --batch 4 --steps 60 --sync-batchnorm"
  "--model cifar10_cnn --data shapes --batch 4 --steps 100 --accumulate 2 --allreduce mpi"
)
while ((SECONDS < until)); do
  for training in "${trainings[@]}"; do
    ((SECONDS < until)) || break
    # shellcheck disable=SC2086
    "$mpirun" -np "$ranks" --oversubscribe "$train" $training --threads 1 --seed $runs --checkpoint-dir "$work/saves" \
      --checkpoint-every 10s --resume never --log-every 1000000 >"$work/log" 2>&1
    code=$? runs=$((runs + 1))
    if ((code != 0)) || grep -qE "$alarms" "$work/log" || ls "$work"/train-report-* >/dev/null 2>&1; then
      bad=$((bad + 1))
      echo "run $runs, $training: ended with $code"
      cat "$work/log"
      rm -f "$work"/train-report-*
    fi
    slow=$((slow + $(grep -c 'holds up the others' "$work/log")))
    rm -rf "$work/saves"
  done
done
echo "$ranks ranks on $(nproc) cores, $((SECONDS / 60)) minutes, $runs trainings, $bad with an alarm, $slow notices of a slow rank; load $(cut -d' ' -f1-3 /proc/loadavg)"
[ "$bad" -eq 0 ]
