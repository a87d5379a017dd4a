#!/usr/bin/env bash
# slow_down_trials.sh BUILD [ROUNDS]: does train name what slows it down? Five causes, at once and within a minute, every other round beside
# other work that comes and goes: ten trials a round (5: 50 trials, two hours). Prints each trial, and how many were right, unknown, wrong
# or untold. As root, with nothing else on the machine.
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "$1")
slowfs=$(find "$build" -name slowfs -type f -perm -u+x | head -n 1)
trials=$(mktemp)
trap 'rm -f "$trials"' EXIT
for ((round = 1; round <= ${2:-5}; ++round)); do
  beside=()
  ((round % 2)) || beside=(BESIDE=yes)
  for cause in stopped core quota disk link; do
    for drift in 0 60; do
      env TRIAL=yes "DRIFT_S=$drift" "${beside[@]}" \
        test/fault_injection/slow_downs.sh mpirun "$build/train" "${slowfs:--}" "$cause" 2>&1 | grep -E "^(trial|skipped|wrong)" | tee -a "$trials"
    done
  done
done
echo
grep '^trial' "$trials" | sed 's/^trial \([a-z]*\).*: \(right\|unknown\|wrong\|untold\): .*/\1 \2/' | sort | uniq -c
