#!/usr/bin/env bash
# hostile_checkpoints.sh MPIRUN TRAIN [calls]: what the program says of checkpoints that are damaged, of another model, or
# planted, and that it says so soon, on all ranks. `calls`: only that it opens nothing else, by its system calls.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2")
enter_folder

job() { # CODE ARGUMENTS...: on two ranks; its exit code must be CODE
  local code=$1
  shift
  launch 2 "$train" --data shapes --batch 4 --eval-every 0 "$@"
  exits "train $*" "$code"
}
flip() { # FILE OFFSET
  local byte
  byte=$(od -An -tu1 -j "$2" -N 1 "$1")
  printf "\\x$(printf %x $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

if [ "${3:-}" = calls ]; then
  need_strace -f
fi
job 0 --model resnet20 --steps 3 --checkpoint-every 1 --keep 3 --checkpoint-dir good
[ -e good/step-0000000003.h5 ] || give_up "no checkpoint of step 3"

if [ "${3:-}" = calls ]; then
  # Whatever the file is, it alone is opened.
  cp good/step-0000000003.h5 later.h5 && printf '\x03' | dd of=later.h5 bs=1 seek=8 conv=notrunc status=none
  cp good/step-0000000003.h5 flipped.h5 && flip flipped.h5 300000
  head -c 5000 good/step-0000000002.h5 >short.h5
  for file in good/step-0000000003.h5 later.h5 flipped.h5 short.h5 /dev/zero; do
    strace -f -e trace=%file,%network,execve -o trace "$train" --inspect "$file" >log 2>&1
    grep -nE "stat.*\"$file\"" trace | head -n 1 | cut -d: -f1 >line
    check "$file is looked at" test -s line
    check "nothing but $file after it" is "$(tail -n "+$(cat line)" trace | grep -cvF -e "\"$file\"" -e '"", {' -e ' +++ ' -e ' --- ')" 0
  done
  check "a device is not even opened" is "$(grep -c 'open.*"/dev/zero"' trace)" 0
  exit $bad
fi

# The newest intact one is taken; each other one is named with the reason. Nothing else was damaged by it.
cp -r good some
flip some/step-0000000003.h5 300000
head -c 5000 good/step-0000000002.h5 >some/step-0000000002.h5
ln -s step-0000000001.h5 some/step-0000000004.h5
job 0 --model resnet20 --steps 4 --checkpoint-dir some
check "a link is named" has "not used: .*step-0000000004.h5: a symbolic link"
check "a damaged file is named" has "not used: .*step-0000000003.h5: .*fails its hash"
check "a short file is named" has "not used: .*step-0000000002.h5: 5000 bytes long instead of"
check "the intact one is taken" has "resumed from step-0000000001.h5 at step 1"

# None intact: never from scratch in silence.
mkdir none && for step in 1 2 3; do cp good/step-000000000$step.h5 none && flip none/step-000000000$step.h5 300000; done
cp -r none before
job 66 --model resnet20 --steps 4 --checkpoint-dir none
for step in 1 2 3; do check "each is named" has "train: .*step-000000000$step.h5: .*fails its hash"; done
check "what to do is told" has "Repair or move them, or start over in another folder"
rm -f none/lock && check "nothing is changed" diff -r before none

# Nothing but temporaries is no checkpoint.
mkdir left && echo half >left/.step-0000000009.h5.tmp
job 0 --model resnet20 --steps 1 --checkpoint-dir left
check "from scratch, told" has "no checkpoint in left: training starts from scratch"
check "the temporary is gone" test ! -e left/.step-0000000009.h5.tmp

# Another model, another number of classes, another --ema: in a few times what a start takes that goes well.
start=$(now_ms) && job 0 --model resnet20 --steps 3 --checkpoint-dir good && plain_ms=$(($(now_ms) - start))
refused() { # TEXT ARGUMENTS...
  local text=$1 start took_ms
  shift
  start=$(now_ms)
  job 65 --steps 4 --checkpoint-dir good "$@"
  took_ms=$(($(now_ms) - start))
  check "$*" has "^train: .*$text"
  check "told once" is "$(log_text | grep -c '^train: ')" 1
  check "$*: $took_ms ms, $plain_ms ms where nothing is refused" test $took_ms -lt $((5 * plain_ms))
}
refused "of another model .resnet20.: has no weights/fc1.weight \[[0-9,]*\]; has weights/conv1.weight \[16,3,3,3\], which is not needed" --model mlp
check "ten are told" is "$(log_text | grep '^train: ' | grep -o 'has no \|, needed is\|which is not needed' | wc -l)" 10
check "and how many more" has "; and [0-9]+ more"
refused "saved with another --optimizer or --ema: has no ema/conv1.weight" --model resnet20 --ema 0.99

# A later version of the format.
cp good/step-0000000003.h5 later.h5 && printf '\x03' | dd of=later.h5 bs=1 seek=8 conv=notrunc status=none
job 66 --model resnet20 --steps 4 --resume later.h5
check "which version is read" has "later.h5: format version 3; this build reads versions 1 and 2"
exit $bad
