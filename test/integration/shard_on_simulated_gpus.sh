#!/usr/bin/env bash
# shard_on_simulated_gpus.sh PART MPIRUN TRAIN TRAIN_ON_SIMULATED_GPU PHOTOGRAPHS: with --shard-optimizer ranks on simulated GPUs train,
# save, resume and leave out the same bits as without it. The simulated NCCL scatters and gathers (its folder is in
# LD_LIBRARY_PATH). PART: training, resume, faults.
. "$(dirname "$0")/../support/lib.sh"
part=$1 mpirun=$2 cpu=$(realpath "$3") gpu=$(realpath "$4") photographs=$(realpath "$5")
unset CUDA_VISIBLE_DEVICES  # tests hide real GPUs; these are simulated
enter_folder
limit=60
export OMP_NUM_THREADS=1 XDG_CACHE_HOME=$dir/cache SIMULATED_GPU_TELLS=1 SIMULATED_GPUS=4 SIMULATED_GPU_OPEN=1 TMPDIR=$dir

shard=--shard-optimizer program=$gpu device=cuda
training=(--model resnet20 --batch 1 --lr-schedule constant --warmup-epochs 0 --lr 0.01 --bucket-mb 0.2 --eval-every 0 --log-every 1
  --check-every 2)
job() { # NAME RANKS STEPS OPTION...: ends well in folder NAME, and no simulated part complains
  local name=$1 ranks=$2 steps=$3 code
  shift 3
  launch "$ranks" "$program" --device $device --data "images:$photographs" "${training[@]}" --steps "$steps" --checkpoint-dir "$name" "$@"
  code=$?
  cp log "$name.log"
  check "$name, $ranks ranks, $*: exit code $code" test $code -eq 0
  check "$name, $ranks ranks, $*: nobody complains" lacks "^simulated "
}
state() { "$cpu" --inspect "$(file_of "$1" "$2")" | sed -n 's/^state-hash //p'; }
same() { check "$1: the same bits behind step $4" is "$(state "$2" "$4")" "$(state "$3" "$4")"; }
# Without times.
losses() { sed -n 's/.*\(step [0-9]*, loss = [^ ]*\).*\(lr [^ ]*\).*/\1 \2/p' "$1.log"; }
both() { # NAME RANKS STEPS OPTION...: without shards in NAME-plain, with them in NAME
  job "$1-plain" "${@:2}"
  job "$@" $shard
  same "$1" "$1-plain" "$1" "$3"
  check "$1: the same losses" is "$(losses "$1")" "$(losses "$1-plain")"
}

training() {
  local ranks parts
  for ranks in 2 4; do
    both "$ranks-ranks" $ranks 4 --lr 0.1
    parts=$(sed -n 's/^optimizer: the ranks share its state: .* has \([0-9]*\) bytes of \([0-9]*\), in \([0-9]*\) parts/\1 \2 \3/p' log)
    echo "$ranks ranks: bytes of the optimizer's state of rank 0, of all, parts: $parts"
    check "$ranks ranks: several parts, 1/$ranks of the state" awk -v n=$ranks '{ exit !($3 > 2 && $1 * n > 0.99 * $2 && $1 * n < 1.01 * $2) }' <<<"$parts"
  done
  check "fp16 leaves a step out" has "step 1 left out"
  both adam 4 4 --optimizer adam --lr 0.001 --ema 0.9 --precision bf16 --sync-batchnorm --nccl-register
  both rmsprop 2 3 --optimizer rmsprop --precision fp32 --accumulate 2
  # Launched one by one, and with sums between graphs.
  job adam-no-graph 4 4 --optimizer adam --lr 0.001 --ema 0.9 --precision bf16 --sync-batchnorm $shard --no-graph
  same "--no-graph" adam-plain adam-no-graph 4
  SIMULATED_NCCL_FAULT=capture:1:1 job between 4 4 --optimizer adam --lr 0.001 --ema 0.9 --precision bf16 --sync-batchnorm $shard
  check "sums between graphs: it is told" has "^graphs: sums between GPUs are queued between CUDA graphs"
  same "sums between graphs" adam-plain between 4
  both sgd 2 2 --optimizer sgd
  both one-bucket 4 2 --optimizer adamw --lr 0.001 --bucket-mb 4
  check "one bucket: a rank has one part" has "^optimizer: the ranks share its state: rank 0 of 4 .*, in 1 part$"
  job baseline 2 3 $shard --baseline
  check "--baseline: a verdict" has "efficiency"
  job alone 1 2 $shard
  check "one rank: it is told" has "^--shard-optimizer changes nothing: no other rank trains"
}

