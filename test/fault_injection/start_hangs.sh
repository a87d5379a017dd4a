#!/usr/bin/env bash
# start_hangs.sh MPIRUN WATCHED_TRAIN SLOWFS DATA: a disk that does not answer while a job starts ends it, with the path; one that is
# slow but answers does not, however long it takes. With 4 s instead of 60. DATA is an image folder.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") slowfs=$3 data=$(realpath "$4") longest=4
enter_folder
mount_slowfs "$slowfs" || skip "$(tail -n 1 why)"
export TMPDIR=$dir START_LIMIT_S=$longest XDG_CACHE_HOME=$dir/cache  # TMPDIR: where reports go
disk=$dir/disk

train() { # [OPTION]...: on two ranks, to the end; sets code and took
  local begin=$SECONDS
  launch 2 "$train" --threads 1 --eval-every 0 "$@"
  code=$? took=$((SECONDS - begin))
}
# hangs NAME CALL PATTERN [OPTION]...: while that call of the disk hangs, the job ends in time and says so once
hangs() {
  echo "hang $2" >faults
  train "${@:4}"
  rm faults
  echo "$1: ended after $took s with $code"
  ((code == 72)) || wrong "$1: ended with $code, not 72"
  ((took <= longest + 12)) || wrong "$1: took $took s"
  (($(grep -cE "the job cannot go on: $3" log) == 1)) || wrong "$1: does not say once: $3"
}
# is_slow NAME FAULT [OPTION]...: the job takes longer than the limit at this, and ends well
is_slow() {
  echo "$2" >faults
  train "${@:3}"
  rm faults
  echo "$1: ended after $took s with $code"
  ((code == 0)) || wrong "$1: ended with $code"
  ((took > longest + 2)) || wrong "$1: took $took s only: it proves nothing"
}
none() { echo "for [0-9]+ s without progress; its limit is $longest s"; }

mlp=(--model mlp --batch 8 --steps 20 --data shapes)
photographs=(--model cifar10_cnn --classes 2 --batch 2 --steps 4)
# 6,000 black images: 18 MB.
mkdir backing/cifar10
head -c $((6000 * 3073)) /dev/zero >"backing/cifar10/data_batch_1.bin"
head -c $((10 * 3073)) /dev/zero >"backing/cifar10/test_batch.bin"
cp -r "$data" backing/images
"$train" --pack backing/images backing/records >log 2>&1 || wrong "pack: cannot be made"

# Before MPI is up: every rank reads the file, and the first one speaks.
cat >backing/job.toml <<<'model = "mlp"'
echo "hang open" >faults
train --config "$disk/job.toml" --steps 2
rm faults
echo "reading --config: ended after $took s with $code"
((code == 72 && took <= longest + 12)) || wrong "reading --config: ended with $code after $took s"
(($(grep -c "^train: reading --config $disk/job.toml: not done after $longest s; its file system does not answer" log) == 1)) ||
  wrong "reading --config: does not say so once"
has "^fault: kind=stuck code=72 rank=0" || wrong "reading --config: no line for programs"
# FUSE lets go of a call that was killed when the disk answers again.
for ((i = 0; i < 100; i++)); do pgrep -f "$disk/job.toml" >/dev/null || break; sleep 0.1; done
((i < 100)) || wrong "reading --config: its reader stays, though the disk answers"

hangs "opening --metrics" open "rank 0 on .* has been at open $disk/metrics.jsonl $(none)" "${mlp[@]}" --metrics "$disk/metrics.jsonl"
hangs "opening --timeline" open "rank 0 on .* has been at open $disk/timeline.json $(none)" "${mlp[@]}" --timeline "$disk/timeline.json"
hangs "listing an image folder" list "rank [01] on .* has been at list $disk/images $(none)" "${photographs[@]}" --data "images:$disk/images"
hangs "reading an index" read "rank [01] on .* has been at index $disk/records/train-00000-of-0000[0-9].records $(none)" \
  "${photographs[@]}" --data "records:$disk/records"
hangs "reading CIFAR-10" read "rank [01] on .* has been at index $disk/cifar10/data_batch_1.bin $(none)" --model mlp --batch 8 --steps 20 --data "cifar10:$disk/cifar10"

resumed=(--model resnet32 --batch 2 --data shapes --checkpoint-dir "$disk/saves" --checkpoint-every 1000)  # 3.7 MB
train "${resumed[@]}" --steps 4
((code == 0)) || wrong "a save: ended with $code"
hangs "reading a checkpoint" read "rank 0 on .* has been at resume $disk/saves/step-0000000004.h5 $(none)" "${resumed[@]}" --steps 8
hangs "opening a checkpoint's folder" any "rank 0 on .* has been at (open|resume) $disk/saves(/step-0000000004.h5)? $(none)" "${resumed[@]}" --steps 8
# All of an image folder's entries: the kernel asks for each.
is_slow "a slow list" "delay stat 300" "${photographs[@]}" --data "images:$disk/images"
is_slow "a slow index" "rate 2000000" --model mlp --batch 8 --steps 20 --data "cifar10:$disk/cifar10"
is_slow "a slow checkpoint" "rate 500000" "${resumed[@]}" --steps 8
exit $bad
