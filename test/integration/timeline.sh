#!/usr/bin/env bash
# timeline.sh MPIRUN TRAIN: what --timeline writes is a trace of all ranks, and says what --metrics says.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") here=$(dirname "$(readlink -f "$0")")
need "$python"
enter_folder

options=(--model cifar10_cnn --data shapes --batch 32 --eval-every 0 --log-every 5)
job() { launch 2 "$train" "${options[@]}" "$@"; }

job --steps 40 --timeline t.json --metrics m.jsonl --checkpoint-dir ck --checkpoint-every 10
exits "--timeline" 0
check "--timeline: the file is named" has "^timeline: t.json; times are by rank 0's clock, to 0 us$"
check "--timeline: nothing is left beside it" is "$(ls | tr '\n' ' ')" "ck log m.jsonl t.json "
"$python" "$here/check_timeline.py" t.json --ranks 2 --steps 40 --metrics m.jsonl --also "write checkpoint" checkpoint evaluation >log 2>&1
check "--timeline: the trace is as it should" test $? -eq 0

# The newest spans of a longer run; they are there after a signal, too.
begin 2 "$train" "${options[@]}" --steps 100000 --timeline t.json --timeline-spans 200
await 60 has "step 40,"
kill -TERM $(ranks)
ends
check "a signal: exit code $code" test $code -eq 143
check "a signal: the newest spans are there" has "^timeline: t.json; .*newest 200 spans of each rank"
"$python" "$here/check_timeline.py" t.json --ranks 2 >log 2>&1
check "a signal: the trace is as it should" test $? -eq 0

job --steps 60 --lr 1e6 --timeline t.json
exits "a run that fails" 76
check "a run that fails: rank 0's spans are there" has "^rank 0's own timeline is in t.json$"
"$python" -c 'import json; assert {e["pid"] for e in json.load(open("t.json"))["traceEvents"]} == {0}' >log 2>&1
check "a run that fails: the trace is of rank 0" test $? -eq 0

job --steps 1 --timeline nowhere/t.json
exits "a folder that is not there" 75
check "a folder that is not there: is told" has "^train: .*--timeline nowhere/t.json: No such file"
exit $bad
