#!/usr/bin/env bash
# mutants.sh all|two BUILD [PATCH...] | check: proves that tests can fail. Each patch of mutants/ breaks one promise; the faults that
# its line `Faultrun:` names, put into the program so broken, must make the campaign fail. A line `Test:` names what must fail
# instead: a script here (`Test: starved.sh "$mpirun" "$train"`; `Program:` is what it is given as $train if not watched_train), or
# cases of a unit test (`Test: test_io 'a name*'`). A patch that no longer applies or builds fails, too: mend it with what it
# breaks. BUILD is a build folder with watched_train, of which only what a patch touches is compiled and linked anew, elsewhere.
# `two`: two of them, others at each commit. `check`: whether all patches still apply.
. "$(dirname "$(readlink -f "$0")")/../support/lib.sh"
here=$(dirname "$(readlink -f "$0")") root=$(realpath "$(dirname "$(readlink -f "$0")")/../..")
command -v git >/dev/null || { echo "skipped: git, which applies the patches, is not installed"; exit 77; }
if [ "${1:-}" = check ]; then
  cd "$root" && for patch in "$here"/mutants/*.patch; do git apply --check "$patch" || bad=1; done
  exit $bad
fi
which=${1:?all, two or check} build=$(realpath "${2:?a build folder}")
shift 2
strace -o /dev/null true 2>/dev/null || { echo "skipped: strace, which many faults need, is missing or may not trace"; exit 77; }
[ -x "$build/test/integration/watched_train" ] || { echo "$build has no watched_train: cmake --build $build --target watched_train"; exit 1; }
[ $# -gt 0 ] || set -- "$here"/mutants/*.patch
if [ "$which" = two ]; then
  mapfile -t chosen < <(two_of "$@")
  set -- "${chosen[@]}"
fi
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
export GIT_CEILING_DIRECTORIES=$folder

name() { basename "$1" .patch; }
said() { sed -n "s/^$1: //p" "$2" | head -n 1; }

# compile TARGET SOURCES BUILD OBJECTS FILE...: the objects of TARGET that come from one of these files of src/, from SOURCES instead.
compile() {
  python3 - "$root" "$@" <<'PYTHON'
import json, os, re, shlex, subprocess, sys
root, target, sources, build, objects, *touched = sys.argv[1:]
touched = {os.path.join(root, file) for file in touched}

def of_sources(text):
    return re.sub(re.escape(root) + r"/(src|include)(?=[/ \n]|$)", lambda found: f"{sources}/{found[1]}", text)

def ninja(*words):
    return subprocess.run(["ninja", "-C", build, "-t", *words], check=True, capture_output=True, text=True).stdout

needed = dict.fromkeys(re.findall(r" -o (\S+\.o) -c ", ninja("commands", target)))
link = ninja("commands", target).strip().splitlines()[-1]
made = []
for command in json.load(open(f"{build}/compile_commands.json")):
    words = [word for word in shlex.split(of_sources(command["command"])) if word != "-Werror"]
    output = words[words.index("-o") + 1]
    if output not in needed:
        continue
    reads = {os.path.normpath(os.path.join(build, line.strip())) for line in ninja("deps", output).splitlines()[1:]}
    if not reads & touched:
        continue
    source = words[words.index("-c") + 1]
    if os.path.commonpath([source, build]) == build and os.path.basename(source).startswith("unity_"):  # which names what it unites
        united = f"{objects}/{len(made)}.cxx"
        with open(source) as text, open(united, "w") as copy:
            copy.write(of_sources(text.read()))
        words[words.index("-c") + 1] = united
    made.append((output, f"{objects}/{len(made)}.o"))
    words[words.index("-o") + 1] = made[-1][1]
    subprocess.run(words, check=True, cwd=build)
if not made:
    sys.exit(f"error: {build} compiles none of {', '.join(touched)}")
# An object that is named is linked in the place of its archive's.
own = [path for output, path in made if output in link]
for output, path in made:
    link = link.replace(output, path)
link = re.sub(rf"-o (\S*/)?{target}(?=\s)", lambda _: " ".join(path for _, path in made if path not in own) + f" -o {objects}/train", link, 1)
subprocess.run(link, check=True, cwd=build, shell=True)
PYTHON
}

# The program with this patch, as $folder/built/train.
build_mutant() { # PATCH
  local touched target test
  target=$(said Program "$1") test=$(said Test "$1")
  [[ -z $test || ${test%% *} = *.sh ]] || target=${test%% *}
  rm -rf "$folder/tree" "$folder/built" && mkdir "$folder/tree" "$folder/built"
  cp -r "$root/src" "$root/include" "$folder/tree"
  git -C "$folder/tree" apply "$1" 2>"$folder/log" || { echo "NO LONGER APPLIES: $(head -n 1 "$folder/log")"; return 1; }
  mapfile -t touched < <(sed -n 's|^+++ b/||p' "$1")
  compile "${target:-watched_train}" "$folder/tree" "$build" "$folder/built" "${touched[@]}" >"$folder/log" 2>&1 ||
    { echo "DOES NOT BUILD: $(grep -m 1 -i error "$folder/log")"; return 1; }
}

# Likewise, where it names a test: $mpirun, $train, $slowfs and $data are for scripts.
judge_by_test() { # PATCH
  local arguments code
  # shellcheck disable=SC2034
  local mpirun=${MPIRUN:-mpirun} train=$folder/built/train slowfs=$build/test/support/slowfs/slowfs data=$root/test/data
  eval "arguments=($(said Test "$1"))"
  if [[ ${arguments[0]} != *.sh ]]; then
    (cd "$folder" && timeout 300 "$train" "${arguments[@]:1}") >"$folder/log" 2>&1 && { echo "NOT CAUGHT"; return 1; }
    grep -m 1 -E "^[^ ].*: FAILED:" "$folder/log" || { echo "THE TEST FAILED: $(tail -n 1 "$folder/log")"; return 1; }
    return
  fi
  "$here/${arguments[0]}" "${arguments[@]:1}" >"$folder/log" 2>&1
  code=$?
  [ $code -ne 77 ] || { tail -n 1 "$folder/log"; return; }
  [ $code -ne 0 ] || { echo "NOT CAUGHT"; return 1; }
  grep -m 1 -E ": (ended with|took|does not say|other|saves nothing)|was lost" "$folder/log" || { echo "THE TEST FAILED: $(tail -n 1 "$folder/log")"; return 1; }
}

# How this mutant was caught, or what is wrong with it.
judge() { # PATCH
  local arguments code
  build_mutant "$1" || return
  if [ "$(said Test "$1")" ]; then
    judge_by_test "$1"
    return
  fi
  eval "arguments=($(said Faultrun "$1"))"
  "$here/faultrun" --train "$folder/built/train" --stop-at-failure --folder "$folder/trials" "${arguments[@]}" >"$folder/log" 2>&1
  code=$?
  [ $code -ne 0 ] || { echo "NOT CAUGHT"; return 1; }
  grep -m 1 -E "^  wrong: |the undisturbed run ended|no undisturbed run saved" "$folder/log" || { echo "THE CAMPAIGN FAILED: $(tail -n 1 "$folder/log")"; return 1; }
}

for patch in "$@"; do
  start=$SECONDS
  verdict=$(judge "$(readlink -f "$patch")") || bad=$((bad + 1))
  echo "$(name "$patch") ($(said Breaks "$patch")): ${verdict#  wrong: }; $((SECONDS - start)) s"
  rm -rf "$folder/trials"
done
echo "$# mutants, $bad of them not caught"
exit $((bad > 0))
