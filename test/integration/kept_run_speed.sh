#!/usr/bin/env bash
# kept_run_speed.sh MPIRUN TRAIN: a run is compared with what an earlier one of its configuration reached. Three minutes: what a run
# reaches is known after one.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2")
enter_folder
export XDG_CACHE_HOME=$dir/cache

job() { # ARGUMENTS...
  limit=250 launch 2 "$train" --model mlp --data synthetic --eval-every 0 --threads 1 --batch 8 --log-every 1000 \
    --metrics metrics "$@"
}
kept() { find cache -name 'run-*.json' 2>/dev/null; }
rate() { sed -n 's/.*"examples_per_second": \([0-9.]*\).*/\1/p' "$(kept)"; }

job --max-time 20s
exits "a short run" 0
check "a short run keeps no speed" is "$(kept | wc -l)" 0
job --max-time 80s
exits "a run" 0
check "a run keeps its speed" is "$(kept | wc -l)" 1
check "nothing was expected of it" lacks "the run of"
[ $bad -eq 0 ] || exit 1
reached=$(grep '"kind":"end"' metrics | tail -n 1 | sed 's/.*"examples_per_second":\([0-9.e+]*\).*/\1/')
check "what is kept is what it reached: $(rate), $reached" awk "BEGIN { exit !($(rate) > 0.8 * $reached && $(rate) < 1.3 * $reached) }"

sed -i "s/\"examples_per_second\": .*/\"examples_per_second\": $(awk "BEGIN { print 10 * $(rate) }"),/" "$(kept)"
forged=$(cat "$(kept)")
job --max-time 80s
exits "a slower run" 0
check "a slower run: is told, once" is "$(grep -c 'slow_down: .* % less than the [0-9.]* that the run of 20[0-9-]* [0-9:]* reached; on rank 0 .* ms a step.* ms then; what to do: ' log)" 1
check "a slower run does not lower what is expected" is "$(cat "$(kept)")" "$forged"
exit $bad
