#!/usr/bin/env bash
# inception_frozen_disk.sh TRAIN PHOTOGRAPHS [FREEZES]: Inception v3 as 16 ranks on 4 hosts, a checkpoint every other step, and the disk of the checkpoints
# freezes: training goes on, the user is told, and the next save is good. It freezes once more until the job has ended, which says so; the next one resumes.
# FREEZES: more than one, each four times as long, with larger images, and one more job, whose steps are over while the disk is frozen.
. "$(dirname "$0")/../support/lib.sh"
train=$(realpath "$1") photographs=$(realpath "$2") freezes=${3:-1} models=$support/../../models
enter_folder
need_hosts 1gbit
free=$(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo)
[ "$free" -ge 11000 ] || skip "16 ranks of Inception v3 take 10 GB of memory; $free MB are free"
mount_freezable 2500
"$hosts" up 4 1gbit || exit 1  # they see what was mounted before

# Six photographs: a step takes sixteen.
for file in "$photographs"/train/*/*; do
  class=images/train/$(basename "$(dirname "$file")")
  mkdir -p "$class"
  for copy in {1..8}; do ln -s "$file" "$class/$copy-$(basename "$file")"; done
done
options=(--data "images:$PWD/images" --classes 1001 --batch 1 --threads 1 --shard-optimizer --log-every 1 --checkpoint-dir "$PWD/disk/run" --checkpoint-every 2
  --keep 3 --final-save-timeout 5s --metrics "$PWD/metrics")
model=(--model inception_v3) steps_frozen=3
if [ "$freezes" -gt 1 ]; then
  sed 's/^input size=299/input size=346/' "$models/inception_v3.model" >larger.model # the largest for which the auxiliary head has as many weights
  model=(--model-file "$PWD/larger.model") steps_frozen=12
fi

start() { # its mpirun is a child of $job
  : >log
  timeout 3000 "$hosts" mpirun 4 "$train" "${model[@]}" "${options[@]}" "$@" >log 2>&1 </dev/null &
  job=$!
}
# await CONDITION...: ten minutes, or until the job has ended
await() { wait_for 600 or_over "$@"; }
or_over() { "$@" || ! alive $job; }
step() { log_text | sed -n 's/.*: step \([0-9]*\), loss.*/\1/p' | tail -n 1; }     # the last one
saved() { log_text | sed -n 's/.*| checkpoint \([0-9]*\), .*/\1/p' | tail -n 1; }  # the last one that the log said to be durable
has_saved() { [ "$(saved)" ] && [ "$(saved)" -gt "$1" ]; }
has_trained() { [ "$(step)" ] && [ "$(step)" -ge "$1" ]; }
verified() { "$train" --inspect "$1" | grep -q '^every byte verified'; }
weights() { "$train" --inspect "$1" | awk '$1 ~ "^weights/" { bytes += $3 } END { print bytes / 4 }'; }
# Whether no step after the first, up to the last, took ten times as long as half of them.
no_stall() {
  sed -n 's/.*"kind":"step".*"seconds_per_batch":\([0-9.]*\).*/\1/p' metrics | tail -n +2 | sort -g |
    awk '{ s[NR] = $1 } END { median = s[int((NR + 1) / 2)]
                              printf "%d steps, the median takes %.1f s and the longest %.1f s\n", NR, median, s[NR]
                              exit !(NR > 3 && s[NR] < 10 * median) }'
}
# The job's exit code; it must come in time: ten times a step and the save's limit.
ends_in_time() {
  local before=$SECONDS limit
  limit=$(sed -n 's/.*"seconds_per_batch":\([0-9.]*\).*/\1/p' metrics | sort -g | awk '{ s = $1 } END { print int(10 * (s + 5)) }')
  wait $job
  code=$? took=$((SECONDS - before))
  check "$1: in time" test $took -le "$limit"
}
note() { echo "$(date +%T) $*"; }
freeze_now() { # the last step was $at
  freeze
  sleep 1 # for what was written just before
  at=$(step)
  note "frozen after step $at"
}
said_last_good() { # PATTERN: the line that says so says, too, which checkpoint is the last good one, and it is the last that the log had before
  local line
  line=$(log_text | grep -E -- "$1" | tail -n 1)
  note "$line"
  grep -q "the last good checkpoint is of step $(saved)[^0-9]" <<<"$line"
}

