#!/usr/bin/env bash
# wrong_commands.sh MPIRUN TRAIN [list]: each wrong command or broken input ends with one message that says what is wrong, and with
# the right exit code. `list` prints every command with its message. Six commands run at once, because they mostly wait;
# `wait` before anything that they read changes.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") list=${3:-} tried=0
enter_folder
mkdir work && cd work || exit 1

# expect RANKS CODE TEXT ARGUMENTS...: TEXT is printed once, with `train: ` before it somewhere on its line
expect() {
  tried=$((tried + 1))
  while (($(jobs -pr | wc -l) >= 6)); do wait -n; done
  judge "$@" >"$dir/said.$((100 + tried))" 2>&1 &
}
judge() {
  local ranks=$1 code=$2 text=$3 output got said
  shift 3
  if ((ranks > 0)); then
    output=$(timeout 60 "$mpirun" -np "$ranks" --oversubscribe "$train" "$@" 2>&1 </dev/null)
  else
    output=$(timeout 60 "$train" "$@" 2>&1 </dev/null)
  fi
  got=$?
  said=$(grep -cE "^train: .*($text)" <<<"$output")
  [ -n "$list" ] && printf '%s\n    exit %s, %s\n' "train $*" "$got" "$(grep -m1 '^train: ' <<<"$output")"
  if ((got != code || said != 1)); then
    echo "wrong: $ranks ranks, train $*: exit code $got, not $code; '$text' said $said times in:"
    echo "$output"
    touch "$dir/bad"
  fi
}

