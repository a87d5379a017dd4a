#!/usr/bin/env bash
# warnings.sh - CMAKE: a warning ends the build with RINGTRAIN_WARNINGS_AS_ERRORS, and only then; who sets it.
set -u
cmake=$2 here=$(cd "$(dirname "$0")" && pwd)
scripts=$here/../../scripts
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
bad=0
wrong() { echo "wrong: $*"; cat "$dir/log"; bad=1; }

for errors in ON OFF; do
  "$cmake" -G Ninja -S "$here/warning" -B "$dir/$errors" -DRINGTRAIN_WARNINGS_AS_ERRORS=$errors >"$dir/log" 2>&1 || wrong "it does not configure"
  "$cmake" --build "$dir/$errors" >"$dir/log" 2>&1
  code=$?
  grep -q 'conversion' "$dir/log" || wrong "$errors: there is no warning"
  if [ $errors = ON ]; then [ $code -ne 0 ] || wrong "the warning is no error"; else [ $code -eq 0 ] || wrong "the warning is an error"; fi
done
: >"$dir/log"
grep -q 'RINGTRAIN_WARNINGS_AS_ERRORS=OFF' "$scripts/quickstart.sh" || wrong "quickstart.sh may treat warnings as errors"
grep -q 'RINGTRAIN_WARNINGS_AS_ERRORS=ON' "$here/../../.ci/run" || wrong "CI does not"
exit $bad
