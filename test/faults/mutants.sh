#!/usr/bin/env bash
# mutants.sh all|build|run FOLDER [PATCH...] | check: proves that faultrun can fail. Each patch of mutants/ breaks one promise; the
# faults that its second line names, put into the program so broken, must make the campaign fail. A patch that no longer applies
# or builds fails, too: mend it with what it breaks. FOLDER takes a worktree and 50 MB a mutant; below ccache's base_dir, if it
# has one, only the files that a patch touches are compiled. `check` only looks whether all patches still apply.
set -u
here=$(dirname "$(readlink -f "$0")")
if [ "${1:-}" = check ]; then
  command -v git >/dev/null || { echo "skipped: no git"; exit 0; }
  cd "$here/../.." && for patch in "$here"/mutants/*.patch; do git apply --check "$patch" || bad=1; done
  exit "${bad:-0}"
fi
phase=${1:?all, build or run} folder=$(realpath -m "${2:?a folder}")
shift 2
[ $# -gt 0 ] || set -- "$here"/mutants/*.patch
tree=$folder/tree bad=0

name() { basename "$1" .patch; }
said() { sed -n "s/^$1: //p" "$2" | head -n 1; }
build() { ninja -C "$tree/build/release" watched_train >"$folder/log" 2>&1; }

# The program with this patch, as FOLDER/NAME; else why there is none, in FOLDER/NAME.why.
build_mutant() { # PATCH
  if ! git -C "$tree" apply "$1" 2>"$folder/log"; then
    echo "NO LONGER APPLIES: $(head -n 1 "$folder/log")" >"$folder/$(name "$1").why"
  elif ! build; then
    echo "DOES NOT BUILD: $(grep -m 1 error "$folder/log")" >"$folder/$(name "$1").why"
  else
    cp "$tree/build/release/test/jobs/watched_train" "$folder/$(name "$1")"
  fi
  git -C "$tree" checkout --quiet .
}

# How this mutant was caught, or what is wrong with it.
judge() { # PATCH
  local arguments program
  program=$folder/$(name "$1")
  [ ! -e "$program.why" ] || { cat "$program.why"; return 1; }
  eval "arguments=($(said Faultrun "$1"))"
  "$here/faultrun" --train "$program" --stop-at-failure --folder "$folder/trials" "${arguments[@]}" >"$folder/log" 2>&1 &&
    { echo "NOT CAUGHT"; return 1; }
  grep -m 1 -E "^  wrong: |the undisturbed run ended" "$folder/log" || { echo "THE CAMPAIGN FAILED: $(tail -n 1 "$folder/log")"; return 1; }
}

if [ "$phase" != run ]; then
  mkdir -p "$folder"
  rm -f "$folder"/*.why
  git -C "$here" worktree add --quiet --detach "$tree" HEAD || exit 1
  { (cd "$tree" && cmake --preset release) >"$folder/log" 2>&1 && build; } || { cat "$folder/log"; exit 1; }
  for patch in "$@"; do build_mutant "$(readlink -f "$patch")"; done
  git -C "$here" worktree remove --force "$tree"
fi
[ "$phase" != build ] || exit 0
for patch in "$@"; do
  verdict=$(judge "$patch") || bad=$((bad + 1))
  echo "$(name "$patch") ($(said Breaks "$patch")): ${verdict#  wrong: }"
  rm -rf "$folder/trials"
done
echo "$# mutants, $bad of them not caught"
[ "$bad" -eq 0 ]