# --- options
expect 2 64 "unknown option --modle: .*--model" --modle resnet20
expect 2 64 "resnet2.*resnet20" --model resnet2
expect 0 64 "--batch.*-3" --batch -3
expect 0 64 "--batch.*many" --batch many
expect 0 64 "--lr.*nan" --lr nan
expect 0 64 "--optimizer.*sdg.*sgd" --optimizer sdg
expect 0 64 "--lr-schedule.*cosin.*cosine" --lr-schedule cosin
expect 0 64 "--lr-factor.*FACTOR" --lr-factor fc.*=-1
expect 2 64 "--lr-factor cf.\*: .*did you mean fc.\*" --model resnet20 --lr-factor "cf.*=2"
expect 0 64 "--checkpoint-every.*5x" --checkpoint-every 5x
expect 0 64 "--keep.*0" --keep 0
expect 0 64 "--epochs.*--steps|--steps.*--epochs" --steps 5 --epochs 2
expect 0 64 "--batch.*--global-batch|--global-batch.*--batch" --batch 8 --global-batch 16
expect 3 64 "--global-batch 2: .*3 ranks" --global-batch 2
expect 2 64 "--global-batch 7: .*--accumulate 2" --global-batch 7 --accumulate 2
expect 0 64 "--require-efficiency: .*does not train" --eval-only --resume f --require-efficiency 0.9
expect 2 64 "--require-efficiency: .*add --baseline" --model mlp --batch 3 --steps 5 --require-efficiency 0.9
expect 0 64 "unexpected|positional|nothing.*resnet20" resnet20
expect 2 64 "--device cuda" --device cuda
expect 2 64 "--precision.*fp16" --precision fp16
expect 2 64 "--gradient-dtype with --allreduce mpi: .*--allreduce ring" --gradient-dtype fp16 --allreduce mpi
expect 2 64 "--compress with --gradient-dtype: .*give one of them" --compress powersgd:4 --gradient-dtype fp16
expect 2 64 "--compress topk:2: .*from .* to 1" --compress topk:2
expect 2 64 "--shard-optimizer with --gradient-dtype: .*one of them" --shard-optimizer --gradient-dtype bf16
expect 2 64 "--shard-optimizer with --allreduce mpi: .*whole on all ranks" --shard-optimizer --allreduce mpi
expect 2 64 "--shard-optimizer with --compress: .*one of them" --shard-optimizer --compress powersgd:4
expect 2 64 "--shard-optimizer with --optimizer lars: .*leave one" --shard-optimizer --optimizer lars --data shapes
expect 2 64 "--eval-only" --eval-only --data shapes --model mlp
expect 2 64 "--interface.*nosuch0" --interface nosuch0 --data shapes --steps 1
# --- configuration files
expect 0 64 "nowhere.toml" --config nowhere.toml
printf 'modle = "mlp"\n' >misspelt.toml
expect 2 64 "misspelt.toml.*modle.*model" --config misspelt.toml
printf 'model = [\n' >broken.toml
expect 0 64 'key .model.: . is no single value' --config broken.toml
head -c 2000000 /dev/zero | tr '\0' '#' >large.toml
expect 0 64 "large.toml.*1 MB|large.toml.*MiB|large.toml.*large" --config large.toml
# --- model files
expect 0 64 "--model with --model-file" --model mlp --model-file own.model
expect 2 64 "--model-file own.model: No such file" --model-file own.model
expect 2 64 "--model-file .: is not a regular file" --model-file .
mkfifo pipe.model
expect 2 64 "pipe.model: is not a regular file" --model-file pipe.model
expect 2 64 "large.toml: .*1 MiB" --model-file large.toml
wait  # own.model was not there
printf 'model own classes=10\ninput size=8\nfc = matrix_produkt outputs=10\nloss\n' >own.model
expect 2 64 "own.model:3: matrix_produkt: .*matrix_product" --model-file own.model
expect 0 64 "own.model:3: matrix_produkt: .*matrix_product" --model-file own.model --plan
wait
printf 'model own classes=10\nrecipe optimizer=sdg\n' >own.model
expect 2 64 "own.model:2: optimizer=sdg: .*sgd" --model-file own.model
wait
printf 'model own classes=10\ninput size=32\nfc = matrix_product outputs=$classes\nloss\n' >own.model
expect 2 74 "--classes 3: .*10 classes" --model-file own.model --classes 3 --data shapes
wait
"$train" --quiet --model-file own.model --batch 4 --steps 2 --eval-every 0 --checkpoint-dir own >/dev/null 2>&1
sed -i 's/^fc/c = convolution channels=3 kernel=3\n&/' own.model
expect 2 65 "of another model .own.: .*has no weights/c.weight" --model-file own.model --checkpoint-dir own --steps 3
# --- data
expect 2 64 "imges.*images" --data imges:/tmp
expect 2 74 "nowhere" --data cifar10:nowhere
mkdir short && head -c 5000 /dev/urandom >short/data_batch_1.bin && cp short/data_batch_1.bin short/test_batch.bin
expect 2 74 "data_batch_1.bin" --data cifar10:short
mkdir labels && { printf '\x0b' && head -c 3072 /dev/zero; } >labels/data_batch_1.bin && cp labels/data_batch_1.bin labels/test_batch.bin
expect 2 74 "label 11 in record 0" --data cifar10:labels --batch 1 --steps 1
expect 2 74 "nowhere" --data tfrecord:nowhere
mkdir shards && echo "no shard" >shards/train-00000-of-00002
expect 2 74 "train-00001-of-00002 is missing" --data tfrecord:shards
wait
cp shards/train-0000{0,1}-of-00002
expect 2 74 "train-00000-of-00002: it ends at byte 9" --data tfrecord:shards
mkdir -p empty/train/cat empty/train/dog empty/test/cat
expect 2 74 "empty" --data images:empty
mkdir -p alone/train/cat && echo "no picture" >alone/train/cat/1.jpg
expect 2 74 "no directory val/, valid/, validation/ or test/" --data images:alone --model resnet20 --batch 1 --checkpoint-dir fresh --eval-only
mkdir -p rotten/train/cat rotten/train/dog rotten/test/cat rotten/test/dog
for n in 1 2 3 4; do for d in train/cat train/dog test/cat test/dog; do echo "no picture $n" >"rotten/$d/$n.jpg"; done; done
expect 2 74 "rotten" --data images:rotten --model resnet20 --batch 2 --steps 3
expect 2 74 "--classes 3: .*10 classes" --data shapes --classes 3 --steps 1
# --- checkpoints
echo hello >text.h5
expect 2 75 "text.h5" --checkpoint-dir text.h5 --data shapes --model mlp --steps 1
"$train" --quiet --model mlp --data shapes --batch 4 --steps 2 --eval-every 0 --checkpoint-dir good >/dev/null 2>&1
expect 2 65 "of another model .mlp.: .*has weights/fc1.weight" --model resnet20 --data shapes --steps 1 --checkpoint-dir good
expect 2 65 "--init-from good/step-0000000002.h5: of another model .mlp.: has no weights/conv1.weight" --model resnet20 --data shapes \
  --steps 1 --init-from good/step-0000000002.h5
expect 2 65 "has weights/fc3.weight .10,128., needed is .11,128." --model mlp --classes 11 --data shapes --eval-only \
  --init-from good/step-0000000002.h5
