#!/usr/bin/env bash
# slurm.sh TRAIN [more]: on a Slurm of two nodes a job, jobs that the time limit ends and that lose a node are requeued, resume and finish,
# to the bits of an undisturbed run; once started by mpirun, once by srun. The parts overlap, as they mostly wait.
# `more`, for a person: also the loss of the script's own node, and of a node under srun.
# shellcheck disable=SC2034  # jobs' numbers are read by the jobs' names
. "$(dirname "$0")/../support/lib.sh"
train=$(realpath "$1")
enter_folder
need_slurm 100mbit
begin_job() { submit "$1" "$2" --steps 60 --checkpoint-dir "$1"; } # NAME SPEC
# Slurm lets a requeued job wait for two minutes; not here, where it also may then take its time. At once would be too soon:
# a script that starts in the second in which its node puts the one before away fails without a word.
over() { # JOB
  local state
  state=$(fact "$1" JobState)
  case $state in
    COMPLETED) true ;;
    FAILED | CANCELLED | TIMEOUT | NODE_FAIL) sleep 3; [ "$(fact "$1" JobState)" = "$state" ] ;;  # or it is about to be requeued
    PENDING)
      sleep 3
      [[ $(fact "$1" Restarts) == 0 || $(fact "$1" JobState) != PENDING ]] ||
        "$slurm" exec scontrol update jobid="$1" StartTime=now TimeLimit=10 2>/dev/null
      false
      ;;
    *) false ;;
  esac
}
# lose NAME 1|$: the job's first or last node loses power, once there is a checkpoint
lose() {
  await_slurm "a checkpoint of the job $1" 200 has_checkpoint "$1"
  lose_node "${!1}" "$2"
}
age() { echo $((SECONDS - up)); }

jobs=(calm limited lost)
[ "${2:-}" != more ] || jobs+=(first step)
"$slurm" up $((2 * ${#jobs[@]})) 100mbit || exit 1  # at which a step takes 0.3 s, whatever the processors do
up=$SECONDS
calm=$(begin_job calm launcher=srun)
lost=$(begin_job lost launcher=mpirun)
if [ "${2:-}" = more ]; then
  first=$(begin_job first launcher=mpirun)
  step=$(begin_job step launcher=srun)
  lose first 1
  lose step '$'
fi
lose lost '$'
# Slurm looks at limits every 30 s; with 1 min and the signal 30 s before, the first look gives it.
until (($(age) % 30 == 17)); do sleep 0.2; done
limited=$(begin_job limited time=1m,signal=30s,launcher=mpirun)
for name in "${jobs[@]}"; do await_slurm "the end of the job $name" 500 over "${!name}"; done
for name in "${jobs[@]}"; do
  cp "$name"-*.log log
  check "$name: completed" is "$(fact "${!name}" JobState)" COMPLETED
  check "$name: the same bits" is "$(bits "$name")" "$(bits calm)"
done
cp limited-*.log log
check "time limit: requeued" has "this allocation is about to end; requeued, to go on from what limited has: step-"
check "time limit: the last save" has "^signal 15 .*: the run ends after step"
check "time limit: resumed" has "run 2: "
cp lost-*.log log
check "lost node: requeued" has "a rank or node was lost .*; requeued, to go on from what lost has: step-"
check "undisturbed: never requeued" is "$(fact "$calm" Restarts)" 0
for name in "${jobs[@]}"; do echo "$name: requeued $(fact "${!name}" Restarts) times"; done
((bad == 0)) || "$slurm" exec scontrol show jobs
echo "in $(age) s"
exit "$bad"
