#!/usr/bin/env bash
# verify_resume.sh MPIRUN TRAIN WATCHED_TRAIN: --verify-resume passes for what resumes to the bit, and names what does not;
# ranks that no longer train the same numbers are found and named.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") watched=$(realpath "$3")
enter_folder
export TMPDIR=$dir/tmp && mkdir tmp

job() { # BINARY RANKS ARGUMENTS...
  local binary=$1 ranks=$2
  shift 2
  launch "$ranks" "$binary" --data shapes --threads 1 --eval-every 0 "$@"
}
verify() { # BINARY RANKS ARGUMENTS...
  job "$@" --verify-resume 6
}
told() { sed -n "s/^verify-resume: .*$1.*state-hash //p" log; }

# Whatever changes the numbers, in turn; two models have all of BatchNorm, dropout and moving averages.
passes() { # RANKS ARGUMENTS...
  verify "$train" "$@"
  exits "$*" 0
  check "$*: passed" is "$(told resume)" "$(told straight)"
  check "$*: the verdict" has "^verify-resume: passed: .* on $1 rank"
  check "$*: nothing is left" is "$(find tmp | wc -l)" 1
}
passes 1 --model mlp --batch 8 --optimizer adamw --ema 0.9
passes 2 --model resnet20 --batch 8 --ema 0.9 --label-smoothing 0.1 --sync-batchnorm
passes 3 --model cifar10_cnn --global-batch 26 --accumulate 2 --optimizer rmsprop

# From where this command would go on, with the hashes that a checkpoint has; the directory stays as it is.
job "$train" 2 --model mlp --batch 8 --steps 7 --lr-schedule constant --checkpoint-dir runs
file=$(ls runs/step-*.h5) before=$(find runs | sort)
verify "$train" 2 --model mlp --batch 8 --epochs 100 --lr-schedule constant --checkpoint-dir runs
exits "goes on" 0
first=$(sed -n 's/.*steps from step \([0-9]*\),.*/\1/p' log) straight=$(told straight)
check "goes on from the newest checkpoint" is "$(file_of runs "$first")" "$file"
check "goes on: the directory is as it was" is "$(find runs | sort)" "$before"
job "$train" 2 --model mlp --batch 8 --steps $((first + 6)) --lr-schedule constant --checkpoint-dir runs
check "goes on: the same state as in a plain run" is "$(bits runs $((first + 6)))" "$straight"
verify "$train" 1 --model mlp --batch 8 --steps 1
exits "nothing to interrupt" 64

verify "$train" 2 --model mlp --batch 8 --checkpoint-dir /proc/nowhere
exits "a folder that cannot be" 75
check "a folder that cannot be: told before the first step" has "--verify-resume in /proc/nowhere: No such file or directory; name a folder"
check "a folder that cannot be: no step" lacks "straight"

# A signal ends it, and leaves nothing.
begin 2 "$train" --data shapes --model mlp --batch 8 --verify-resume 1000000
await 90 has "^training on|^threads"
sleep 1
kill -TERM $(ranks)
wait $mpi
exits "SIGTERM" 143
check "SIGTERM: nothing is left" is "$(find tmp | wc -l)" 1

# What is not restored is named, and so is a shift of the data.
for tensor in optimizer/momentum/fc.weight statistics/layer1.0.bn1.running_mean; do
  FAULT="forget $tensor" verify "$watched" 2 --model resnet20 --batch 8 --ema 0.9
  exits "$tensor is lost" 70
  check "$tensor is lost: told once" is "$(grep -c "FAILED" log)" 1
  check "$tensor is lost: what differs is named for each rank" is "$(grep -cE "^  rank [01]: .*(weights|optimizer|ema|statistics)/.*of 253 tensors" log)" 2
  check "$tensor is lost: nothing is left" is "$(find tmp | wc -l)" 1
done
check "a lost statistic: that alone is named" has "^  rank 0: statistics/layer1.0.bn1.running_mean.* \(of 253"
FAULT="shift 1" verify "$watched" 1 --model mlp --batch 8
exits "samples are shifted" 70
check "samples are shifted: told" has "is at step 6, sample 49, not 6, 48"
verify "$watched" 1 --model mlp --batch 8
exits "no fault" 0

# One bit of one rank.
diverges() { # STEP AFTER RANK TENSOR ARGUMENTS...
  local step=$1 after=$2 rank=$3 tensor=$4
  shift 4
  rm -rf saved
  FAULT="flip $rank $after $tensor" job "$watched" 3 --model resnet20 --batch 8 --ema 0.9 --steps 12 --check-every 4 --checkpoint-every 2 \
    --checkpoint-dir saved "$@"
  exits "$tensor" 70
  check "$tensor: told once" is "$(grep -c "after step $step the ranks no longer train the same numbers" log)" 1
  check "$tensor: rank, host and tensor are named" has "^  rank $rank on $(hostname) has other values than rank [012] on .* in .*"
  check "$tensor: one rank only" is "$(grep -c "has other values" log)" 1
  check "$tensor: no later checkpoint" test -z "$(ls saved | grep -E "step-0*($step|$((step + 2)))\.h5")"
}
diverges 8 8 1 weights/conv1.weight
check "a weight: that alone is named" has "in weights/conv1.weight$"
check "a weight: the last good step" has "were equal after step 4"
diverges 4 2 0 weights/fc.weight
diverges 12 12 2 statistics/bn1.running_var --check-every 1000
FAULT="flip 1 3 weights/fc1.weight" job "$watched" 2 --model mlp --batch 8 --steps 6 --check-every 0
exits "--check-every 0" 0
exit $bad
