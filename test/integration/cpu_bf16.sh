#!/usr/bin/env bash
# cpu_bf16.sh MPIRUN TRAIN: training in bf16 on CPUs repeats, goes on to the bit, learns as in fp32, and is refused where a
# rank's CPU lacks it. Skipped (77) where this CPU does.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2")
enter_folder
need_bf16

options=(--data shapes --batch 8 --threads 1 --eval-every 0 --log-every 1)
job() { # NAME RANKS STEPS OPTION...
  local name=$1 ranks=$2 steps=$3
  shift 3
  launch "$ranks" "$train" "${options[@]}" --steps "$steps" --checkpoint-dir "$name" "$@"
  exits "$name, $ranks ranks, $*" 0
}

for model in mlp resnet20; do
  for ranks in 1 2; do
    name=$model.$ranks many=(--model $model --accumulate $ranks)
    job "$name.fp32" $ranks 12 "${many[@]}"
    exact=$(loss 12)
    many+=(--precision bf16)
    job "$name" $ranks 12 "${many[@]}"
    check "$name: the loss is fp32's" near "$exact" "$(loss 12)" 0.1
    check "$name: bf16 has other bits than fp32" differ "$(bits "$name")" "$(bits "$name.fp32")"
    job "$name.again" $ranks 12 "${many[@]}"
    check "$name: the same command has the same bits" is "$(bits "$name.again")" "$(bits "$name")"
    job "$name.parts" $ranks 7 "${many[@]}"
    job "$name.parts" $ranks 12 "${many[@]}"
    check "$name: in two parts it has the same bits" is "$(bits "$name.parts")" "$(bits "$name")"
  done
done
for name in two two.again; do job $name 1 12 --model resnet20 --precision bf16 --threads 2; done
check "two threads: the same command has the same bits" is "$(bits two.again)" "$(bits two)"
job mlp.1.parts 1 14 --model mlp
check "another precision goes on, and is told" has "precision: bf16 -> auto"

# oneDNN is told to do without the instructions: a CPU that lacks them looks like that.
lacking=(env ONEDNN_MAX_CPU_ISA=AVX512_CORE "$train") asked=("${options[@]}" --model mlp --steps 1 --precision bf16)
limit=60 launch 2 "${lacking[@]}" "${asked[@]}"
exits "no rank has it" 64
check "no rank has it: one message" test "$(log_text | grep -c "^train: .*--precision bf16: this CPU .*say fp32")" -eq 1
timeout 60 "$mpirun" --oversubscribe -np 1 "$train" "${asked[@]}" : -np 1 "${lacking[@]}" "${asked[@]}" >log 2>&1 </dev/null
exits "one rank lacks it" 64
check "one rank lacks it: it is named" test "$(log_text | grep -c "^train: .*rank 1/2 on .*--precision bf16: this CPU")" -eq 1
"${lacking[@]}" --plan --model mlp --precision bf16 >log 2>&1
exits "a plan for a CPU that lacks it" 64
"$train" --plan --model mlp --precision bf16 >log 2>&1
check "a plan says what it is for" has "a rank's training, bf16"
exit $bad
