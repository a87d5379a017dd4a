#!/usr/bin/env bash
# endings.sh PLANTED CMAKE: what test programs and scripts end with, and what CTest and the summary make of it.
set -u
planted=$1 cmake=$2 here=$(cd "$(dirname "$0")" && pwd)
support=$here/../../support
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
bad=0
ends() { # CODE COMMAND...
  local code=$1 got
  shift
  "$@" >log 2>&1
  got=$?
  [ $got -eq "$code" ] && return
  echo "ended with $got instead of $code: $*"
  cat log
  bad=1
}
script() { # NAME LINES: a test that is a script
  printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod +x "$1"
}

ends 1 "$planted" "77 checks fail"
ends 0 "$planted" "all is well"
ends 77 "$planted" "skipped"
ends 77 "$planted" "skipped,also skipped"
ends 0 "$planted" "skipped,all is well"
ends 1 "$planted" "skipped after a check"
ends 1 "$planted" "fails after a skip"
ends 1 "$planted" "skipped in one section*"
ends 1 "$planted" "77 as an exception"
ends 1 "$planted" --no-such-option
ends 1 "$planted" "no case has this name"

script passes 'echo skipped: a part, but it went on'
script skips 'echo looked; echo skipped: nothing to test here; exit 77'
script train_ends_77 'echo "save_skipped: the disk is slow"; sh -c "exit 77"; exit $?'
script says_too_early 'echo skipped: a part; echo and went on; exit 77'
script fails_after_skip 'echo skipped: a part; exit 1'
script ends_3 'exit 3'
ends 0 "$support/run_script.sh" ./passes
ends 77 "$support/run_script.sh" ./skips
for name in train_ends_77 says_too_early fails_after_skip ends_3 nothing_like_it; do ends 1 "$support/run_script.sh" ./$name; done

# Scripts with the library of job tests: what failed, where, and the log's end; skips have reasons, and nothing is left behind.
bash_script() { # NAME LINES
  printf '#!/bin/bash\n. "%s/lib.sh"\nenter_folder\n%s\n' "$support" "$2" >"$1" && chmod +x "$1"
}
says() { # LINE...: of the script before
  local line
  for line; do grep -qxF -- "$line" log || { echo "not told: $line"; cat log; bad=1; }; done
}
mkdir folders
export TMPDIR=$dir/folders
bash_script checks_fail 'echo last words >log
both() { check "two is three" is 2 3; }
both
check "one is one" is 1 1
exit $bad'
ends 1 ./checks_fail
says 'wrong: two is three (is 2 3)' '  at checks_fail:5, called from checks_fail:6' 'last words'
bash_script never_comes 'await 1 test -e nothing'
ends 1 ./never_comes
says 'wrong: not in time, within 1 s: test -e nothing' '  at never_comes:4'
bash_script wrong_code 'launch_alone sh -c "exit 3"; exits "the program" 0; exit $bad'
ends 1 ./wrong_code
says 'wrong: the program: exit code 3 (test 3 -eq 0)'
bash_script no_reason 'skip ""'
ends 1 ./no_reason
bash_script a_reason 'skip "no such thing"'
ends 77 ./a_reason
bash_script cleans_up 'at_end "cat file"; echo still there >file; exit $bad'
ends 0 ./cleans_up
says 'still there'
[ -z "$(ls folders)" ] || { echo "left behind: $(ls folders)"; bad=1; }

# As CTest sees them, and how they are counted.
{
  printf 'cmake_minimum_required(VERSION 3.25)\nproject(planted NONE)\nenable_testing()\n'
  for name in passes skips train_ends_77 fails_after_skip; do
    printf 'add_test(NAME %s COMMAND "%s" "%s")\n' $name "$support/run_script.sh" "$dir/$name"
  done
  printf 'add_test(NAME planted COMMAND "%s" "77 checks fail")\n' "$planted"
  printf 'set_tests_properties(passes skips train_ends_77 fails_after_skip planted PROPERTIES SKIP_RETURN_CODE 77)\n'
} >CMakeLists.txt
"$cmake" -G Ninja -S . -B build >log 2>&1 || { cat log; exit 1; }
ctest=$(dirname "$cmake")/ctest
"$ctest" --test-dir build --output-junit "$dir/all.xml" >log 2>&1
"$ctest" --test-dir build --output-junit "$dir/good.xml" -R 'passes|skips' >log 2>&1
"$ctest" --test-dir build --output-junit "$dir/none.xml" -R 'nothing is named so' >log 2>&1
ends 1 "$support/test_summary.py" good.xml none.xml
ends 1 "$support/test_summary.py" all.xml
for line in '1 passed, 3 failed, 1 skipped' 'failed: planted' 'failed: train_ends_77' 'failed: fails_after_skip' \
            'skipped (1): nothing to test here'; do
  grep -qF "$line" log || { echo "not told: $line"; cat log; bad=1; }
done
ends 0 "$support/test_summary.py" good.xml
ends 0 "$support/test_summary.py" --only-skips 'a GPU|nothing to' good.xml
ends 1 "$support/test_summary.py" --only-skips 'a GPU' good.xml
exit $bad
