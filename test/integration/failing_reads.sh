#!/usr/bin/env bash
# failing_reads.sh TRAIN SCRIPTS DATA FAILING_READS MPIRUN: reads of training data, and of checkpoints, that fail. What passes is tried again, and the
# bits are those of a training that nothing disturbed; what stays ends the job with 74, path, offset and errno; nothing takes the
# place of a sample. FAILING_READS is the library of test/support; DATA and SCRIPTS as of pack.sh.
. "$(dirname "$0")/../support/lib.sh"
train=$(realpath "$1") scripts=$(realpath "$2") data=$(realpath "$3") library=$(realpath "$4") mpirun=$5
need "$python"
enter_folder
export XDG_CACHE_HOME=$dir/cache
LD_PRELOAD=$library "$train" --version >log 2>&1 || skip "nothing can be preloaded here: $(tail -n 1 log)"
eio=5 eagain=11 timed_out=110 stale=116 short=0

cp -r "$data" folder
"$python" "$scripts/make_tfrecords.py" folder shards 2 >log 2>&1
exits "TFRecords are made" 0
"$train" --pack folder packed >log 2>&1 </dev/null
exits "records are packed" 0
mkdir cifar && "$python" - <<'PYTHON'
import random
random.seed(1)
for name in "data_batch_1", "test_batch":
    with open(f"cifar/{name}.bin", "wb") as file:
        for i in range(30):
            file.write(bytes([i % 10]) + random.randbytes(3072))
PYTHON

# run NAME DATA [OPTION...]: three steps and the evaluation; reads fail as $FAILING_READS says.
run() {
  rm -rf "$1"
  LD_PRELOAD=$library launch_alone "$train" --model cifar10_cnn --data "$2" --batch 2 --steps 3 --threads 1 --data-threads 1 \
    --checkpoint-dir "$1" "${@:3}"
  code=$?
}
undisturbed() { lacks "unreadable|takes its place"; }

# passes WHAT DATA FIRST TIMES ERRNO
passes() {
  FAILING_READS="$dir/${2#*:} $3 $4 $5" run disturbed "$2" "${classes[@]}"
  check "$1: exit code $code" test $code -eq 0
  check "$1: said in a line, with path, byte and errno" has "train: read $dir/${2#*:}/.*\(errno $5\).*trying again|train: read ${2#*:}/.*\(errno $5\).*trying again"
  check "$1: nothing is substituted" undisturbed
  check "$1: the same bits" is "$(bits disturbed 3)" "$(bits "calm_${2%%:*}" 3)"
}
# stays WHAT DATA FIRST
stays() {
  SECONDS=0
  FAILING_READS="$dir/${2#*:} $3 1000000 $eio" run disturbed "$2" "${classes[@]}"
  check "$1: exit code $code" test $code -eq 74
  check "$1: took $SECONDS s" test $SECONDS -le 40
  check "$1: path, byte, errno and what to do" has "train: read .*${2#*:}/.*: Input/output error \(errno 5\) at byte [0-9]+, 5 times in [0-9.]+ s; .*the disk or the mount"
  check "$1: nothing is substituted" undisturbed
}

for kind in images:folder tfrecord:shards records:packed cifar10:cifar; do
  classes=(--classes 2) && [ "${kind%%:*}" = cifar10 ] && classes=()
  run "calm_${kind%%:*}" "$kind" "${classes[@]}"
  check "$kind, calm: exit code $code" test $code -eq 0
  passes "$kind, the first read" "$kind" 1 1 $eio
done
classes=(--classes 2)
passes "images, amid training, twice" images:folder 6 2 $eio
passes "images, not now" images:folder 7 1 $eagain
passes "images, nothing there" images:folder 7 1 $short
passes "records, amid training, twice" records:packed 6 2 $eio
passes "records, a time-out" records:packed 7 1 $timed_out
passes "records, a stale handle" records:packed 7 1 $stale
stays "images" images:folder 6
stays "records, at the start" records:packed 1
stays "TFRecords" tfrecord:shards 9

