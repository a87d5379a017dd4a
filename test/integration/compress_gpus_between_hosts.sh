#!/usr/bin/env bash
# compress_gpus_between_hosts.sh TRAIN TRAIN_ON_SIMULATED_GPU COMPARE PHOTOGRAPHS: gradients of simulated GPUs that CPUs compress between
# two hosts. NCCL, which does the rest, is simulated, too (its folder is in LD_LIBRARY_PATH).
. "$(dirname "$0")/../support/lib.sh"
cpu=$(realpath "$1") gpu=$(realpath "$2") compare=$(realpath "$3") photographs=$(realpath "$4")
unset CUDA_VISIBLE_DEVICES  # tests hide real GPUs; these are simulated
enter_folder
make_hosts 2
limit=150 a_host=1
export OMP_NUM_THREADS=1 XDG_CACHE_HOME=$dir/cache SIMULATED_GPU_TELLS=1 SIMULATED_GPUS=2 SIMULATED_GPU_OPEN=1

run() { # PROGRAM NAME OPTION...
  local program=$1 name=$2 code
  shift 2
  launch_on_hosts $a_host "$program" --eval-every 0 --log-every 1 --check-every 1 --lr-schedule constant --tuning off \
    --checkpoint-dir "$dir/$name" "$@"
  code=$?
  check "$name: exit code $code" test $code -eq 0
  check "$name: nobody complains" lacks "^simulated "
}
state() { "$cpu" --inspect "$1" | sed -n 's/^state-hash //p'; }
same() { check "$1: the same bits" is "$(state "$2")" "$(state "$3")"; }
like() { check "$1" "$compare" "$2" "$3" "$4"; }
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }'; }

mlp="--model mlp --optimizer momentum --lr 0.01 --data shapes --batch 8 --device cuda --precision fp32"
last=step-0000000006.h5

# Where all numbers travel, sums are NCCL's but for the order.
run "$gpu" plain $mlp --steps 6
run "$gpu" all $mlp --steps 6 --compress topk:1
check "graphs: what goes between them is told" has "queued between CUDA graphs.*gradients are compressed by the CPUs"
for name in plain all; do run "$gpu" $name $mlp --steps 7; done # whose checkpoints have the same tensors
like "all numbers travel: as without compression" plain/step-0000000007.h5 all/step-0000000007.h5 1e-5
for how in powersgd:2 topk:0.05; do
  name=${how%:*}
  run "$gpu" $name $mlp --steps 6 --compress $how
  check "$how: gradients are compressed" differ "$(state $name/$last)" "$(state plain/$last)"
  run "$cpu" $name-cpu --model mlp --optimizer momentum --lr 0.01 --data shapes --batch 8 --device cpu --steps 6 --compress $how
  like "$how: as between CPUs" $name/$last $name-cpu/$last 1e-3
  run "$gpu" $name-parts $mlp --steps 3 --compress $how
  run "$gpu" $name-parts $mlp --steps 6 --compress $how --no-graph
  check "$how: a resume goes on" has "resumed from step-0000000003.h5 at step 3"
  check "$how: a resume has all of it" lacks "begins anew"
  same "$how: resumed, without graphs" $name/$last $name-parts/$last
done

# Saves amid training, by plan and by signal, have all of it: whoever goes on from one has the same bits.
run "$gpu" saves $mlp --steps 30 --checkpoint-every 10 --keep 9 --compress powersgd:2
for step in 10 20; do check "saves: step $step" test -e "saves/step-00000000$step.h5"; done
run "$gpu" from10 $mlp --steps 30 --compress powersgd:2 --resume saves/step-0000000010.h5
check "from a save amid training: all of it" lacks "begins anew"
same "from a save amid training" saves/step-0000000030.h5 from10/step-0000000030.h5
run "$cpu" cpu30 --model mlp --optimizer momentum --lr 0.01 --data shapes --batch 8 --device cpu --steps 30 --compress powersgd:2 \
  --resume saves/step-0000000010.h5
