#!/usr/bin/env bash
# compress_between_hosts.sh TRAIN: gradients that travel between hosts compressed: far fewer bytes, all ranks have the same weights in
# every run, and a resume has the bits of a run that was not interrupted, or says why not.
. "$(dirname "$0")/../support/lib.sh"
train=$(realpath "$1")
enter_folder
make_hosts 2

a_host=1
train_on() { # NAME STEPS OPTION...
  local name=$1 steps=$2
  shift 2
  launch_on_hosts $a_host "$train" --model mlp --data shapes --batch 16 --threads 1 --eval-every 0 --log-every 1 --check-every 1 \
    --steps "$steps" --checkpoint-dir "$dir/$name" "$@"
}
run() { train_on "$@" || give_up "$1 failed"; }
megabytes() { sed -n 's/.*links: \([0-9.]*\) MB of gradients.*/\1/p' log; }
fewer() { [ -n "$1" ] && awk -v a="$1" -v b="$2" 'BEGIN { exit !(4 * a < b) }'; }

run fp32 60 --tuning off
bytes=$(megabytes)
for how in powersgd:2 topk:0.05; do
  name=${how%:*}
  run $name 60 --compress $how
  check "$how: what links cost is of compressed bytes" fewer "$(megabytes)" "$bytes"
  check "$how: gradients are compressed" differ "$(bits $name)" "$(bits fp32)"
  run $name-twice 30 --compress $how
  run $name-twice 60 --compress $how
  check "$how: a resume goes on" has "resumed from step-0000000030.h5 at step 30"
  check "$how: a resume has all of it" lacks "begins anew"
  check "$how: a resume has the same bits" is "$(bits $name-twice)" "$(bits $name)"
done
run again 60 --compress powersgd:2
check "again: the same bits" is "$(bits again)" "$(bits powersgd)"

run measured 30 --compress powersgd:2
run measured 60 --compress powersgd:2 --baseline
check "--baseline on a resume: the same bits" is "$(bits measured)" "$(bits powersgd)"

# Two ranks a host: each keeps what it sums.
a_host=2
run four 40 --compress powersgd:2
run four-twice 20 --compress powersgd:2
run four-twice 40 --compress powersgd:2
check "two ranks a host: a resume has the same bits" is "$(bits four-twice)" "$(bits four)"
limit=200 launch_on_hosts 2 "$train" --model mlp --data shapes --batch 16 --threads 1 --eval-every 0 --verify-resume 20 --compress topk:0.05
exits "--verify-resume" 0
check "--verify-resume says so" has "verify-resume: passed"

# What does not fit is dropped.
a_host=1
run four 42 --compress powersgd:2
check "other ranks: it is told" has "what --compress had left out of the sums begins anew, as the checkpoint's is of other ranks, or of another --compress: bits differ"
run fp32 62 --compress powersgd:2
check "a checkpoint without: it is told" has "begins anew, as the checkpoint has none of it"
run powersgd 62
check "without --compress it is not needed" lacks "begins anew"
check "without --compress training goes on" has "^trained 2 steps"

# Ranks that mpirun kills amid a step: their last step is saved, without what other ranks had left out.
mkdir killed
timeout 100 "$hosts" mpirun 1 "$train" --model resnet20 --data shapes --batch 16 --accumulate 150 --threads 1 --eval-every 0 --log-every 1 --steps 20 \
  --checkpoint-dir "$dir/killed" --compress powersgd:2 >log 2>&1 &
job=$!
await 90 has 'step 2, loss'
sleep 0.3
for pid in $(pgrep -f -- "--checkpoint-dir $dir/killed"); do # not `timeout`, which would signal mpirun twice
  [ "$(cat "/proc/$pid/comm")" != mpirun ] || kill -TERM "$pid"
done
wait $job
wait_for 30 test -e killed/last-save.txt
check "killed: the last step is saved" grep -q '^result: saved' killed/last-save.txt
cp log told
train_on killed 30 --model resnet20 --accumulate 150 --max-time 1s --compress powersgd:2
cat told >>log
check "killed: training goes on from there" has "resumed from step-000000000[2-9].h5"
if ! grep -q 'the run ends after step' told; then
  check "killed: what is not there is told" has "begins anew, as the ranks were killed before the checkpoint had all of it"
fi

launch_alone "$train" --model mlp --data shapes --steps 1 --eval-every 0 --compress topk:0.1
check "on one host: what it is for is told" has "compress topk:0.1 changes nothing"
exit $bad
