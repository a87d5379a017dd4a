#!/usr/bin/env bash
# ranks_on_simulated_gpus.sh PART MPIRUN TRAIN TRAIN_ON_SIMULATED_GPU COMPARE PHOTOGRAPHS MODELS: jobs of several ranks, each with a
# simulated GPU, that sum by the simulated NCCL (its folder is in LD_LIBRARY_PATH). PART: training, options, captures, many, refusals,
# inception, whole_inception.
. "$(dirname "$0")/../support/lib.sh"
part=$1 mpirun=$2 cpu=$(realpath "$3") gpu=$(realpath "$4") compare=$(realpath "$5") photographs=$(realpath "$6") models=$(realpath "$7")
unset CUDA_VISIBLE_DEVICES  # tests hide real GPUs; these are simulated
enter_folder
limit=120
export OMP_NUM_THREADS=1 XDG_CACHE_HOME=$dir/cache SIMULATED_GPU_TELLS=1 SIMULATED_GPUS=4 SIMULATED_GPU_OPEN=1

model=(--model resnet20) device=cuda data=images:$photographs
job() { # RANKS OPTION...: ends well, and no simulated part complains
  local ranks=$1 code
  shift
  launch "$ranks" "$gpu" --device "$device" --data "$data" --eval-every 0 --log-every 1 \
    --lr-schedule constant --check-every 1 "${model[@]}" "$@"
  code=$?
  check "$ranks ranks, $*: exit code $code" test $code -eq 0
  check "$ranks ranks, $*: nobody complains" lacks "^simulated "
}
state() { "$cpu" --inspect "$1" | sed -n 's/^state-hash //p'; }
same() { check "$1: the same bits" is "$(state "$2")" "$(state "$3")"; }
like() { check "$1" "$compare" "$2" "$3" "$4"; }

training() {
  local end=step-0000000004.h5
  job 2 --batch 2 --steps 4 --checkpoint-dir whole --nccl-register
  check "a GPU for each rank" lacks "share a GPU"
  check "a step that is left out is told by one rank" is "$(grep -c "step 1 left out" log)" 1
  job 2 --batch 2 --steps 4 --checkpoint-dir again
  same "again, unregistered" whole/$end again/$end
  job 2 --batch 2 --steps 4 --checkpoint-dir blocking --nccl-blocking
  same "calls of NCCL that block" whole/$end blocking/$end
  job 2 --batch 2 --steps 2 --checkpoint-dir parts
  SIMULATED_GPUS=1 job 2 --batch 2 --steps 4 --checkpoint-dir parts --no-graph
  check "on one GPU: it is told" has "WARNING: up to 2 ranks share a GPU"
  same "in two parts, the second without graphs and on one GPU" whole/$end parts/$end
  SIMULATED_NCCL_FAULT=slow:1:5 job 2 --batch 2 --steps 4 --checkpoint-dir slow
  same "a slow peer" whole/$end slow/$end

  # Four ranks go on with what two have begun, and all come to what one rank comes to.
  local sums="--global-batch 4 --sync-batchnorm --precision fp32 --lr 0.01 --warmup-epochs 0"
  job 1 $sums --steps 4 --checkpoint-dir one
  job 2 $sums --steps 2 --checkpoint-dir more
  SIMULATED_NCCL_TELLS=1 job 4 $sums --steps 4 --checkpoint-dir more
  check "sums of BatchNorms do not wait for those of gradients" is "$(grep -c "^nccl: a communicator of rank" log)" 8
  check "four ranks go on: what changed is told" has "saved by 2 ranks, going on with 4"
  like "one, two and four ranks agree" one/$end more/$end 1e-5
}

options() {
  local end=step-0000000002.h5
  job 2 --batch 2 --verify-resume 3
  check "--verify-resume: passed" has "^verify-resume: passed: .* on 2 ranks"
  local sums="--global-batch 4 --sync-batchnorm --precision fp32 --lr 0.1 --warmup-epochs 0 --steps 2"
  job 2 $sums --accumulate 2 --checkpoint-dir accumulated
  job 2 $sums --shares 2:6 --checkpoint-dir given
  job 2 $sums --shares 1:3 --checkpoint-dir counted
  same "equal lists of shares" given/$end counted/$end
  job 1 $sums --checkpoint-dir one
  like "unequal shares come to what one rank comes to" one/$end given/$end 1e-5
  # BatchNorm sees each of a step's two batches by itself, so that no run without --accumulate comes to the same.
  # Direct convolutions round as the simulated GPU does. Where Winograd's rounding turns a ReLU, one image's gradients differ by per cents.
  ONEDNN_MAX_CPU_ISA=SSE41 gpu=$cpu device=cpu job 2 $sums --accumulate 2 --checkpoint-dir on-cpus
  like "two batches a step come to what they come to on CPUs" on-cpus/$end accumulated/$end 1e-4
  job 2 $sums --checkpoint-dir equal
  for dtype in fp16 bf16; do
    job 2 $sums --gradient-dtype $dtype --checkpoint-dir $dtype
    job 2 $sums --gradient-dtype $dtype --checkpoint-dir $dtype-again
    same "gradients in $dtype" $dtype/$end $dtype-again/$end
    check "gradients in $dtype: they are rounded" differ "$(state $dtype/$end)" "$(state equal/$end)"
    like "gradients in $dtype: near fp32's" one/$end $dtype/$end 1e-2
  done
  check "each to its own precision" differ "$(state fp16/$end)" "$(state bf16/$end)"
  job 2 --batch 2 --steps 4 --baseline
  check "--baseline: a verdict" has "efficiency"
  # The first rank with a kind of GPU times cuDNN's engines; the others follow it, whatever cache they have.
  local whole=$gpu model=(--model mlp)
  gpu=$dir/own_caches
  printf '#!/bin/sh\nexport XDG_CACHE_HOME="%s/cache-of-$OMPI_COMM_WORLD_RANK"\nexec "%s" "$@"\n' "$dir" "$whole" >"$gpu"
  chmod +x "$gpu"
  job 2 --batch 2 --steps 2 --autotune
  gpu=$whole
  check "--autotune: it is told" has "^autotune: .* plans of .* requests to cuDNN timed"
  check "--autotune: one rank times" is "$(echo cache-of-*/ringtrain/engines-*.json | grep -o "cache-of-.")" cache-of-0
}

