#!/usr/bin/env bash
# shares.sh MPIRUN TRAIN COMPARE: ranks that train on unequal shares of a step's images come to what one rank comes to; the shares
# are kept over a resume, and found by a trial where a rank is slower than the other.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") compare=$(realpath "$3")
enter_folder
hogs=() by=()
end_hogs() { ((${#hogs[@]})) && kill "${hogs[@]}" 2>/dev/null; hogs=(); }
at_end end_hogs
file=step-0000000008.h5

run() { # NAME RANKS OPTION...
  local name=$1 ranks=$2
  shift 2
  timeout 200 "${by[@]}" "$mpirun" -np "$ranks" --oversubscribe "$train" --model "${model:-mlp}" --data synthetic --classes 10 --global-batch "${images:-24}" \
    --threads 1 --lr 0.001 --eval-every 0 --checkpoint-dir "$dir/$name" "$@" >log 2>&1 </dev/null
}
shares() { sed -nE "s/^shares: ([0-9:]+) of ${images:-24} images.*/\1/p" log; }

run given 2 --steps 8 --shares 1:3
exits "given" 0
check "given: the shares are told" has "^shares: 6:18 of 24 images, as --shares 1:3 says$"
run alone 1 --steps 8
check "as one rank" "$compare" "alone/$file" "given/$file" 1e-5
run counts 2 --steps 8 --shares 6:18
check "the same list: the same bits" is "$(bits counts 8)" "$(bits given 8)"
run equal 2 --steps 8
check "equal shares: other bits" differ "$(bits equal)" "$(bits given)"
run many 4 --steps 8 --shares 1:1:8:2
check "four ranks: the shares are told" has "^shares: 2:2:16:4 of 24 images, as --shares 1:1:8:2 says$"
check "four ranks: as one" "$compare" "alone/$file" "many/$file" 1e-5
model=resnet20 run norms 2 --steps 2 --shares 1:3 --sync-batchnorm
model=resnet20 run norm 1 --steps 2
check "BatchNorm over all ranks: as one rank" "$compare" norm/step-0000000002.h5 norms/step-0000000002.h5 1e-5

run resumed 2 --steps 3 --shares 1:3
run resumed 2 --steps 8
check "a resume keeps them" has "^shares: 6:18 of 24 images, as in the checkpoint$"
check "a resume keeps them: the same bits" is "$(bits resumed 8)" "$(bits given 8)"
images=48 run resumed 2 --steps 9
check "another batch: in proportion" has "^shares: 12:36 of 48 images, in proportion to those in the checkpoint, of another batch$"
run resumed 2 --steps 10 --shares equal
check "unless told otherwise" lacks "^shares:"
check "told otherwise: what it means" has "saved with .*shares.*, going on with .*: equal up to rounding, not to the bit"
run other 2 --steps 3 --shares 1:3
run other 3 --steps 8
check "other ranks: equal shares, which is told" has "^shares: 6:18 in the checkpoint are of 2 ranks, this job has 3: they get equal shares$"
check "other ranks: exit code" has "^trained 5 steps"

model=cifar10_cnn images=4 run even 2 --steps 2 --shares auto
even=$(images=4 shares)
check "auto: kept, also where it came to equal shares" grep -q "\"shares\":\[${even%:*},${even#*:}\]" <("$train" --inspect even/step-0000000002.h5)
model=cifar10_cnn images=4 run even 2 --steps 3
check "auto: as in the checkpoint" has "^shares: $even of 4 images, as in the checkpoint$"
check "auto: with nothing else" lacks "saved with"
if [ "$even" = 2:2 ]; then
  model=cifar10_cnn images=4 run even 2 --steps 4 --shares equal
  check "equal after a list that came to be equal: the same bits" lacks "saved with"
fi

run verified 2 --shares 1:3 --verify-resume 3
check "--verify-resume" has "^verify-resume: passed: .* on 2 ranks"
run wrong 2 --steps 8 --shares 1:2:3
exits "a list that does not fit" 64
check "a list that does not fit: what is wrong" has "^train: --shares 1:2:3: has 3 numbers, but this job has 2 ranks on 1 host; give one a rank, or one a host$"
run lost 2 --steps 8 --shares 1:2:3 --as-ranks 3
exits "lost ranks" 0
check "lost ranks: the list is left aside" has "^--shares 1:2:3 has 3 numbers, but this job has 2 ranks on 1 host: they get equal shares$"

# On two cores, of which seven busy loops use rank 1's, that rank is slower, however fast the machine is and though another
# program takes half of rank 0's.
mapfile -t cores < <(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
if [ "${#cores[@]}" -ge 2 ]; then
  model=cifar10_cnn images=64
  by=(taskset -c "${cores[0]},${cores[1]}")
  for _ in {1..7}; do taskset -c "${cores[1]}" sh -c 'while :; do :; done' & hogs+=($!); done
  run advised 2 --steps 40
  check "equal shares: others are advised" has "^links: some ranks compute slower than others; [0-9.]+ ms a step are expected of --shares [0-9]+:[0-9]+$"
  run auto 2 --steps 8 --shares auto
  end_hogs
  found=$(shares)
  check "auto: the slow rank has less ($found)" test "${found%:*}" -gt "${found#*:}"
  check "auto: what was measured is told" has "an image takes [0-9.]+ to [0-9.]+ ms, by rank; the slowest rank then computes for [0-9.]+ ms a step, with equal shares for [0-9.]+$"
  run by-hand 2 --steps 8 --shares "$found"
  check "auto: the bits of the list" is "$(bits auto 8)" "$(bits by-hand 8)"
  run auto 2 --steps 12 --shares auto
  check "auto: a resume keeps them" has "^shares: $found of 64 images, as in the checkpoint$"
fi
exit $bad
