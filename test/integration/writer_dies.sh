#!/usr/bin/env bash
# writer_dies.sh MPIRUN TRAIN: the checkpoint writer is killed, idle, amid saves and again and again: another one takes over, and the
# run comes to the undisturbed one's bits; where none can, the job ends at once, with the line that programs read.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2")
enter_folder
export OMPI_MCA_btl_vader_backing_directory=$dir  # for what killed jobs leave
steps=300 limit=200

start() { # DIRECTORY OPTION...: in the background, until step 20; its rank 0 is $rank
  rm -f metrics
  begin 2 "$train" --model resnet20 --data shapes --batch 4 --threads 1 --eval-every 0 --log-every 20 --steps $steps --metrics metrics --checkpoint-dir "$@"
  said "step 20,"
  rank=$(rank 0)
}
said() { wait_for 60 has_or_over "$@"; }
saves() { grep -c '"kind":"checkpoint"' metrics; }
more_saves() { (($(saves) > before)); }
server() { child_of "$rank" ringtrain-fork; }
in_save() { for ((i = 0; i < 100000; i++)); do compgen -G "$1/.step-*.tmp" >/dev/null && return; done; echo "no save under way"; false; }
gone() { ! ps -o stat= -p "$(tr ' ' ',' <<<"$*")" | grep -qv '^Z'; }  # PID...: but for zombies
nothing_left() { wait_for 10 gone "$@" || { ps -p "$(tr ' ' ',' <<<"$*")"; false; }; }
all_is_well() { # WHAT DIRECTORY REPLACED
  ends
  check "$1: exit code $code" test $code -eq 0
  check "$1: told that it died, how, and that another took over" \
    test "$(grep -cE 'writer_replaced: the checkpoint writer process was killed by signal [0-9]+ \([A-Z].*\); another one took over' log)" -eq "$3"
  check "$1: in the metrics, too" test "$(grep -c '"kind":"event".*writer_replaced' metrics)" -eq "$3"
  check "$1: no save failed" has "checkpoints +[0-9]+ saved, 0 failed"
  check "$1: no fault" lacks "fault: "
  check "$1: the undisturbed run's bits" is "$(bits "$2" $steps)" "$(bits calm $steps)"
  check "$1: nothing left behind" test -z "$(find "$2" -name '.*tmp')"
}
at_once() { # WHAT
  ends
  check "$1: exit code $code" test $code -eq 75
  check "$1: within seconds, not $took" test $took -le 20
  check "$1: before the end of training" lacks "^trained "
  check "$1: one line for programs" is "$(grep -cE '^fault: ' log)" 1
  check "$1: the line" has "^fault: kind=writer code=75 rank=0 host=$(hostname) step=[1-9][0-9]* resume=$dir/.*/step-[0-9]{10}\.h5 how=\"was killed by signal (9|11) \(.*\)\"$"
  check "$1: what resumes is there" test -s "$(sed -nE 's/^fault: .* resume=([^ ]+) .*/\1/p' log)"
  check "$1: told as an event" has "writer_lost: "
}

start calm --checkpoint-every 10
ends
check "undisturbed: exit code $code" test $code -eq 0

start idle --checkpoint-every 100
for n in 1 2 3; do
  kill -$((n == 2 ? 11 : 9)) "$(writer)"
  said writer_replaced $n
done
kept=$(writer) server=$(server)
all_is_well "killed while idle" idle 3
check "killed while idle: helpers end with the job" nothing_left "$kept" "$server"

start amid --checkpoint-every 25 --keep 100  # far apart enough for a writer that is replaced under load
for n in 1 2 3; do
  before=$(saves)
  in_save amid && kill -$((n == 2 ? 11 : 9)) "$(writer)"
  said writer_replaced $n
  wait_for 60 more_saves  # two that die in one save end the job
done
all_is_well "killed amid saves" amid 3
for file in amid/step-*.h5; do check "killed amid saves: $file is whole" "$train" --inspect "$file" >/dev/null; done
check "killed amid saves: all were saved" is "$(ls amid/step-*.h5 | wc -l)" $((steps / 25))

# In the last save, which the job waits for: the writer stands still until it is handed over.
start end --checkpoint-every 1000
writer=$(writer)
kill -STOP "$writer"
said "step $steps,"
sleep 0.2
kill -9 "$writer"
all_is_well "killed in the last save" end 1

steps=1000000
start forever --checkpoint-every 20
said "checkpoint [0-9]+, "
while alive $mpi; do kill -9 $(writer); sleep 0.05; done 2>/dev/null &
killer=$!
at_once "killed for ever"
kill $killer 2>/dev/null

start both --checkpoint-every 20
said "checkpoint [0-9]+, "
writer=$(writer) server=$(server)
kill -9 "$server"
said "fork_server_lost"
check "the fork server killed: told" has "fork_server_lost: the fork server.* was killed by signal 9"
before=$(saves)
check "the fork server killed: saves go on" wait_for 60 more_saves
kill -11 "$writer"
at_once "the fork server killed, then the writer"

start together --checkpoint-every 20
said "checkpoint [0-9]+, "
mv together moved  # saves go on there, and that is what a fault names
said "folder_moved: checkpoint directory $dir/together no longer leads to .*: that is $dir/moved now"
kill -9 "$(server)" "$(writer)"
at_once "both killed"
check "both killed: the moved folder is named" has "resume=$dir/moved/step-"

# The one that took over ends, as the first one would, with a trainer that is killed.
start orphans --checkpoint-every 20
kill -9 "$(writer)"
said writer_replaced
writer=$(writer) server=$(server)
kill -9 "$rank"
ends
check "rank 0 killed: nothing left" nothing_left "$writer" "$server"
check "rank 0 killed: nobody holds the directory" python3 -c 'import fcntl; fcntl.lockf(open("orphans/lock", "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB)'

# And it holds up the end of a job no longer than the first one.
start stuck --checkpoint-every 20 --final-save-timeout 2s
kill -9 "$(writer)"
said writer_replaced
kill -STOP "$(writer)"
kill -TERM "$rank"
ends
check "the next one is stopped: exit code $code" test $code -eq 75
check "the next one is stopped: in time, not $took" test $took -le 20
check "the next one is stopped: it is named" has "the checkpoint writer, process [0-9]+, is stopped \(state T .* kill -CONT [0-9]+ lets it go on"
check "the next one is stopped: the disk is not" lacks "may be stuck"
check "the next one is stopped: a fault of the writer" has "^fault: kind=writer code=75 rank=0 "
exit $bad