check "CPUs go on with it: all of it" lacks "begins anew"
like "CPUs go on with it" saves/step-0000000030.h5 cpu30/step-0000000030.h5 1e-3
run "$gpu" many $mlp --steps 8 --accumulate 2 --ema 0.9 --compress powersgd:2
run "$gpu" many-parts $mlp --steps 5 --accumulate 2 --ema 0.9 --compress powersgd:2
run "$gpu" many-parts $mlp --steps 8 --accumulate 2 --ema 0.9 --compress powersgd:2
same "accumulated, with a moving average: resumed" many/step-0000000008.h5 many-parts/step-0000000008.h5
run "$gpu" first $mlp --steps 2 --compress powersgd:2 --init-from saves/step-0000000030.h5
check "--init-from: so it is" has "step-0000000030.h5"

run "$gpu" late $mlp --steps 6 --compress powersgd:2 --tuning start=late
same "sums that start late" powersgd/$last late/$last

# --tuning all tries NCCL's sums in fp32 and bf16, and this.
run "$gpu" tuned $mlp --steps 8 --tuning all
tuned=$(state tuned/step-0000000008.h5)
check "--tuning all: three ways are tried" has "gradients travel as .*, as --tuning all tried; ms a step: --gradient-dtype fp32 .*bf16 .*powersgd:4"

way=$(sed -n 's/.*gradients travel as \(--[a-z-]* [a-z0-9:]*\), as --tuning all tried.*/\1/p' log)
run "$gpu" by-hand $mlp --steps 8 $way
check "--tuning all: the bits of what it took, $way" is "$tuned" "$(state by-hand/step-0000000008.h5)"
run "$gpu" tuned $mlp --steps 9 --tuning all
check "--tuning all: a resume goes on as the checkpoint" has "gradients travel as $way, as in the checkpoint"

# A rank that dies while the other waits for its sums ends the job, and what was saved by a signal is there.
"$hosts" mpirun 1 "$gpu" $mlp --eval-every 0 --log-every 20 --steps 100000 --checkpoint-dir "$dir/killed" --metrics "$dir/killed.jsonl" \
  --compress powersgd:2 >log 2>&1 </dev/null &
job=$!
await 60 has 'step 20, loss'
process_of() { # RANK
  local pid
  for pid in $(pgrep -f -- "--checkpoint-dir $dir/killed"); do
    [[ $(cat "/proc/$pid/comm") == train_on* ]] && tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$1" && echo "$pid"
  done
}
kill -USR1 "$(process_of 1)"
await 30 grep -qs '"kind":"checkpoint"' killed.jsonl
check "SIGUSR1: it is saved, and the job goes on" kill -0 $job
kill -KILL "$(process_of 1)"
killed=$(date +%s.%N)
wait $job
check "a killed rank: the job ends in 8 s" less "$(since "$killed")" 8
check "a killed rank: it is named" has "rank 1 on .* has ended without a word|noticed that process rank 1 " # of another host mpirun knows
run "$gpu" killed $mlp --max-time 1s --compress powersgd:2
check "a killed rank: resumed from what SIGUSR1 saved" has "^resumed from step-"
check "a killed rank: all of it" lacks "begins anew"

# A convolutional network in 16 bits, whose loss scale changes, with BatchNorms that span ranks, and two ranks a host.
a_host=2
net="--model resnet20 --data images:$photographs --batch 1 --device cuda --precision fp16 --sync-batchnorm --compress powersgd:2"
run "$gpu" whole $net --steps 4 --checkpoint-every 3 --keep 9
check "a step that is left out is told by one rank" is "$(grep -c "step 1 left out" log)" 1
run "$gpu" parts $net --steps 2
run "$gpu" parts $net --steps 4
check "two ranks a host: a resume has all of it" lacks "begins anew"
run "$gpu" third $net --steps 4 --resume whole/step-0000000003.h5
same "two ranks a host: from a save amid training" whole/step-0000000004.h5 third/step-0000000004.h5
same "two ranks a host: resumed" whole/step-0000000004.h5 parts/step-0000000004.h5
launch_on_hosts 2 "$gpu" $net --eval-every 0 --verify-resume 3
exits "--verify-resume" 0
check "--verify-resume says so" has "verify-resume: passed"

launch_alone "$gpu" $mlp --steps 1 --eval-every 0 --compress topk:0.1
check "on one host: what it is for is told" has "compress topk:0.1 changes nothing"
launch_alone "$gpu" $mlp --steps 1 --eval-every 0 --compress topk:0.1 --allreduce nccl
exits "with --allreduce nccl" 64
exit $bad