# As many ranks as nodes of 8 GPUs have, each with GPUs of its own.
many() {
  local end=step-0000000003.h5 sums="--global-batch 16 --precision fp32 --lr 0.01 --warmup-epochs 0 --steps 3"
  model=(--model mlp --bucket-mb 0.1) data=synthetic
  job 1 $sums --checkpoint-dir one
  SIMULATED_GPUS=16 job 16 $sums --checkpoint-dir sixteen --shard-optimizer
  like "one and sixteen ranks agree, which share the optimizer" one/$end sixteen/$end 1e-5
  check "a GPU for each rank" lacks "share a GPU"
}

# What cannot be captured on one rank is captured on none.
captures() {
  local end=step-0000000004.h5 sums="--batch 2 --lr 0.01 --warmup-epochs 0 --steps 4 --sync-batchnorm" fault whole
  job 2 $sums --checkpoint-dir captured
  check "all is captured: nothing is told" lacks "^graphs: "
  for fault in nccl gpu; do
    whole=$gpu gpu=$dir/rank_1_cannot_capture_$fault
    printf '#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" != 1 ] || export SIMULATED_GPU_FAULT=%s\nexec "%s" "$@"\n' \
      "$([[ $fault == gpu ]] && echo capture)" "$whole" >"$gpu"
    chmod +x "$gpu"
    SIMULATED_NCCL_FAULT=$([[ $fault == nccl ]] && echo capture:1:1) job 2 $sums --checkpoint-dir "$fault"
    check "$fault: sums between graphs: it is told once" is "$(grep -c "^graphs: sums between GPUs are queued between CUDA graphs" log)" 1
    gpu=$whole
    same "$fault: not captured on rank 1" captured/$end "$fault/$end"
    [[ $fault == gpu ]] || check "$fault: graphs between sums" lacks "launched one by one"
  done
  check "a rank that cannot capture at all: it is told, with the rank" has "^graphs: a step cannot be captured on rank 1, so its kernels are launched one by one: .*Invalidated"
}

# What cuDNN refuses or computes wrongly on one rank's GPU is computed in parts on all: their gradients go in buckets that follow from
# the schedule.
refusals() {
  local end=step-0000000002.h5 sums="--batch 2 --lr 0.01 --warmup-epochs 0 --steps 2" fault whole
  job 2 $sums --checkpoint-dir fused
  check "all fused: nothing is in parts" lacks "in parts"
  job 2 $sums --checkpoint-dir in-parts --fusion off
  whole=$gpu gpu=$dir/rank_1_has_a_fault
  printf '#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" != 1 ] || export SIMULATED_GPU_FAULT=$of_rank_1\nexec "%s" "$@"\n' "$whole" >"$gpu"
  chmod +x "$gpu"
  for fault in refused off; do
    of_rank_1=$fault job 2 $sums --checkpoint-dir $fault
    check "$fault on rank 1: it is told once" is "$(grep -c "^fusion: .* are computed in parts, because here cuDNN" log)" 1
    like "$fault on rank 1: near what is fused" fused/$end $fault/$end 2e-2
  done
  same "refused or wrong" refused/$end off/$end
  same "refused or --fusion off" refused/$end in-parts/$end
  gpu=$whole
}

# The aux head's windows are the only ones that do not fit into a small image.
inception() {
  sed 's/size=299/size=75/; s/average_pool size=5 stride=3/average_pool size=2 stride=1/; s/kernel=5 padding=valid/kernel=2 padding=valid/' \
    "$models/inception_v3.model" >small.model
  model=(--model-file small.model)
  trained_inception 2
}

whole_inception() {
  limit=1500
  model=(--model inception_v3)
  trained_inception 2
}

trained_inception() { # STEPS
  local end=step-000000000$1.h5
  job 2 --batch 1 --steps "$1" --checkpoint-dir whole --sync-batchnorm
  job 2 --batch 1 --steps 1 --checkpoint-dir parts --sync-batchnorm
  job 2 --batch 1 --steps "$1" --checkpoint-dir parts --sync-batchnorm
  same "in two parts" whole/$end parts/$end
}

$part
exit $bad
