#!/usr/bin/env bash
# resume_shares.sh MPIRUN TRAIN WATCHED_TRAIN: a training that goes on with other ranks keeps the order of samples, each
# once an epoch; it can go on at and behind epochs' ends; what changed is told; rank 0 alone reads.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") watched=$(realpath "$3")
enter_folder

job() { # BINARY RANKS OPTION...
  local binary=$1 ranks=$2
  shift 2
  launch "$ranks" "$binary" --model mlp --data shapes --threads 1 --eval-every 0 "$@"
}

# The samples of each step, whoever had them, from "STEP EPOCH SAMPLE" of each rank: the same as in one piece. Shares are
# unequal, and an epoch's end is in the middle of a step.
samples() { sort -n "$1".* | awk '{print $1, $2, $3}' | sort; }
SAMPLES=whole job "$watched" 1 --global-batch 1531 --steps 15
exits "one rank" 0
for part in "3 --steps 4" "2 --steps 7 --accumulate 1" "4 --steps 8" "1 --steps 13" "5 --steps 15"; do
  # shellcheck disable=SC2086
  SAMPLES=parts job "$watched" $part --global-batch 1531 --checkpoint-dir parts
  exits "$part" 0
done
check "the last part says who saved" has "saved by 1 rank, going on with 5: the order of samples stays"
samples whole >one && samples parts >several
check "other ranks take the same samples in each step" cmp one several
check "each sample comes once an epoch" is "$(awk '$2 < 2' one | cut -d' ' -f 2- | sort -u | wc -l)" 20000
check "in two epochs and a part of the third" is "$(wc -l <one)" $((15 * 1531))
check "all ranks took part" test -s parts.4

# With the same batch a rank, another number of ranks is another global batch: told, and no sample is lost or twice.
rm -rf parts*
SAMPLES=parts job "$watched" 2 --batch 700 --epochs 2 --max-time 0.001s --checkpoint-dir parts
SAMPLES=parts job "$watched" 3 --batch 700 --epochs 2 --max-time 0.001s --checkpoint-dir parts
check "a changed global batch: told" has "changed since that checkpoint: images a step, all ranks: 1400 -> 2100"
SAMPLES=parts job "$watched" 1 --batch 700 --epochs 2 --checkpoint-dir parts
exits "a changed global batch" 0
samples parts | cut -d' ' -f 2- | sort >several
check "a changed global batch: each sample comes once an epoch" is "$(sort -u several | wc -l)" "$(wc -l <several)"
check "a changed global batch: none is missing" is "$(awk '$1 < 2' several | wc -l)" 20000

# From steps of two epochs, whose ends are in steps 7 and 14.
resumed=""
job "$train" 2 --global-batch 1531 --epochs 2 --checkpoint-every 1 --keep 100 --checkpoint-dir steps --optimizer adam --ema 0.9
expected=$(bits steps 14)
for step in 6 7 8 13; do # slots can be busy, so some may be missing
  file=$(file_of steps $step)
  [ -e "$file" ] || continue
  resumed+=x
  job "$train" 2 --global-batch 1531 --epochs 2 --checkpoint-dir again --optimizer adam --ema 0.9 --resume "$file"
  exits "from $file" 0
  check "from $file: the same bits" is "$(bits again 14)" "$expected"
  rm -rf again
done
check "some steps were there" test ${#resumed} -ge 2

# More epochs behind the end are the epochs of one training; hyper-parameters that change are told.
job "$train" 2 --global-batch 1531 --epochs 2 --lr-schedule constant --checkpoint-dir longer
job "$train" 2 --global-batch 1531 --epochs 1 --lr-schedule constant --checkpoint-dir raised
job "$train" 2 --global-batch 1531 --epochs 1 --lr-schedule constant --checkpoint-dir raised
check "at the end: told" has "that is the end of training already: nothing to do"
job "$train" 2 --global-batch 1531 --epochs 2 --lr-schedule constant --checkpoint-dir raised
check "--epochs raised: told" has "changed since that checkpoint: epochs: 1 -> 2"
check "--epochs raised: the same bits" is "$(bits raised 14)" "$(bits longer 14)"
job "$train" 2 --global-batch 1531 --epochs 3 --lr-schedule constant --lr 0.01 --weight-decay 0.001 --seed 5 --checkpoint-dir raised --max-time 0.001s
for change in "epochs: 2 -> 3" "lr: 0.05 -> 0.01" "weight-decay: 0 -> 0.001" "seed: 1 -> 5"; do
  check "a change is told" has "changed since that checkpoint: $change"
done
check "what did not change is not told" is "$(grep -c 'changed since' log)" 4

# Other samples than those that the checkpoint has seen a part of.
mkdir -p images/train/a images/train/b
for i in 1 2 3 4; do
  base64 -d <<<iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg== | tee images/train/a/$i.png >images/train/b/$i.png
done
job "$train" 2 --data images:images --batch 1 --steps 1 --checkpoint-dir grown
cp -r images moved && job "$train" 2 --data images:moved --batch 1 --steps 2 --checkpoint-dir grown
exits "data elsewhere" 0
check "data elsewhere is no other data" lacks "training-data"
cp moved/train/a/1.png moved/train/b/5.png
job "$train" 2 --data images:moved --batch 1 --steps 3 --checkpoint-dir grown
check "other data: told" has "changed since that checkpoint: training-data: 8 samples, .* -> 9 samples, .*; samples come in another order"

# Only rank 0 needs the files: what the others are told of them is another place.
timeout 100 "$mpirun" --oversubscribe -np 3 sh -c 'folder=/proc/nowhere; [ $OMPI_COMM_WORLD_RANK -ne 0 ] || folder=longer
  exec "$0" --model mlp --data shapes --global-batch 1531 --epochs 2 --checkpoint-dir $folder' "$train" >log 2>&1 </dev/null
exits "rank 0 alone reads" 0
check "rank 0 alone reads: told" has "resumed from step-0000000014.h5"
exit $bad
