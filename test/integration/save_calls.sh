#!/usr/bin/env bash
# save_calls.sh TRAIN: what the system calls of a whole run say of its saves: the trainer's threads touch no file of the
# checkpoint directory, sync, rename and delete nothing and wait for no answer of the writer; that does all of it.
. "$(dirname "$0")/../support/lib.sh"
train=$(realpath "$1")
enter_folder

need_strace -f

strace -f --seccomp-bpf -y -s 64 -o trace \
  -e trace=%file,%desc,%network,fsync,fdatasync,sync,flock,io_submit,io_getevents,prctl,futex \
  "$train" --model mlp --data shapes --batch 32 --steps 400 --eval-every 0 --log-every 50 --checkpoint-every 50 \
  --checkpoint-dir d --metrics m.jsonl >log 2>&1 </dev/null
exits "the traced run" 0

# A call that another thread's line interrupts takes two lines: joined again, for its flags stand on one of them only.
awk '/<unfinished \.\.\.>$/ { sub(/ *<unfinished \.\.\.>$/, ""); begun[$1] = $0; next }
     match($0, /<\.\.\. [a-z_0-9]+ resumed>/) { $0 = begun[$1] substr($0, RSTART + RLENGTH) }
     { print }' trace >whole && mv whole trace

# From the first step's line to the last save's: lines of the writer and of all other threads but the watchdog's, which
# waits for its timer and the other ranks, and the writer's others, which renew its lease and look where the directory is.
awk '/\/comm>, "watchdog"/ { split($0, path, "/task/"); watchdog = path[2] + 0 }
     /prctl\(PR_SET_NAME, "ringtrain-write/ { writer = $1 }
     /prctl\(PR_SET_NAME, "ringtrain-lease/ { lease = $1 }
     /prctl\(PR_SET_NAME, "ringtrain-path/ { path_thread = $1 }
     /write\(1<.*: step 50,/ { inside = 1 }
     /write\(1<.*: step 400,/ { inside = 0 }
     inside && $1 != watchdog && $1 != lease && $1 != path_thread { print > ($1 == writer ? "writer" : "trainer") }' trace

check "the writer renames checkpoints" test "$(grep -c 'rename' writer)" -ge 5
check "the writer syncs files and directory" test "$(grep -c 'fsync(.*/d[>/]' writer)" -ge 6
check "the trainer hands saves over" test "$(grep -c 'sendmsg(' trainer)" -ge 5
{
  grep -F "$dir/d" trainer
  grep -E ' (open|openat|creat|rename|renameat|renameat2|link|linkat|unlink|unlinkat|fsync|fdatasync|sync|syncfs|sync_file_range|flock)\(' trainer
  grep -E 'F_(OFD_)?SETLKW?' trainer
  grep -E ' (poll|ppoll|select|pselect6|epoll_wait|epoll_pwait)\(' trainer
  grep -E ' (sendmsg|recvmsg)\(' trainer | grep -v MSG_DONTWAIT
} | head -n 20 >log
check "the trainer makes none of these calls between the first step and the last" test ! -s log
exit $bad
