# Sourced by scripts that look at whole runs in a folder of their own: what a run printed is in `log`, and `bad` is 1 after a
# check that failed.
bad=0
export CUDA_VISIBLE_DEVICES=  # no test uses a GPU by accident

check() { # WHAT CONDITION...
  local what=$1
  shift
  "$@" && return
  echo "wrong: $what ($*):"
  cat log
  bad=1
}
is() { [ -n "$1" ] && [ "$1" = "$2" ]; }
log_text() { tr -d '\0' <log; }  # Open MPI 5 puts a NUL behind its own messages
has() { grep -qE -- "$1" <(log_text); }
lacks() { ! has "$1"; }
