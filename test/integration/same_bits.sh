#!/usr/bin/env bash
# same_bits.sh MPIRUN TRAIN: the same command saves the same bytes, and what is not to change the numbers changes no bit.
set -u
mpirun=$1 train=$(realpath "$2")
. "$(dirname "$0")/checks.sh"
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

# job NAME RANKS OPTION...: options that come later win.
job() {
  local name=$1 ranks=$2
  shift 2
  rm -rf "$name"
  timeout 100 "$mpirun" -np "$ranks" --oversubscribe "$train" --data shapes --batch 8 --steps 12 --threads 1 --eval-every 0 \
    --checkpoint-dir "$name" "$@" >log 2>&1 </dev/null
  check "$name, $ranks ranks, $*: exit code $?" test $? -eq 0
}
file() { echo "$1/step-0000000012.h5"; }
state() { "$train" --inspect "$(file "$1")" | tail -n 1; }
# The run id and the hash over it, bytes 48 to 95, are another in each run (docs/reference/checkpoint-format.md).
same_bytes() { cmp -s -n 48 "$1" "$2" && cmp -s -i 128 "$1" "$2"; }

same() { # OPTION...: as the run before it, `first`
  job other $ranks "${options[@]}" "$@"
  check "$*: the same bits" is "$(state other)" "$(state first)"
}
differs() { # OPTION...: or the others compare nothing
  job other $ranks "${options[@]}" "$@"
  check "$*: other bits" test "$(state other)" != "$(state first)"
}

ranks=3
for model in cifar10_cnn resnet20; do
  options=(--model $model --ema 0.9 --label-smoothing 0.1)
  job first $ranks "${options[@]}"
  job again $ranks "${options[@]}"
  check "$model: the same command saves the same bytes" same_bytes "$(file first)" "$(file again)"
  check "$model: the runs tell themselves apart" test "$("$train" --inspect "$(file first)" | grep ^run)" != "$("$train" --inspect "$(file again)" | grep ^run)"
  same --data-threads 3 --checkpoint-every 1 --keep 2 --log-every 1 --metrics metrics.jsonl --check-every 1 --max-time 1h --deterministic
done
differs --seed 2
differs --bucket-mb 0.05 # where the ranks' parts begin, and so the order of three terms

ranks=2 options=(--model mlp --batch 500) # an epoch ends with step 10
job first $ranks "${options[@]}"
same --eval-every 1
check "an evaluation was amid it" has "step 10, evaluation"
same --bucket-mb 0.05 # two terms have one order
exit $bad
