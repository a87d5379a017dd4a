#!/usr/bin/env bash
# slurm.sh TRAIN [more]: on a Slurm of two nodes a job, jobs that the time limit ends and that lose a node are requeued, resume and finish,
# to the bits of an undisturbed run; once started by mpirun, once by srun. The parts overlap, as they mostly wait.
# `more`, for a person: also the loss of the script's own node, and of a node under srun.
# shellcheck disable=SC2034  # jobs' numbers are read by the jobs' names
set -u
train=$(realpath "$1")
slurm=$(dirname "$(readlink -f "$0")")/../support/slurm/slurm.sh
. "$(dirname "$0")/checks.sh"
HOSTS_RUN=$(mktemp -d)
export HOSTS_RUN TMPDIR=$HOSTS_RUN  # TMPDIR: where reports go
trap '"$slurm" down; rm -rf "$HOSTS_RUN"' EXIT
why_not=$("$slurm" check 100mbit) || { echo "skipped: $why_not"; exit 77; }
mkdir "$HOSTS_RUN/jobs" && cd "$HOSTS_RUN/jobs" || exit 1

# submit NAME SPEC: prints the job's number; its log is NAME-<number>.log
submit() {
  local name=$1 spec=$2
  "$train" --emit-sbatch "nodes=2,name=$name,$spec" --model mlp --data shapes --batch 16 --threads 1 --eval-every 0 \
    --log-every 10 --steps 60 --checkpoint-every 10 --checkpoint-dir "$name" >"$name.sbatch" || exit 1
  "$slurm" exec sbatch --parsable "$name.sbatch"
}
fact() { "$slurm" exec scontrol show job "$1" | grep -oP "\b$2=\K[^ ]+"; } # JOB NAME
await() { # WHAT SECONDS CONDITION...
  local what=$1 ends=$((SECONDS + $2))
  shift 2
  until "$@"; do
    ((SECONDS < ends)) || { echo "not in time: $what"; "$slurm" exec squeue -t all; tail -n 30 ./*.log; exit 1; }
    sleep 0.5
  done
}
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
hash_of() { "$train" --inspect "$(printf '%s\n' "$1"/step-*.h5 | tail -n 1)" | grep '^state-hash'; }
has_checkpoint() { compgen -G "$1/step-*.h5" >/dev/null; }
# lose NAME 1|$: the job's first or last node loses power, once there is a checkpoint
lose() {
  local node
  await "a checkpoint of the job $1" 200 has_checkpoint "$1"
  node=$("$slurm" exec scontrol show hostnames "$(fact "${!1}" NodeList)" | sed -n "$2p")
  "$slurm" power "${node##*-}"
}
age() { echo $((SECONDS - up)); }

jobs=(calm limited lost)
[ "${2:-}" != more ] || jobs+=(first step)
"$slurm" up $((2 * ${#jobs[@]})) 100mbit || exit 1  # at which a step takes 0.3 s, whatever the processors do
up=$SECONDS
calm=$(submit calm launcher=srun)
lost=$(submit lost launcher=mpirun)
if [ "${2:-}" = more ]; then
  first=$(submit first launcher=mpirun)
  step=$(submit step launcher=srun)
  lose first 1
  lose step '$'
fi
lose lost '$'
# Slurm looks at limits every 30 s; with 1 min and the signal 30 s before, the first look gives it.
until (($(age) % 30 == 17)); do sleep 0.2; done
limited=$(submit limited time=1m,signal=30s,launcher=mpirun)
for name in "${jobs[@]}"; do await "the end of the job $name" 500 over "${!name}"; done
for name in "${jobs[@]}"; do
  cp "$name"-*.log log
  check "$name: completed" is "$(fact "${!name}" JobState)" COMPLETED
  check "$name: the same bits" is "$(hash_of "$name")" "$(hash_of calm)"
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
