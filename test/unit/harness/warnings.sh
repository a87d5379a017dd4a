#!/usr/bin/env bash
# warnings.sh - CMAKE: a warning ends the build with RINGTRAIN_WARNINGS_AS_ERRORS, and only then; who sets it.
set -u
cmake=$2 here=$(cd "$(dirname "$0")" && pwd)
scripts=$here/../../../scripts
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

# What the scripts give to CMake, which is told to fail.
mkdir -p "$dir/bin" "$dir/project/scripts"
for name in quickstart.sh test.sh; do ln -s "$(realpath "$scripts/$name")" "$dir/project/scripts/"; done
printf '#!/bin/sh\n' >"$dir/project/scripts/setup.sh"
printf '#!/bin/sh\necho "$@" >>"%s"\nexit 1\n' "$dir/log" >"$dir/bin/cmake"
chmod +x "$dir/bin/cmake" "$dir/project/scripts/setup.sh"
says() { # ON|OFF SCRIPT [ARGUMENT]...
  local errors=$1
  shift
  : >"$dir/log"
  PATH=$dir/bin:$PATH "$dir/project/scripts/$@" >/dev/null 2>&1
  grep -q -- "-DRINGTRAIN_WARNINGS_AS_ERRORS=$errors" "$dir/log" || wrong "$*: warnings as errors are not $errors"
}
unset RINGTRAIN_WARNINGS_AS_ERRORS
says OFF quickstart.sh
says OFF test.sh
says ON test.sh --full
says ON test.sh --all
RINGTRAIN_WARNINGS_AS_ERRORS=ON says ON test.sh
RINGTRAIN_WARNINGS_AS_ERRORS=ON says OFF quickstart.sh
grep -q '^export RINGTRAIN_WARNINGS_AS_ERRORS=ON' "$here/../../../.ci/run" || wrong "CI does not"
exit $bad
