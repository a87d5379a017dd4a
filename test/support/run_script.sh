#!/usr/bin/env bash
# run_script.sh COMMAND...: runs a test that is a script or a job, and ends with what CTest is to see: 0; 77 where it was skipped,
# for which its last line must be "skipped: <why>"; else 1. A program that ends with 77 for reasons of its own skips nothing.
set -uo pipefail
last=$(mktemp)
trap 'rm -f "$last"' EXIT
"$@" | tee >(tail -n 1 >"$last")
code=${PIPESTATUS[0]}
[ "$code" -eq 0 ] && exit 0
for _ in $(seq 50); do [ -s "$last" ] && break; sleep 0.1; done
[ "$code" -eq 77 ] && grep -q '^skipped: ' "$last" && exit 77
echo "${1##*/} ended with $code"
exit 1
