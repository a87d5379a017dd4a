#!/usr/bin/env bash
# on_simulated_gpu.sh TRAIN TRAIN_ON_SIMULATED_GPU: whole runs of one rank on a simulated GPU, as a user sees them, beside the CPU's.
. "$(dirname "$0")/../support/lib.sh"
cpu=$(realpath "$1") gpu=$(realpath "$2") train=$cpu
unset CUDA_VISIBLE_DEVICES  # tests hide real GPUs; this one is simulated
enter_folder
export OMP_NUM_THREADS=1 XDG_CACHE_HOME=$dir/cache

data=shapes
run() { # BINARY ARGUMENTS...
  local binary=$1
  shift
  limit=200 launch_alone "$binary" --data $data --batch 8 --log-every 5 "$@"
}

run "$cpu" --device cpu --model mlp --steps 20 --eval-every 0
host=$(loss 20)
for precision in fp32 fp16 bf16; do
  run "$gpu" --device cuda --precision $precision --model mlp --steps 20 --eval-every 0
  exits "$precision" 0
  check "$precision: the loss is the CPU's" near "$host" "$(loss 20)" 0.15
  check "$precision: tf32 is told where it is used" is "$(grep -c "tf32" log)" "$([[ $precision == fp32 ]] && echo 1 || echo 0)"
done
SIMULATED_GPU_CAPABILITY=75 run "$gpu" --device cuda --precision fp32 --model mlp --steps 1 --eval-every 0
check "Turing: it has no tf32" lacks "tf32"

# Where no loss is compared: few images, which are evaluated soon.
data=synthetic
# --device auto finds the GPU. A run in two parts ends with the same bits; one kernel by one, too.
run "$gpu" --model mlp --steps 20 --eval-every 0 --checkpoint-dir whole
exits "auto" 0
check "auto: the GPU is named" has "GPU .*fp16"
run "$gpu" --model mlp --steps 12 --eval-every 0 --checkpoint-dir parts --checkpoint-every 5
run "$gpu" --model mlp --steps 20 --eval-every 0 --checkpoint-dir parts --no-graph
exits "resumed" 0
check "resumed: same bits" is "$(bits parts 20)" "$(bits whole 20)"
check "every checkpoint is there" is "$(cd parts && echo step-*)" "step-0000000010.h5 step-0000000012.h5 step-0000000020.h5"

# The loss scale changes in the steps before the resume.
data=shapes
run "$gpu" --model mlp --eval-every 0 --verify-resume 6
exits "--verify-resume" 0
check "--verify-resume: a step is left out" has "step 1 left out"
check "--verify-resume: passed" has "passed: all 13 tensors"

run "$cpu" --device cpu --model mlp --steps 2 --eval-every 0 --autotune --no-graph --fusion off
exits "options of GPUs on a CPU" 0
check "options of GPUs on a CPU: they are told" has "--autotune, --fusion off, --no-graph: no effect, because this run computes on CPUs"

# What cuDNN computes wrongly, without a word, is found before the first step and computed in parts; so is what it refuses.
cat >fused.model <<'MODEL'
model fused classes=10
recipe lr=0.05 epochs=1
input size=16
conv1 = convolution channels=16 kernel=3
bn1 = batch_norm
relu
conv2 = convolution channels=16 kernel=3
bn2 = batch_norm
relu
global_pool
fc = matrix_product outputs=$classes
loss
MODEL
fused() { run "$gpu" --data synthetic --model-file fused.model --batch 4 --steps 2 --log-every 1 --eval-every 0 "$@"; }
fused
exits "fused" 0
check "fused: they are checked" has "fusion: [1-9] kinds of cuDNN's fused steps checked"
check "fused: nothing is refused" lacks "in parts"
fused_loss=$(loss 2)
for fault in off refused; do
  SIMULATED_GPU_FAULT=$fault fused
  exits "$fault engines" 0
  check "$fault engines: they are told" has "fusion: 5 kinds of fused steps are computed in parts"
  check "$fault engines: nobody complains" lacks "^simulated "
  check "$fault engines: the loss is the same" near "$fused_loss" "$(loss 2)" 0.03
done
fused --fusion off
exits "--fusion off" 0
check "--fusion off: the loss is the same" near "$fused_loss" "$(loss 2)" 0.03

# Gradients are rounded for other ranks even where there are none.
for dtype in fp16 bf16; do
  run "$gpu" --precision fp32 --gradient-dtype $dtype --model mlp --steps 20 --eval-every 0 --checkpoint-dir $dtype
  exits "gradients in $dtype" 0
  check "gradients in $dtype: the loss is the CPU's" near "$host" "$(loss 20)" 0.15
done
run "$gpu" --precision fp32 --model mlp --steps 20 --eval-every 0 --checkpoint-dir fp32
check "gradients in 16 bits: they are rounded" test "$(for dtype in fp32 fp16 bf16; do bits $dtype 20; done | sort -u | wc -l)" -eq 3
run "$gpu" --precision fp32 --gradient-dtype fp16 --model mlp --steps 12 --eval-every 0 --checkpoint-dir fp16_parts
run "$gpu" --precision fp32 --gradient-dtype fp16 --model mlp --steps 20 --eval-every 0 --checkpoint-dir fp16_parts --no-graph
check "gradients in fp16: resumed, the same bits" is "$(bits fp16_parts 20)" "$(bits fp16 20)"
run "$gpu" --precision fp32 --model mlp --steps 21 --eval-every 0 --checkpoint-dir fp16_parts
check "gradients in fp32 again: what changed is told" has "gradient-dtype: fp16 -> fp32"