goes_on() { # FROM STEP NAME RANKS STEPS OPTION...
  mkdir -p "$3" && cp "$(file_of "$1" "$2")" "$3"
  job "${@:3}"
}

resume() {
  local end=8 how="--optimizer adam --lr 0.001 --ema 0.9 --precision fp32"
  # Hosts are two steps in front of their GPUs: a save is asked for two steps before.
  job plain 2 $end $how --checkpoint-every 4
  job shard 2 $end $how --checkpoint-every 4 $shard
  same "saved amid training" plain shard 4
  same "at the end" plain shard $end
  check "files are the same, too" same_bytes {shard,plain}/step-000000000$end.h5
  goes_on shard 4 to-plain 2 $end $how
  same "plain training goes on with it" plain to-plain $end
  goes_on plain 4 to-shard 2 $end $how $shard
  same "it goes on with plain training's" plain to-shard $end
  goes_on plain 4 four-plain 4 6 $how
  goes_on shard 4 four 4 6 $how $shard
  same "four ranks go on" four-plain four 6
  goes_on four 6 one 1 8 $how
  goes_on four-plain 6 one-plain 1 8 $how
  same "one rank goes on" one-plain one 8
  # A copy is under way when the next save is due: that one is skipped.
  job often 2 12 $how --checkpoint-every 1 --keep 100 $shard
  check "due at every step: none fails" has "checkpoints .*saved, 0 failed, [1-9][0-9]* skipped"
  check "due at every step: some are saved before the end" test "$(find often -name "step-*.h5" | wc -l)" -ge 3
  job whole 2 9 $how --verify-resume 3 $shard
  check "--verify-resume: passed" has "^verify-resume: passed: .* on 2 ranks"

  program=$cpu device=cpu
  goes_on plain 4 cpu-plain 2 6 $how
  goes_on shard 4 cpu 2 6 $how $shard
  same "CPUs go on" cpu-plain cpu 6
  program=$gpu device=cuda
  goes_on cpu-plain 6 back-plain 2 8 $how
  goes_on cpu 6 back 2 8 $how $shard
  same "and GPUs after them" back-plain back 8
}

faults() {
  # The first update is too large for the next loss.
  job nan-plain 2 4 --optimizer momentum --lr 1e6 --on-nan skip --precision fp32
  job nan 2 4 --optimizer momentum --lr 1e6 --on-nan skip --precision fp32 $shard
  check "steps are left out" has "left out"
  same "the same steps are left out" nan-plain nan 4
  # One rank is lost amid a step: its supervisor's second try goes on from what was saved.
  SIMULATED_NCCL_FAULT=dead:1:180 launch 2 "$gpu" --device cuda --data "images:$photographs" "${training[@]}" --steps 1000 \
    --checkpoint-dir lost --checkpoint-every 3 --restarts 0 $shard
  check "a lost rank ends the job: exit code $?" has "rank 1 on .* has ended without a word"
  check "a lost rank: one line for programs" is "$(grep -c "^fault: kind=rank_lost " log)" 1
  check "a lost rank: there is a checkpoint" has_checkpoint lost
  local saved
  saved=$(basename "$(newest lost)" .h5) saved=$((10#${saved#step-}))
  job lost 2 $((saved + 2)) $shard
  check "which is resumed" has "resumed from step-"
  job calm 2 $((saved + 2))
  check "and comes to the same bits" is "$(state lost $((saved + 2)))" "$(state calm $((saved + 2)))"
}

$part
exit $bad