# What cannot be decoded is still replaced.
broken=$(find folder/train -type f | sort | head -n 1)
head -c 200 "$broken" >part && cat part >"$broken"
run replaced images:folder
check "a broken image: exit code $code" test $code -eq 0
check "a broken image: replaced" has "unreadable sample .*the next one takes its place"
cp -r "$data"/. folder

# Checkpoints: what passes costs no step, and what stays is damage.
classes=(--classes 2)
rm -rf saved && "$train" --model cifar10_cnn --data images:folder --batch 2 --steps 2 --threads 1 --data-threads 1 --checkpoint-dir saved \
  --checkpoint-every 1 "${classes[@]}" >log 2>&1
check "checkpoints are saved" test "$(ls saved | grep -c '^step-')" -eq 2
resumes() { # FAILING_READS [OPTION]...: one step more
  rm -rf resumed && cp -r saved resumed
  FAILING_READS=$1 LD_PRELOAD=$library launch_alone "$train" --model cifar10_cnn --data images:folder --batch 2 --steps 3 --threads 1 --data-threads 1 \
    --checkpoint-dir resumed "${classes[@]}" "${@:2}"
  code=$?
}
newest=$dir/resumed/step-0000000002.h5
while read -r error first; do
  resumes "$newest $first 2 $error"
  check "a checkpoint, errno $error at read $first: exit code $code" test $code -eq 0
  check "a checkpoint, errno $error at read $first: the newest is taken" has "resuming from step-0000000002.h5"
  check "a checkpoint, errno $error at read $first: said in a line" has "read checkpoint .*\(errno $error\) at byte [0-9]+; trying again"
done <<<"$eio 1
$timed_out 2
$eagain 4
$stale 1"
resumes "$newest 2 2 $eio" --resume "$newest"
check "a checkpoint that is named: exit code $code" test $code -eq 0
check "a checkpoint that is named: said in a line" has "read checkpoint .*\(errno $eio\) at byte [0-9]+; trying again"
SECONDS=0
resumes "$dir/resumed/step- 1 1000000 $eio"
check "checkpoints that stay unreadable: exit code $code" test $code -eq 66
check "checkpoints that stay unreadable: took $SECONDS s" test $SECONDS -le 40
resumes "$newest 2 1000000 $eio"
check "a newest that stays unreadable: exit code $code" test $code -eq 0
check "a newest that stays unreadable: the one before is taken" has "not used: checkpoint .*step-0000000002.h5: read: Input/output error"

FAILING_LISTINGS="$dir/resumed 2 $eio" resumes none
check "a folder that cannot be listed twice: exit code $code" test $code -eq 0
check "a folder that cannot be listed twice: the newest is taken" has "resuming from step-0000000002.h5"
check "a folder that cannot be listed twice: said in a line" has "read checkpoint $dir/resumed: Input/output error \(errno 5\).*trying again"
FAILING_LISTINGS="$dir/resumed 1000000 $eio" resumes none
check "a folder that cannot be listed: exit code $code" test $code -eq 75
check "a folder that cannot be listed: says which" has "list the checkpoint directory $dir/resumed: Input/output error"

# An ending need not wait for it, and the other rank learns of it. The steps before it are saved, whichever rank meets it.
export FAILING_READS="$dir/folder 20 1000000 $eio"
SECONDS=0
"$mpirun" --timeout 100 -np 2 --oversubscribe -x FAILING_READS -x LD_PRELOAD="$library" "$train" --model cifar10_cnn --classes 2 --data images:folder \
  --batch 1 --steps 30 --threads 1 --data-threads 1 --checkpoint-dir left >log 2>&1 </dev/null
check "two ranks: exit code $?" test $? -ne 0
check "two ranks: took $SECONDS s" test $SECONDS -le 60
check "two ranks: who and what" has "train: rank [01]/2 on .*: read .*\(errno 5\) at byte"
check "two ranks: the last finished step is saved" wait_for 20 has_checkpoint left
exit $bad