# What a GPU has trained, a CPU evaluates and goes on with; and the reverse.
run "$gpu" --model mlp --steps 20 --eval-every 0 --checkpoint-dir judged
run "$gpu" --model mlp --eval-only --resume judged/step-0000000020.h5
on_gpu=$(sed -n 's/.*top-1 \([0-9.]*\) %.*/\1/p' log | head -n 1)
run "$cpu" --device cpu --model mlp --eval-only --resume judged/step-0000000020.h5
check "evaluation: the CPU agrees" near "$on_gpu" "$(sed -n 's/.*top-1 \([0-9.]*\) %.*/\1/p' log | head -n 1)" 0.5
run "$gpu" --model mlp --seed 2 --eval-only --init-from judged/step-0000000020.h5
check "--init-from: the same evaluation" is "$(sed -n 's/.*top-1 \([0-9.]*\) %.*/\1/p' log | head -n 1)" "$on_gpu"
run "$gpu" --model mlp --seed 2 --steps 1 --lr 0 --eval-every 0 --init-from judged/step-0000000020.h5
check "--init-from: training starts there" is "$(sed -n 's/.*top-1 \([0-9.]*\) %.*/\1/p' log | head -n 1)" "$on_gpu"
data=synthetic
run "$cpu" --device cpu --model mlp --steps 22 --eval-every 0 --checkpoint-dir whole
exits "a CPU goes on" 0
check "a CPU goes on: what changed is told" has "precision: fp16 -> auto"
run "$gpu" --model mlp --steps 24 --eval-every 0 --checkpoint-dir whole
exits "a GPU goes on" 0

# Engines are timed once, then known, also without --autotune. All are the same loops: the bits stay.
run "$gpu" --model mlp --steps 20 --eval-every 0 --checkpoint-dir deterministic --deterministic
exits "--deterministic" 0
check "nothing is kept without --autotune" test ! -e cache
run "$gpu" --model mlp --steps 12 --eval-every 0 --checkpoint-dir tuned --autotune
exits "--autotune" 0
check "--autotune: told" has "autotune: [1-9][0-9]* plans of [1-9][0-9]* requests .* 0 requests known"
check "--autotune: kept" test -s "$(ls cache/ringtrain/engines-cudnn*-sm90-simulated_H100.json)"
run "$gpu" --model mlp --steps 20 --eval-every 0 --checkpoint-dir tuned
exits "known engines" 0
check "known engines: told" has "engines for [1-9][0-9]* requests to cuDNN are known"
check "known engines: the same as before" lacks "going on with"
check "known engines: same bits" is "$(bits tuned 20)" "$(bits whole 20)"
run "$gpu" --model mlp --steps 21 --eval-every 0 --checkpoint-dir tuned --deterministic
check "other engines: told" has "going on with .*engines"
echo damaged >"$(ls cache/ringtrain/*)"
run "$gpu" --model mlp --steps 1 --eval-every 0 --autotune
exits "a damaged cache" 0
check "a damaged cache: told once" is "$(grep -c "passed over" log)" 1
check "a damaged cache: timed anew" has "0 requests known"

run "$gpu" --model mlp --steps 20 --eval-every 0 --checkpoint-dir several --accumulate 2 --optimizer adamw --ema 0.9
exits "--accumulate" 0
data=shapes
run "$cpu" --device cpu --model mlp --steps 20 --eval-every 0 --optimizer lars --lr 20
host=$(loss 20)
run "$gpu" --model mlp --steps 20 --eval-every 0 --checkpoint-dir lars --optimizer lars --lr 20 --precision fp32
check "lars: the loss is the CPU's" near "$host" "$(loss 20)" 0.05
run "$gpu" --model mlp --steps 12 --eval-every 0 --checkpoint-dir lars_parts --optimizer lars --lr 20 --precision fp32
run "$gpu" --model mlp --steps 20 --eval-every 0 --checkpoint-dir lars_parts --optimizer lars --lr 20 --precision fp32
check "lars: resumed, the same bits" is "$(bits lars_parts 20)" "$(bits lars 20)"

run "$gpu" --model mlp --steps 6 --eval-every 0 --lr 1000000 --warmup-epochs 0 --precision fp32
exits "a loss that is no number" 76

# Without an evaluation, in which it would become durable.
run "$gpu" --model mlp --steps 1000000 --max-time 1s --eval-every 0 --checkpoint-dir late --final-save-timeout 0
exits "a final checkpoint that is not durable in time" 75

timeout 200 "$gpu" --data shapes --batch 8 --model mlp --steps 1000000 --eval-every 0 --log-every 10 --checkpoint-dir stopped >log 2>&1 </dev/null &
job=$!
await 90 has "step 20,"
pkill -TERM -P $job
wait $job
exits "SIGTERM" 143
check "SIGTERM: the state is saved" test -n "$(ls stopped/step-*.h5)"
exit $bad
