#!/usr/bin/env bash
# compress_between_hosts.sh TRAIN: gradients that travel between hosts compressed: far fewer bytes, all ranks have the same
# weights in every run, training learns, and a resume says what it lacks.
set -u
train=$(realpath "$1")
. "$(dirname "$0")/checks.sh"
. "$(dirname "$(readlink -f "$0")")/../support/hosts/borrow.sh"
"$hosts" up 2 || exit 1
cd "$HOSTS_RUN" || exit 1

run() { # NAME STEPS OPTION...
  local name=$1 steps=$2
  shift 2
  timeout 100 "$hosts" mpirun 1 "$train" --model mlp --data shapes --batch 16 --threads 1 --eval-every 0 --log-every 1 --check-every 1 \
    --steps "$steps" --checkpoint-dir "$HOSTS_RUN/$name" "$@" >log 2>&1 || { echo "$name failed:"; cat log; exit 1; }
}
state() { "$train" --inspect "$HOSTS_RUN/$1/step-0000000060.h5" | tail -n 1; }
last_losses() { sed -n 's/.*step [45].*, loss = \([0-9.]*\) .*/\1/p' log | awk '{ sum += $1 } END { print sum / NR }'; } # their mean
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a > 0 && d < 0.3 && -d < 0.3) }'; }
megabytes() { sed -n 's/.*links: \([0-9.]*\) MB of gradients.*/\1/p' log; }
fewer() { [ -n "$1" ] && awk -v a="$1" -v b="$2" 'BEGIN { exit !(4 * a < b) }'; }

run fp32 60
exact=$(last_losses) bytes=$(megabytes)
for how in powersgd:2 topk:0.05; do
  run "${how%:*}" 60 --compress $how
  check "$how: the loss is near fp32's" near "$exact" "$(last_losses)"
  check "$how: what links cost is of compressed bytes" fewer "$(megabytes)" "$bytes"
  check "$how: gradients are compressed" test "$(state "${how%:*}")" != "$(state fp32)"
done
run again 60 --compress powersgd:2
check "again: the same bits" is "$(state again)" "$(state powersgd)"
run again 62 --compress powersgd:2
check "a resume tells what it has not" has "what --compress had left out of the sums is in no checkpoint"
timeout 60 "$train" --model mlp --data shapes --steps 1 --eval-every 0 --compress topk:0.1 >log 2>&1
check "on one host: what it is for is told" has "compress topk:0.1 changes nothing"
exit $bad
