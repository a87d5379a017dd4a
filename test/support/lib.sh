# shellcheck shell=bash
# Sourced by the tests that are scripts. What a program printed last is in $log, the file `log` of the script's own folder. A check that
# fails says what, where and the log's end, and sets `bad`: a script ends with `exit $bad`.
set -u
support=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
hosts=$support/hosts/hosts.sh slurm=$support/slurm/slurm.sh python=${RINGTRAIN_PYTHON:-python3}
bad=0 log=log limit=100 endings=()
export CUDA_VISIBLE_DEVICES=  # no test uses a GPU by accident

# --- The script's own folder, and what is there for it

at_end() { # COMMAND: runs when the script ends, before those that were given earlier
  endings=("$1" "${endings[@]}")
  trap clean_up EXIT
}
clean_up() {
  local ending
  for ending in "${endings[@]}"; do eval "$ending"; done
  endings=()
}
enter_folder() { # a new one, $dir, which goes with the script
  dir=$(realpath "$(mktemp -d)") || exit 1
  at_end 'cd / && rm -rf "$dir"'
  at_end end_jobs
  cd "$dir" || exit 1
  : >log
}
skip() { # WHY
  [ -n "$1" ] || give_up "skipped without a reason"
  ((bad)) && { echo "not skipped ($1): checks before it have failed"; exit 1; }
  echo "skipped: $1"
  exit 77
}
need() { # COMMAND...
  local tool
  for tool; do command -v "$tool" >/dev/null || skip "$tool is not installed"; done
}
need_strace() { # OPTION...: one that can do this here
  strace -o /dev/null "$@" true 2>why || skip "strace is missing or may not trace: $(tail -n 1 why)"
}
need_bf16() { grep -qE '\<(avx512_bf16|amx_bf16)\>' /proc/cpuinfo || skip "this CPU has neither AVX512_BF16 nor AMX"; }
need_hosts() { # [RATE [MS]]: $hosts can make hosts, in $HOSTS_RUN; they go with the script
  local why_not
  export HOSTS_RUN=$dir
  why_not=$("$hosts" check "$@") || skip "$why_not"
  at_end '"$hosts" down'
}
make_hosts() { # COUNT [RATE [MS]]
  need_hosts "${@:2}"
  "$hosts" up "$@" || give_up "no hosts are made"
}
# two_of WHAT...: two of them, others at each commit; without a repository, others each day. One a line.
two_of() {
  local seed first second
  seed=$(git -C "$support" rev-parse HEAD 2>/dev/null) || seed=$(date +%j | sha1sum)
  first=$((16#${seed:0:7} % $#)) second=$((16#${seed:7:7} % ($# - 1)))
  second=$(((first + 1 + second) % $#))
  printf '%s\n' "${@:first + 1:1}" "${@:second + 1:1}"
}
mount_slowfs() { # PROGRAM: the folder `backing` as `disk`, with the faults that the file `faults` names; else the reason is in `why`
  [ -x "$1" ] || { echo "built without libfuse3, there is no slow disk" >why; return 1; }
  mkdir backing disk
  "$1" backing disk faults 2>why &
  slowfs_server=$!
  at_end 'rm -f faults; kill $slowfs_server 2>/dev/null; wait $slowfs_server 2>/dev/null; fusermount3 -uz disk 2>/dev/null'
  wait_for 5 mountpoint -q disk || { echo "FUSE cannot mount here: $(tail -n 1 why)" >why; return 1; }
}
mount_freezable() { # MB: a file system, `disk`, that freeze and thaw know
  mkdir disk
  at_end 'thaw; umount -l disk 2>/dev/null'
  # What a file with holes lacks, a full disk behind it would tell as an error of the one that is tested.
  { fallocate -l "$1M" image && mkfs.ext4 -q image && mount -o loop image disk && freeze; } 2>why && thaw ||
    skip "no loop device can be mounted and frozen here: $(tail -n 1 why)"
}
freeze() { fsfreeze --freeze disk; }
thaw() { fsfreeze --unfreeze disk 2>/dev/null; }

# --- Jobs

launch() { # RANKS PROGRAM OPTION...: to the end, within $limit seconds; its exit code
  timeout "$limit" "$mpirun" -np "$1" --oversubscribe "${@:2}" >"$log" 2>&1 </dev/null
}
launch_alone() { timeout "$limit" "$@" >"$log" 2>&1 </dev/null; }  # PROGRAM OPTION...: without mpirun
launch_on_hosts() { # RANKS_A_HOST PROGRAM OPTION...
  timeout "$limit" "$hosts" mpirun "$@" >"$log" 2>&1 </dev/null
}
begin() { # RANKS PROGRAM OPTION...: in the background; its mpirun is $mpi
  : >"$log"
  resume_begin "$@"
}
resume_begin() { # likewise, and the log goes on
  "$mpirun" --timeout "$limit" -np "$1" --oversubscribe "${@:2}" >>"$log" 2>&1 </dev/null &
  mpi=$!
}
ends() { # the job $mpi: its exit code is $code, and it took $took seconds from now on
  local before=$SECONDS
  wait "$mpi"
  code=$? took=$((SECONDS - before))
}
alive() { kill -0 "$1" 2>/dev/null; }  # PID
ended() { ! alive "$1"; }
ranks() { pgrep -P "$mpi" -x "$(basename "$train")"; }  # the processes of the job $mpi on this host
rank() { ranks | sed -n "$(($1 + 1))p"; }  # RANK
child_of() { pgrep -P "${1:-0}" -x "$2"; }  # PID NAME, of which the kernel keeps 15 characters
writer() { child_of "$(rank 0)" ringtrain-write; }

# Jobs with names: the folder NAME has what NAME prints in `log`, its mpirun in `mpirun`, its rank R in R, and when it ended in `end`.
begin_named() { # NAME RANKS PROGRAM OPTION...
  mkdir -p "$1"
  {
    FOLDER=$dir/$1 "$mpirun" -np "$2" --oversubscribe "$support/rank.sh" "${@:3}" --metrics "$dir/$1/metrics" >>"$1/log" 2>&1
    code=$?
    date +%s.%N >"$1/end"
    exit $code
  } &
  echo $! >"$1/mpirun"
}
rank_of() { cat "$1/$2"; }  # NAME RANK
finishes() { # NAME: its exit code is $code
  wait "$(cat "$1/mpirun")"
  code=$?
}
end_jobs() { # those in the background, and what they started
  local pids=() pid
  for pid in $(jobs -pr); do mapfile -t -O "${#pids[@]}" pids < <(echo "$pid"; pgrep -P "$pid"); done
  ((${#pids[@]})) && kill "${pids[@]}" 2>/dev/null
  for pid in "${pids[@]}"; do timeout 10 tail --pid="$pid" -f /dev/null; done
}
records() { grep -c '"kind":"step"' "$1" 2>/dev/null; }                        # METRICS
has_records() { local seen; seen=$(records "$1"); ((${seen:-0} >= ${2:-1})); }  # METRICS [COUNT]

# --- Waiting

wait_for() { # SECONDS CONDITION...: false where it does not come true in time
  local until=$((SECONDS + $1 + 1))
  until "${@:2}"; do
    ((SECONDS < until)) || return 1
    sleep 0.05
  done
}
await() { # SECONDS CONDITION...: or the script ends
  wait_for "$@" || give_up "not in time, within $1 s: ${*:2}"
}
has_or_over() { has "$1" "${2:-1}" || ! alive "$mpi"; }  # PATTERN [TIMES], or the job $mpi has ended
has_checkpoint() { compgen -G "$1/step-*.h5" >/dev/null; }  # FOLDER
now_ms() { date +%s%3N; }
since() { bc <<<"scale=1; ($(date +%s.%N) - $1) / 1"; }  # a time as of `date +%s.%N`; in seconds

# --- Checks

where() { # SCRIPT:LINE of the check, and of what called the function that it is in
  local i text=
  for ((i = 1; i < ${#BASH_SOURCE[@]}; i++)); do
    [[ ${BASH_SOURCE[i]} == */support/lib.sh ]] || text+="${text:+, called from }$(basename "${BASH_SOURCE[i]}"):${BASH_LINENO[i - 1]}"
  done
  echo "$text"
}
wrong() { # WHAT [LINES]
  echo "wrong: $1"
  echo "  at $(where)"
  tail -n "${2:-100}" "$log"
  bad=1
}
wrong_in() { # NAME WHAT: of a job with a name
  echo "wrong: $1: $2"
  echo "  at $(where)"
  grep -v ': step ' "$1/log" | tail -n 30
  bad=1
}
give_up() { wrong "$1"; exit 1; }
check() { # WHAT CONDITION...
  "${@:2}" || wrong "$1 (${*:2})"
}
exits() { # WHAT CODE: of the command before; neither may be a $(...), which would be that command
  local got=$?
  check "$1: exit code $got" test $got -eq "$2"
}
is() { [ -n "$1" ] && [ "$1" = "$2" ]; }
differ() { [ -n "$1" ] && [ -n "$2" ] && [ "$1" != "$2" ]; }
near() { # A B DIFFERENCE
  awk -v a="$1" -v b="$2" -v d="$3" 'BEGIN { exit !(a > 0 && b > 0 && a - b < d && b - a < d) }'
}
log_text() { tr -d '\0' <"$log"; }  # Open MPI 5 puts a NUL behind its own messages
count() { log_text | grep -cE -- "$1"; }
has() { (($(count "$1") >= ${2:-1})); }  # PATTERN [TIMES]
lacks() { ! has "$1"; }
loss() { sed -n "s/.*step $1, loss = \([0-9.]*\) .*/\1/p" "$log"; }  # STEP
top1() { grep -o 'top-1 .*images)' "$log" | head -n 1; }             # of the first evaluation

# --- Checkpoints

file_of() { printf '%s/step-%010d.h5' "$1" "$2"; }                # FOLDER STEP
newest() { find "$1" -name 'step-*.h5' | sort | tail -n 1; }      # FOLDER
bits() { # FOLDER [STEP]: the hash of the state in STEP's checkpoint, or in the newest
  "$train" --inspect "$([ $# -gt 1 ] && file_of "$1" "$2" || newest "$1")" 2>/dev/null | sed -n 's/^state-hash //p'
}
# The run id and the hash over it, bytes 48 to 95, are another in each run (docs/reference/checkpoint-format.md).
same_bytes() { cmp -s -n 48 "$1" "$2" && cmp -s -i 128 "$1" "$2"; }

# --- Slurm: a cluster of its own

need_slurm() { # RATE
  local why_not
  export HOSTS_RUN=$dir TMPDIR=$dir  # TMPDIR: where reports go
  why_not=$("$slurm" check "$1") || skip "$why_not"
  at_end '"$slurm" down'
  mkdir jobs && cd jobs || exit 1
  : >log
}
submit() { # NAME SPEC OPTION...: prints the job's number; its log is NAME-<number>.log
  "$train" --emit-sbatch "nodes=2,name=$1,$2" --model mlp --data shapes --batch 16 --threads 1 --eval-every 0 \
    --log-every 10 --checkpoint-every 10 "${@:3}" >"$1.sbatch" || exit 1
  "$slurm" exec sbatch --parsable "$1.sbatch"
}
fact() { "$slurm" exec scontrol show job "$1" | grep -oP "\b$2=\K[^ ]+"; }  # JOB NAME
await_slurm() { # WHAT SECONDS CONDITION...: or the script ends
  wait_for "${@:2}" || { "$slurm" exec squeue -t all; tail -n 40 ./*.log; give_up "not in time, within $2 s: $1"; }
}
lose_node() { # JOB 1|$: its first or last node loses power
  local node
  node=$("$slurm" exec scontrol show hostnames "$(fact "$1" NodeList)" | sed -n "$2p")
  "$slurm" power "${node##*-}"
}