if [ "$freezes" -eq 1 ]; then # the network is the whole one, and no smaller image fits it
  sed 's/^input size=299/input size=298/' "$models/inception_v3.model" >smaller.model
  "$train" --plan --model-file smaller.model --data synthetic >log 2>&1
  exits "298 pixels" 64
  check "298 pixels: told" has "AuxLogits.conv1.*5x5 window does not fit its 4x4x128 input"
fi

start --steps 100000
good=0
for ((freeze = 1; freeze <= freezes; freeze++)); do
  await has_saved "$good"
  check "frozen: a checkpoint came before" has_saved "$good"
  [ $bad -eq 0 ] || exit 1
  freeze_now
  await has save_slow $freeze
  await has_trained $((at + steps_frozen))
  check "frozen: training went on" has_trained $((at + steps_frozen))
  check "frozen: without a stall" no_stall
  check "frozen: told once" is "$(count save_slow)" $freeze
  check "frozen: which file system" has "save_slow: checkpoint of step [0-9]+ is not durable after [0-9]+ s: is the file system of .*/disk/run stuck"
  check "frozen: the last good checkpoint" said_last_good save_slow
  [ $bad -eq 0 ] || exit 1
  good=$(saved)
  thaw
  note "thawed after step $(step)"
  await has save_works $freeze
  check "thawed: told" has save_works $freeze
  await has_saved "$good"
  check "thawed: a checkpoint from after the freeze is durable" has_saved "$good"
  good=$(saved)
  check "thawed: it is there" verified "$(file_of disk/run "$good")"
done

freeze_now
for pid in $("$hosts" pids 3); do [ "$(cat "/proc/$pid/comm")" != train ] || break; done
kill -TERM "$pid"
ends_in_time "SIGTERM, frozen"
check "SIGTERM, frozen: exit code $code" test $code -eq 75
check "SIGTERM, frozen: why" \
  has "final checkpoint: the checkpoint of step $(step) was not durable in time; the file system of .*/disk/run may be stuck: the last good checkpoint is of step"
check "SIGTERM, frozen: the last good checkpoint" said_last_good "final checkpoint"
good=$(saved)
thaw

again() { # STEPS: a job that resumes, and trains so many
  start --steps $((good + $1))
  await has "^resumed from step-.*at step $good\$"
  check "the next job goes on from the last good checkpoint" has "resumed from $(basename "$(file_of disk/run "$good")") at step $good"
  check "the next job finds nothing partial" lacks "not used"
}
if [ "$freezes" -gt 1 ]; then
  again 8
  await has_saved 0
  freeze_now
  await has_trained $((good + 8))
  ends_in_time "steps are over, frozen"
  check "steps are over, frozen: exit code $code" test $code -eq 75
  check "steps are over, frozen: all trained" has "^trained 8 steps"
  check "steps are over, frozen: the last good checkpoint" said_last_good "final checkpoint"
  good=$(saved)
  thaw
fi
again 1
await has_trained $((good + 1))
ends_in_time "resumed"
check "resumed: exit code $code" test $code -eq 0
check "resumed: trained" has "^trained 1 step"
check "resumed: the last checkpoint is of the last step" is "$(newest disk/run)" "$(file_of disk/run $((good + 1)))"
check "resumed: it is whole" verified "$(newest disk/run)"
check "resumed: it has all weights of Inception v3, with both heads" is "$(weights "$(newest disk/run)")" 27145970
check "resumed: nothing left behind" is "$(find disk/run -name '*tmp*' | wc -l)" 0
note "$(log_text | tail -n 1)"
exit $bad
