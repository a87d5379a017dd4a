#!/usr/bin/env bash
# terminal.sh MPIRUN TRAIN: what is for a terminal is in no file, and on terminals only as far as the user wants it.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2")
need script  # which makes a terminal
enter_folder
unset NO_COLOR
export TERM=xterm
run="$mpirun -np 2 --oversubscribe $train --model mlp --data shapes --batch 8 --steps 30 --eval-every 0"
escape=$'\x1b' warn="ulimit -n 130 &&"  # which the doctor warns of

on_terminal() { # COMMAND
  timeout 60 script -qec "$1" /dev/null >log 2>&1 </dev/null
}
sh -c "$warn $run" >log 2>&1 </dev/null
check "redirected: lines" has "step 30, loss"
check "redirected: the warning" has "doctor: limits"
check "redirected: no escape, nothing overwritten" lacks "$escape"$'|\r'

on_terminal "$warn $run"
check "terminal: a bar" has "$escape\\[K.*\\[#+-*\\]"
check "terminal: warnings stand out" has "$escape\\[33m.*doctor: limits"
on_terminal "$warn NO_COLOR=1 $run"
check "NO_COLOR: no colour" lacks "$escape\\[3"
check "NO_COLOR: a bar" has "$escape\\[K"
on_terminal "TERM=dumb $run"
check "TERM=dumb: no escape" lacks "$escape"
on_terminal "$run --progress off"
sed -i '/doctor:/d' log  # what this machine may be warned of
check "--progress off: no escape" lacks "$escape"
check "--progress off: lines" has "step 30, loss"
on_terminal "$run --quiet"
sed -i '/doctor:/d' log
check "--quiet: nothing" test ! -s log
exit $bad