expect 2 66 "nosuch.h5" --model mlp --data shapes --steps 1 --init-from nosuch.h5
mkdir damaged && for s in 2; do head -c 3000 good/step-0000000002.h5 >damaged/step-0000000002.h5; done
expect 2 66 "damaged" --model mlp --data shapes --steps 3 --checkpoint-dir damaged
expect 2 66 "nosuch.h5" --model mlp --data shapes --resume nosuch.h5
expect 2 66 "text.h5" --model mlp --data shapes --resume text.h5
cp good/step-0000000002.h5 flipped.h5 && user_block=$(od -An -t u4 -j 12 -N 4 flipped.h5)
printf '\x7f' | dd of=flipped.h5 bs=1 seek=$((user_block + 40)) conv=notrunc status=none
expect 2 66 "flipped.h5: the HDF5 metadata fails its hash" --model mlp --data shapes --resume flipped.h5
mkfifo pipe.h5
expect 2 66 "pipe.h5" --model mlp --data shapes --resume pipe.h5
expect 0 66 "text.h5" --inspect text.h5
expect 0 66 "pipe.h5" --inspect pipe.h5
wait
"$train" --model mlp --data shapes --batch 4 --steps 1000000 --eval-every 0 --log-every 1 --checkpoint-dir good >owner.log 2>&1 &
owner=$!
log=owner.log await 60 has "step "
expect 2 73 "good.*locked|good.*in use|good.*used" --model mlp --data shapes --batch 4 --steps 3 --checkpoint-dir good
while (($(jobs -pr | wc -l) > 1)); do wait -n; done
kill $owner && wait
# --- numbers
expect 2 76 "not finite in step" --model mlp --data shapes --batch 8 --steps 50 --lr 1e6 --optimizer sgd --warmup-epochs 0 --lr-schedule constant
# --- outputs
expect 2 75 "text.h5/m.jsonl" --metrics text.h5/m.jsonl --data shapes --model mlp --steps 1
expect 2 75 "--timeline /dev/stdout: what lies in /dev" --timeline /dev/stdout --data shapes --model mlp --steps 1
expect 0 64 "--checkpoint-dir ~/runs: .*\\\$HOME" "--checkpoint-dir=~/runs"
for option in --print-config --help --plan; do
  "$train" --model mlp $option >/dev/full 2>full.log
  got=$? log=full.log
  check "$option into a full disk: exit code $got" test $got = 75
  check "$option into a full disk is told" has "^train: write to standard output: No space left on device"
done
"$train" --plan --model mlp --data images:nowhere --resume nowhere.h5 >plan.log 2>&1 || wrong "a plan without its data ends with $?"
log=plan.log
check "a plan says that the data is missing" has "^train: read images in nowhere: .*; the plan was made without it"
check "a plan says that the checkpoint is missing" has "^train: .*nowhere.h5.*; the plan was made without it"
((bad)) && touch "$dir/bad"
# --- limits of the process
limited() { # NAME WANTED COMMAND...
  local name=$1 wanted=$2
  shift 2
  "$@" >limit.log 2>&1 </dev/null
  local got=$? log=limit.log
  check "$name: exit code $got" test $got = 78
  check "$name: told" has "^train: .*$wanted"
  check "$name: the line for programs" has "^fault: kind=limit code=78"
}
with_limit() { (ulimit "$1" "$2"; exec "$train" --model mlp --data shapes --batch 8 --threads 4 --steps 20 --eval-every 0 "${@:3}"); }
limited "open files" "Too many open files; .ulimit -n. is 10: raise it" with_limit -n 10 --checkpoint-dir few
limited "memory" "ulimit -v. is 150000 KiB: raise it" with_limit -v 150000
((bad)) && touch "$dir/bad"
# --- the environment: ranks that were not started alike
unequal() {
  local output got
  # Not "-np 1 ... : -np 1 ...": Debian 13's mpirun (5.0.7) crashes on that.
  output=$(timeout 60 "$mpirun" --oversubscribe -np 2 sh -c '"$0" --data shapes --model mlp --steps 2 --seed $((1 + OMPI_COMM_WORLD_RANK))' \
    "$train" 2>&1)
  got=$?
  [ -n "$list" ] && printf '%s\n    exit %s, %s\n' "train --seed 1 beside train --seed 2 in one job" "$got" "$(grep -m1 '^train: ' <<<"$output")"
  if ((got != 64)) || ! grep -q 'seed' <<<"$output"; then
    echo "wrong: unequal ranks: exit code $got:"
    echo "$output"
    touch "$dir/bad"
  fi
}
tried=$((tried + 1))
unequal >"$dir/said.$((100 + tried))"
wait
cat "$dir"/said.*
echo "$tried wrong commands and broken inputs tried: $([ ! -e "$dir/bad" ] && echo "each was told once, with its exit code" || echo "NOT all as they should")"
[ ! -e "$dir/bad" ]
