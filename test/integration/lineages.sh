#!/usr/bin/env bash
# lineages.sh MPIRUN TRAIN FORMAT_1: a folder of checkpoints is one training's. Another one is refused there, a mixed folder, too; a
# resume inherits the lineage; files of format 1, of which the folder FORMAT_1 has one, are one lineage; what --inspect DIR says.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") old=$(realpath "$3")
enter_folder

tiny=(--model-file "$old/tiny.model" --data shapes --global-batch 8 --threads 1 --eval-every 0 --checkpoint-every 1000 --keep 9)  # each run saves its end
job() { # CODE ARGUMENTS...: on one rank; its exit code must be CODE
  launch_alone "$train" "${tiny[@]}" "${@:2}"
  exits "train ${*:2}" "$1"
}
refused() { # ARGUMENTS...: on two ranks, told once, and the folder stays as it is
  rm -rf before && cp -r "$folder" before
  launch 2 "$train" "${tiny[@]}" --checkpoint-dir "$folder" "$@"
  exits "train $* in $folder" 65
  check "$*: told once" is "$(log_text | grep -c '^train: ')" 1
  check "$*: no step" lacks "^trained"
  check "$*: nothing is changed" diff -r -x lock before "$folder"
}
line() { "$train" --inspect "$2" 2>&1 | sed -n "s/^$1 *//p"; } # NAME FILE|DIR

# A chain of runs is one lineage; another training has another, also from the same weights.
for steps in 2 4 6; do job 0 --steps $steps --checkpoint-dir a; done
a=$(line lineage "$(file_of a 4)")
check "a lineage has 16 digits" is "$(grep -cE '^[0-9a-f]{16}$' <<<"$a")" 1
check "a resume inherits it" is "$(line lineage "$(file_of a 6)")" "$a"
check "but not the run" test "$(line run "$(file_of a 6)")" != "$(line run "$(file_of a 4)")"
for steps in 2 4 6 8; do job 0 --steps $steps --checkpoint-dir b; done
b=$(line lineage "$(file_of b 8)")
check "the same command again is another training" test "$b" != "$a"
check "with the same states" is "$(line state-hash "$(file_of b 6)")" "$(line state-hash "$(file_of a 6)")"
job 0 --steps 2 --checkpoint-dir weights --init-from "$(file_of a 6)"
check "--init-from is another training" test "$(line lineage "$(file_of weights 2)")" != "$a"
job 0 --steps 8 --checkpoint-dir away --resume "$(file_of a 6)"
check "--resume FILE inherits it" is "$(line lineage "$(file_of away 8)")" "$a"

# A training that starts from scratch is refused where there are files, of whatever kind.
folder=a
refused --steps 8 --resume never
check "never: both are named" has "^train: .*a: has checkpoints of lineage $a, step-0000000006.h5 the newest; this training is of lineage [0-9a-f]{16}[.:;]"
check "never: so are the ways out" has "another --checkpoint-dir, .*--resume FILE.*move .*away"
mkdir c && echo damaged >"$(file_of c 3)"
folder=c
refused --steps 8 --resume never
check "never, damaged files" has "step-0000000003.h5"

# So is another training that is gone on with, and a mixed folder.
folder=a
refused --steps 10 --resume "$(file_of b 8)"
check "FILE of another training: both are named" has "lineage $a, .*this training is of lineage $b"
cp -r a mixed && cp "$(file_of b 8)" mixed
folder=mixed
refused --steps 10
check "mixed: both are named" has "lineage $b, step-0000000008.h5 the newest; .*lineage $a, step-0000000006.h5 the newest"
check "mixed: so are the ways out" has "another --checkpoint-dir.*--resume FILE.*move .*away"
"$train" --inspect mixed >log 2>&1
exits "mixed, --inspect" 65
refused --steps 10 --resume "$(file_of mixed 6)"
check "mixed: names of the other's later files would be taken" has "step-0000000008.h5 of lineage $b"
job 0 --steps 10 --keep 1 --checkpoint-dir mixed --resume "$(file_of mixed 8)"
check "mixed, --keep 1: the other's stay" is "$(cd mixed && echo step-*)" \
  "step-0000000002.h5 step-0000000004.h5 step-0000000006.h5 step-0000000008.h5 step-0000000010.h5"
check "mixed: the lineage of FILE" is "$(line lineage "$(file_of mixed 10)")" "$b"

# What a run only proves or evaluates needs no folder of its own.
job 0 --steps 100 --checkpoint-dir a --resume never --verify-resume 4
check "--verify-resume" has "^verify-resume: passed"
job 0 --eval-only --checkpoint-dir a
job 0 --steps 6 --checkpoint-dir d --baseline

# Files of format 1 are one lineage.
mkdir e && cp "$old/step-0000000004.h5" e
check "format 1: no lineage" is "$(line lineage "$(file_of e 4)")" "none"
job 0 --steps 6 --checkpoint-dir e
check "format 1: resumed" has "^resumed from step-0000000004.h5 at step 4"
check "format 1: still no lineage" is "$(line lineage "$(file_of e 6)")" "none"
job 0 --steps 8 --keep 1 --checkpoint-dir e
check "format 1: retention" is "$(cd e && echo step-*)" "step-0000000006.h5 step-0000000008.h5"
folder=e
refused --steps 8 --resume never
check "format 1: named" has "of no lineage"
cp "$(file_of a 2)" e
refused --steps 10
check "format 1 beside another: named" has "no lineage, .*; lineage $a, "

# --inspect DIR.
cp "$(file_of a 6)" a/step-9999999999.h5 && cp "$(file_of a 6)" a/step-10000000000.h5 && echo damaged >a/step-10000000001.h5
"$train" --inspect a >log 2>&1
exits "--inspect DIR" 0
check "--inspect DIR: the file" has "^resume auto +step-10000000000.h5$"
check "--inspect DIR: its lineage" has "^lineage +$a$"
check "--inspect DIR: a damaged one" has "^not used +.*a/step-10000000001.h5: shorter than"
check "--inspect DIR: an older one" has "^not used +step-9999999999.h5: older$"
mkdir empty && "$train" --inspect empty >log 2>&1
exits "--inspect DIR, empty" 0
check "--inspect DIR, empty" has "^resume auto +none: no checkpoint in empty: training starts from scratch$"
"$train" --inspect c >log 2>&1
exits "--inspect DIR, none intact" 66
check "--inspect DIR, none intact" has "no checkpoint is intact: .*step-0000000003.h5.*start over in another folder"
exit $bad
