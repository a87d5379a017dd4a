#!/usr/bin/env bash
# freeze.sh MPIRUN TRAIN COMPARE: what --freeze names stays as it was, takes no part in sums and has no optimizer's state, on any ranks
# and after a resume; what learns, learns as before.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") compare=$(realpath "$3")
enter_folder

job() { # NAME RANKS STEPS OPTION...: with checkpoints in folder NAME
  launch "$2" "$train" --data shapes --eval-every 0 --threads 1 --global-batch 12 --lr 0.05 --lr-schedule constant --steps "$3" \
    --checkpoint-dir "$1" "${@:4}"
  exits "$1, $2 ranks: ${*:4}" 0
}
same() { check "$1 as in $2: $3" "$compare" "$(newest "$1")" "$(newest "$2")" "${4:-0}" "$3"; } # NAME NAME PREFIX [TOLERANCE]
other() { check "$1 not as in $2: $3" fails "$compare" "$(newest "$1")" "$(newest "$2")" 0 "$3"; }
fails() { ! "$@"; }
tensors() { "$train" --inspect "$(newest "$1")" | grep -c "$2"; }

job base 1 4 --model resnet20
job small 1 4 --model cifar10_cnn --ema 0
from=(--model resnet20 --init-from "$(newest base)" --optimizer momentum)

# All but the head: BatchNorm normalises by running statistics, so that ranks change nothing but the order of sums.
job head 1 4 "${from[@]}" --freeze '*,!fc'
check "head: told" has "freeze: 57 of 59 tensors; 650 of 269,722 parameters learn"
for part in weights/conv1 weights/bn1 weights/layer statistics/; do same head base $part; done
other head base weights/fc.weight
other head base weights/fc.bias
check "state of the optimizer" is "$(tensors head optimizer/momentum/)" 2
job head2 2 4 "${from[@]}" --freeze '*,!fc'
same head2 head weights/ 1e-5
same head2 base statistics/

# A part below what learns, one above it, and LARS, EMA, micro-steps and shards.
job part 2 4 "${from[@]}" --freeze 'conv1,bn1,layer1,layer3.0.bn1,fc' --ema 0.9
for part in weights/conv1 weights/bn1 weights/layer1 weights/layer3.0.bn1 statistics/bn1 statistics/layer1 statistics/layer3.0.bn1 weights/fc; do
  same part base $part
done
for part in weights/layer2.0.conv1 weights/layer3.0.conv1 weights/layer3.0.bn2 statistics/layer2 statistics/layer3.0.bn2; do other part base $part; done
job ema 2 4 "${from[@]}" --freeze 'conv1,bn1,layer1,layer3.0.bn1,fc' --ema 0.5
for part in ema/conv1 ema/fc ema/layer1; do same part ema $part; done
job micro 2 4 "${from[@]}" --freeze 'conv1,bn1,layer1' --accumulate 2
same micro base weights/layer1
job lars 2 4 "${from[@]}" --freeze 'conv1,bn1,layer1' --optimizer lars
same lars base weights/layer1
job adam 3 4 "${from[@]}" --freeze 'conv1,bn1,layer1' --optimizer adam --ema 0.9
job shard 3 4 "${from[@]}" --freeze 'conv1,bn1,layer1' --optimizer adam --ema 0.9 --shard-optimizer
check "shards: the same state" is "$(bits shard)" "$(bits adam)"

# Frozen is as much as never moved, where no statistics are: a half of a layer, too.
job never 1 4 --model cifar10_cnn --init-from "$(newest small)" --optimizer sgd --weight-decay 0 --ema 0 --lr-factor 'conv1=0,conv2=0'
job froze 1 4 --model cifar10_cnn --init-from "$(newest small)" --optimizer sgd --weight-decay 0 --ema 0 --freeze 'conv1,conv2'
same froze never weights/
job half 1 4 --model cifar10_cnn --init-from "$(newest small)" --freeze 'conv1.weight'
check "half: told" has "freeze: 1 of 10 tensors \(1 with gradients"
same half small weights/conv1.weight
other half small weights/conv1.bias

# A restart knows what is frozen; another part is refused.
job head 1 8 "${from[@]}"
check "resumed: said" has "--init-from .*not used"
check "resumed: told" has "freeze: 57 of 59 tensors"
job whole 1 8 "${from[@]}" --freeze '*,!fc'
check "resumed: the same bits" is "$(bits head)" "$(bits whole)"
launch 2 "$train" --data shapes --model resnet20 --steps 9 --checkpoint-dir head --freeze conv1
exits "another part" 64
check "another part: said" has "--freeze conv1: .*goes on with --freeze \*,!fc: leave --freeze out"

# Others take it as any checkpoint.
launch_alone "$train" --data shapes --init-from "$(newest head)" --eval-only
said=$(top1)
launch_alone "$train" --init-from "$(newest head)" --export torch head.pth
exits "exported" 0
launch_alone "$train" --data shapes --model resnet20 --classes 10 --init-from head.pth --eval-only
check "exported: the same evaluation" is "$(top1)" "$said"
job next 2 4 --model resnet20 --init-from "$(newest head)" --freeze 'conv1,bn1' --sync-batchnorm
same next base weights/conv1
other next base weights/layer1
launch 2 "$train" --data shapes --global-batch 12 --threads 1 --steps 4 "${from[@]}" --freeze '*,!fc' --ema 0.9 --verify-resume 2
exits "--verify-resume" 0
launch 1 "$train" --data shapes --model cifar10_cnn --steps 1 --checkpoint-dir head
exits "another network" 65
check "another network: said" lacks "--freeze"

launch 2 "$train" --data shapes --model resnet20 --steps 1 --freeze '!fc'
exits "frees alone" 64
check "frees alone: said" has "--freeze !fc: freezes nothing"
launch 2 "$train" --data shapes --model resnet20 --steps 1 --freeze 'layer9'
exits "nothing matches" 64
check "nothing matches: said" has "--freeze layer9: matches no parameter"
launch_alone "$train" --data shapes --model resnet20 --steps 1 --freeze 'layer1'
check "at random: said" has "hint: --freeze without --init-from"
exit $bad
