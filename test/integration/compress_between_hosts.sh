#!/usr/bin/env bash
# compress_between_hosts.sh TRAIN: gradients that travel between hosts compressed: far fewer bytes, all ranks have the same weights in
# every run, and a resume has the bits of a run that was not interrupted, or says why not.
set -u
train=$(realpath "$1")
. "$(dirname "$0")/checks.sh"
. "$(dirname "$(readlink -f "$0")")/../support/hosts/borrow.sh"
"$hosts" up 2 || exit 1
cd "$HOSTS_RUN" || exit 1

a_host=1
train_on() { # NAME STEPS OPTION...
  local name=$1 steps=$2
  shift 2
  timeout 100 "$hosts" mpirun $a_host "$train" --model mlp --data shapes --batch 16 --threads 1 --eval-every 0 --log-every 1 --check-every 1 \
    --steps "$steps" --checkpoint-dir "$HOSTS_RUN/$name" "$@" >log 2>&1
}
run() { train_on "$@" || { echo "$1 failed:"; cat log; exit 1; }; }
file() { printf '%s/%s/step-%010d.h5' "$HOSTS_RUN" "$1" "$2"; }
state() { "$train" --inspect "$(file "$1" "${2:-60}")" | tail -n 1; }
megabytes() { sed -n 's/.*links: \([0-9.]*\) MB of gradients.*/\1/p' log; }
fewer() { [ -n "$1" ] && awk -v a="$1" -v b="$2" 'BEGIN { exit !(4 * a < b) }'; }

run fp32 60 --tuning off
bytes=$(megabytes)
for how in powersgd:2 topk:0.05; do
  name=${how%:*}
  run $name 60 --compress $how
  check "$how: what links cost is of compressed bytes" fewer "$(megabytes)" "$bytes"
  check "$how: gradients are compressed" test "$(state $name)" != "$(state fp32)"
  run $name-twice 30 --compress $how
  run $name-twice 60 --compress $how
  check "$how: a resume goes on" has "resumed from step-0000000030.h5 at step 30"
  check "$how: a resume has all of it" lacks "begins anew"
  check "$how: a resume has the same bits" is "$(state $name-twice)" "$(state $name)"
done
run again 60 --compress powersgd:2
check "again: the same bits" is "$(state again)" "$(state powersgd)"

# Two ranks a host: each keeps what it sums.
a_host=2
run four 60 --compress powersgd:2
run four-twice 30 --compress powersgd:2
run four-twice 60 --compress powersgd:2
check "two ranks a host: a resume has the same bits" is "$(state four-twice)" "$(state four)"
timeout 200 "$hosts" mpirun 2 "$train" --model mlp --data shapes --batch 16 --threads 1 --eval-every 0 --verify-resume 20 --compress topk:0.05 >log 2>&1
check "--verify-resume passes" is $? 0
check "--verify-resume says so" has "verify-resume: passed"

# What does not fit is dropped.
a_host=1
run four 62 --compress powersgd:2
check "other ranks: it is told" has "what --compress had left out of the sums begins anew, as the checkpoint's is of other ranks, or of another --compress: bits differ"
run fp32 62 --compress powersgd:2
check "a checkpoint without: it is told" has "begins anew, as the checkpoint has none of it"
run powersgd 62
check "without --compress it is not needed" lacks "begins anew"
check "without --compress training goes on" has "^trained 2 steps"

# Ranks that mpirun kills amid a step: their last step is saved, without what other ranks had left out.
mkdir killed
timeout 100 "$hosts" mpirun 1 "$train" --model resnet20 --data shapes --batch 16 --accumulate 150 --threads 1 --eval-every 0 --log-every 1 --steps 20 \
  --checkpoint-dir "$HOSTS_RUN/killed" --compress powersgd:2 >log 2>&1 &
job=$!
for ((i = 0; i < 900; i++)); do grep -q 'step 2, loss' log && break || sleep 0.1; done
sleep 0.3
for pid in $(pgrep -f -- "--checkpoint-dir $HOSTS_RUN/killed"); do # not `timeout`, which would signal mpirun twice
  [ "$(cat "/proc/$pid/comm")" != mpirun ] || kill -TERM "$pid"
done
wait $job
for ((i = 0; i < 300; i++)); do [ -e killed/last-save.txt ] && break || sleep 0.1; done
check "killed: the last step is saved" grep -q '^result: saved' killed/last-save.txt
cp log told
train_on killed 30 --model resnet20 --accumulate 150 --max-time 1s --compress powersgd:2
cat told >>log
check "killed: training goes on from there" has "resumed from step-000000000[2-9].h5"
if ! grep -q 'the run ends after step' told; then
  check "killed: what is not there is told" has "begins anew, as the ranks were killed before the checkpoint had all of it"
fi

timeout 60 "$train" --model mlp --data shapes --steps 1 --eval-every 0 --compress topk:0.1 >log 2>&1
check "on one host: what it is for is told" has "compress topk:0.1 changes nothing"
exit $bad
