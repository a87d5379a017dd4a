#!/usr/bin/env bash
# expected_speed.sh MPIRUN TRAIN: what runs say of their speed before it is there, and judge it by.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2")
enter_folder
export XDG_CACHE_HOME=$dir/cache

job() { # RANKS ARGUMENTS...
  local ranks=$1
  shift
  launch "$ranks" "$train" --model mlp --data shapes --eval-every 0 --threads 1 --batch 8 "$@"
}
kept() { find cache -name 'one-rank-*.json' 2>/dev/null | wc -l; }

job 2 --steps 60 --metrics told.jsonl --report page.html
exits "the run" 0
check "links: the verdict is told once" is "$(grep -c '^links: .* ms a step expected' log)" 1
check "links: compared with what came" has "^  step .* ms expected, was [0-9.]+ ms"
check "links: what the sums reached" has "^  sums .* MB/s of bus bandwidth"
check "links: a record" is "$(grep -c '"kind":"links".*"bus_bandwidth":[1-9]' told.jsonl)" 1
check "links: at the end of the records" is "$(grep -c '"kind":"end".*"exposed_share".*"expected_seconds_per_batch"' told.jsonl)" 1
check "links: in the page" grep -q "Links</h2>.*ms a step expected" page.html
check "several ranks keep no speed of one" is "$(kept)" 0
job 2 --steps 5
exits "a short run" 0
check "a short run has no verdict" lacks "expected"
job 1 --steps 20
exits "one rank" 0
check "one rank has no links" lacks "links|bandwidth"
check "a short run keeps no speed" is "$(kept)" 0

job 2 --steps 40 --require-efficiency 0.01
exits "--require-efficiency without any speed of one rank" 64
check "--require-efficiency: what to do" has "add --baseline, or train with one rank first"
job 1 --steps 40
check "a run of one rank keeps its speed" is "$(kept)" 1
job 2 --steps 40 --require-efficiency 0.001
exits "--require-efficiency by an earlier run" 0
check "the speed of one rank is recalled" has "^one rank alone: [0-9.]+ .* examples/sec, measured .* ago \(.*one-rank"
check "the efficiency is told" has "^  efficiency +[0-9.]+ % of 2 times one rank alone"
sed -i 's/"examples_per_second": /&9/' cache/ringtrain/one-rank-*.json
forged=$(cat cache/ringtrain/one-rank-*.json)
job 2 --steps 40 --require-efficiency 0.9
exits "--require-efficiency above what came" 77
check "--require-efficiency: both are told" has "the efficiency was 0.[0-9]+ of one rank alone, --require-efficiency asks for 0.9"
job 2 --batch 9 --steps 40
check "another batch is another speed" lacks "one rank alone"
job 2 --steps 20 --checkpoint-dir plain
job 2 --steps 20 --checkpoint-dir measured --baseline
exits "--baseline" 0
check "--baseline tells the speed-up" has "speed-up [0-9.]+"
check "--baseline: a table by phase" has "^  step .* [+-][0-9.]+"
check "--baseline leaves no trace in what is trained" is "$(bits measured)" "$(bits plain)"
check "--baseline keeps what it measured: in the same file" is "$(kept)" 1
check "--baseline keeps what it measured: another speed" test "$forged" != "$(cat cache/ringtrain/one-rank-*.json)"
job 2 --steps 20 --baseline --require-efficiency 1
exits "--baseline below --require-efficiency" 77
check "--baseline below --require-efficiency: nothing is trained" lacks "trained"
exit $bad
