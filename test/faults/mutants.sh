#!/usr/bin/env bash
# mutants.sh [PATCH...]: proves that faultrun can fail. Each patch of mutants/ breaks one promise in a scratch worktree; the
# faults that its second line names, put into the program so broken, must make the campaign fail. A patch that no longer applies
# or builds fails, too: mend it with what it breaks. Builds once and then a file or two a mutant; needs ccache to be quick.
set -u
here=$(dirname "$(readlink -f "$0")")
patches=("$@")
[ $# -gt 0 ] || patches=("$here"/mutants/*.patch)
scratch=$(mktemp -d) bad=0
[ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
tree=$scratch/tree
clean_up() {
  git -C "$here" worktree remove --force "$tree"
  rm -rf "$scratch"
}
trap clean_up EXIT

git -C "$here" worktree add --quiet --detach "$tree" HEAD || exit 1
(cd "$tree" && cmake --preset release) >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
build() { ninja -C "$tree/build/release" watched_train >"$scratch/log" 2>&1; }
said() { sed -n "s/^$1: //p" "$2" | head -n 1; }

# What is wrong with this mutant, or how it was caught.
judge() { # PATCH
  git -C "$tree" apply "$1" 2>"$scratch/log" || { echo "NO LONGER APPLIES: $(head -n 1 "$scratch/log")"; return 1; }
  build || { echo "DOES NOT BUILD: $(grep -m 1 error "$scratch/log")"; return 1; }
  eval "arguments=($(said Faultrun "$1"))"
  "$here/faultrun" --train "$tree/build/release/test/jobs/watched_train" --stop-at-failure --folder "$scratch/run" "${arguments[@]}" >"$scratch/log" 2>&1 &&
    { echo "NOT CAUGHT"; return 1; }
  grep -m 1 -E "^  wrong: |the undisturbed run ended" "$scratch/log" || { echo "THE CAMPAIGN ITSELF FAILED: $(tail -n 1 "$scratch/log")"; return 1; }
}

for patch in "${patches[@]}"; do
  verdict=$(judge "$patch") || bad=$((bad + 1))
  echo "$(basename "$patch" .patch) ($(said Breaks "$patch")): ${verdict#  }"
  git -C "$tree" checkout --quiet .
  rm -rf "$scratch/run"
done
echo "${#patches[@]} mutants, $bad of them not caught"
[ "$bad" -eq 0 ]
