#!/usr/bin/env bash
# long.sh BUILD NAME EXECUTIONS [SECONDS]: fuzzes NAME until it has had so many executions over all calls, or for SECONDS.
# BUILD is a build folder of the preset asan. The count is kept in BUILD/test/fuzz/NAME.executions, new inputs in NAME.found.
set -euo pipefail
home=$1/test/fuzz name=$2 wanted=$3 seconds=${4:-0}
cd "$home"
done_before=$(cat "$name.executions" 2>/dev/null || echo 0)
left=$((wanted - done_before))
if [ "$left" -gt 0 ]; then
  mkdir -p "$name.found"
  ./"fuzz_$name" -runs="$left" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
    -artifact_prefix="$name.finding-" "$name.found" "$name.seeds" >"$name.log" 2>&1 ||
    { tail -n 40 "$name.log" >&2; echo "fuzz: $name: a finding, see $home/$name.log" >&2; exit 1; }
  now=$(sed -n 's/^stat::number_of_executed_units: *//p' "$name.log")
  echo $((done_before + now)) >"$name.executions"
fi
echo "fuzz: $name: $(cat "$name.executions") executions, nothing found"
