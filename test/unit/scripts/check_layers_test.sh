#!/usr/bin/env bash
# check_layers_test.sh SOURCE: check_layers.sh accepts the sources as they are, and says each violation of its rules.
set -u
source=$1 bad=0
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
fresh() { rm -rf "$dir"/* && cp -r "$source/src" "$source/include" "$dir/"; }
check=$source/scripts/check_layers.sh
fresh
"$check" "$dir" || { echo "wrong: the sources as they are"; bad=1; }
# violates SAYING FILE LINE: LINE at the end of FILE is said so
violates() {
  fresh
  mkdir -p "$(dirname "$dir/$2")"
  echo "$3" >>"$dir/$2"
  if said=$("$check" "$dir"); then echo "wrong: accepts $3 in $2"; bad=1; fi
  grep -qE -- "$1" <<<"$said" || { echo "wrong: $3 in $2 is not said as '$1', but: $said"; bad=1; }
}
violates 'error.cpp:[0-9]+: base may not include host' src/base/error.cpp '#include "ringtrain/host/threads.hpp"'
violates 'io/loader may not include io/checkpoint' src/io/loader/loader.cpp '#include "ringtrain/io/checkpoint/checkpoint.hpp"'
violates 'is entered by include/ringtrain/monitor/telemetry only' src/train/run.cpp '#include "monitor/telemetry/procfs.hpp"'
violates 'a header in include/ includes one of src/' include/ringtrain/monitor/progress.hpp '#include "monitor/telemetry/procfs.hpp"'
violates '<mpi.h> belongs in src/allreduce/' src/io/loader/loader.cpp '#include <mpi.h>'
violates 'ringtrain::Error is the name of two types' src/base/file_descriptor.hpp 'namespace ringtrain {
struct Error {
};'
violates 'namespace ringtrain::model; this room.s is ringtrain::io' src/io/loader/loader.cpp 'namespace ringtrain::model {
}'
violates 'namespace ringtrain::host; this room.s is ringtrain' src/base/text.cpp 'namespace ringtrain::host {
}'
violates 'the note of room monitor/telemetry has [0-9]* lines; 5 to 10' src/monitor/telemetry/procfs.hpp '// Room `monitor/telemetry`: what the system says.'
violates 'is in no room' src/attic/new.cpp '#include "ringtrain/base/error.hpp"'
fresh
for ((i = 0; i < 17; i++)); do echo >"$dir/src/optim/more_$i.cpp"; done
said=$("$check" "$dir")
grep -q 'src/optim: [0-9]* files; a folder has 16 at most' <<<"$said" || { echo "wrong: accepts too many files: $said"; bad=1; }
fresh
sed -i 's/^.. Room .metrics.trace.: /\/\/ /' "$dir/include/ringtrain/metrics/trace/timeline.hpp"
said=$("$check" "$dir")
grep -q 'metrics/trace: no header begins with what the room is for' <<<"$said" || { echo "wrong: accepts a room without a note: $said"; bad=1; }
fresh
mkdir "$dir/scripts" && sed 's/^  \[base\]=""/  [base]="train"/' "$check" >"$dir/scripts/check_layers.sh"
said=$(bash "$dir/scripts/check_layers.sh" "$dir")
grep -q 'rooms include each other in a circle' <<<"$said" || { echo "wrong: accepts a circle: $said"; bad=1; }
exit $bad
