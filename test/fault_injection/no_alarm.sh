#!/usr/bin/env bash
# no_alarm.sh MPIRUN TRAIN MINUTES [RANKS_A_CORE]: trains one thing after another with four times as many ranks as cores, and
# nothing wrong with any of it: the watchdog must end none and blame nobody. On demand; says what it saw.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") minutes=$3 crowd=${4:-4} runs=0 alarmed=0 slow=0
enter_folder
export TMPDIR=$dir  # where reports go
limit=$((60 * minutes + 600))
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
    launch "$ranks" "$train" $training --threads 1 --seed $runs --checkpoint-dir saves --checkpoint-every 10s --resume never --log-every 1000000
    code=$? runs=$((runs + 1))
    if ((code != 0)) || has "$alarms" || compgen -G "train-report-*" >/dev/null; then
      alarmed=$((alarmed + 1))
      wrong "run $runs, $training: ended with $code"
      rm -f train-report-*
    fi
    slow=$((slow + $(count 'holds up the others')))
    rm -rf saves
  done
done
echo "$ranks ranks on $(nproc) cores, $((SECONDS / 60)) minutes, $runs trainings, $alarmed with an alarm, $slow notices of a slow rank; load $(cut -d' ' -f1-3 /proc/loadavg)"
exit $bad
