#!/usr/bin/env bash
# Holds the rooms of src/ and include/ to docs/internals/architecture.md: what a room may include, by which door, how many files a folder has,
# where a vendor's header is included, a room's namespace, that a room says what it is for, and that no two types of one namespace have one name. Says each violation; then ends with 1.
#   check_layers.sh [ROOT]
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"
bad=0
say() { echo "$*"; bad=1; }

# A room is the longest of these that a file's folder begins with.
declare -A may_use=(
  [allreduce]="allreduce/communicator allreduce/hierarchical allreduce/mpi allreduce/nccl base"
  [allreduce/communicator]="base"
  [allreduce/compression]="allreduce/communicator allreduce/ring base"
  [allreduce/hierarchical]="allreduce/communicator allreduce/compression allreduce/mpi allreduce/ring base"
  [allreduce/mpi]="allreduce/communicator base host"
  [allreduce/nccl]="allreduce/communicator allreduce/mpi base"
  [allreduce/ring]="allreduce/communicator base"
  [base]=""
  [compute]="base"
  [compute/cuda]="base compute compute/cuda/bind compute/cuda/engines compute/cuda/kernels compute/cuda/kernels/arguments compute/cuda/runtime"
  [compute/cuda/bind]="base compute compute/cuda/engines compute/cuda/kernels/arguments compute/cuda/runtime"
  [compute/cuda/engines]="base compute compute/cuda/kernels/arguments compute/cuda/kernels/device compute/cuda/runtime"
  [compute/cuda/kernels]="compute/cuda/kernels/arguments compute/cuda/kernels/device"
  [compute/cuda/kernels/arguments]="base compute"
  [compute/cuda/kernels/device]="base compute compute/cuda/kernels/arguments"
  [compute/cuda/runtime]="base compute compute/cuda/kernels/arguments"
  [compute/onednn]="base compute"
  [compute/reference]="base compute"
  [config]="allreduce allreduce/communicator allreduce/ring base compute io/checkpoint_writer model optim"
  [host]="base"
  [io/checkpoint]="base io/files"
  [io/checkpoint_writer]="base host io/checkpoint io/lease"
  [io/dataset]="base io/files io/image"
  [io/files]="base io/image"
  [io/image]="base"
  [io/lease]="base io/checkpoint"
  [io/loader]="base io/dataset io/image"
  [io/weights]="base io/checkpoint io/files"
  [metrics]="base metrics/scaling"
  [metrics/reporter]="base config host metrics metrics/sinks"
  [metrics/scaling]="allreduce/ring base config"
  [metrics/sinks]="base metrics"
  [metrics/trace]="allreduce/mpi base host metrics/scaling"
  [model]="base compute"
  [model/model_file]="base model"
  [model/onnx]="base compute model"
  [model/passes]="compute model"
  [monitor]="base metrics metrics/reporter metrics/scaling metrics/trace monitor/telemetry"
  [monitor/channel]="allreduce/mpi base host monitor"
  [monitor/slowdown]="base metrics monitor monitor/telemetry"
  [monitor/telemetry]="base"
  [monitor/watchdog]="allreduce/mpi base config host io/checkpoint metrics/trace monitor monitor/channel monitor/telemetry"
  [optim]="base compute"
  [train]="allreduce/mpi base config host io/checkpoint io/checkpoint_writer io/dataset metrics/reporter metrics/trace model monitor monitor/watchdog train/checkpoint train/engine train/evaluation train/export train/hooks train/loop train/performance train/plan train/preflight"
  [train/checkpoint]="allreduce/communicator allreduce/mpi base config io/checkpoint io/checkpoint_writer io/weights metrics model train/engine train/plan train/state"
  [train/engine]="allreduce allreduce/communicator allreduce/hierarchical allreduce/mpi allreduce/nccl allreduce/ring base compute config host io/loader metrics/scaling model monitor optim train/plan train/state train/sums"
  [train/evaluation]="allreduce/mpi base compute config host io/dataset io/image io/loader metrics monitor train/engine train/loop train/plan"
  [train/export]="base config io/checkpoint io/weights model train/checkpoint train/plan train/state"
  [train/hooks]="allreduce/mpi base config metrics monitor monitor/slowdown monitor/watchdog train/checkpoint train/engine train/loop train/performance train/plan train/state"
  [train/loop]="allreduce/communicator allreduce/mpi base compute host io/checkpoint_writer io/loader metrics/reporter monitor monitor/slowdown train/checkpoint train/engine train/plan"
  [train/performance]="allreduce/mpi allreduce/ring base config host metrics/reporter metrics/scaling train/checkpoint train/engine train/plan"
  [train/plan]="allreduce/communicator allreduce/mpi allreduce/nccl base compute config io/dataset io/loader metrics/reporter model monitor optim"
  [train/preflight]="allreduce/mpi allreduce/nccl base compute config host model monitor/channel train/engine train/plan train/sums"
  [train/state]="allreduce/communicator allreduce/mpi base host io/checkpoint model monitor/channel optim train/plan"
  [train/sums]="allreduce allreduce/communicator allreduce/hierarchical allreduce/mpi allreduce/nccl allreduce/ring base compute config host metrics/scaling model monitor train/plan train/state"
  [train_main.cpp]="allreduce/mpi base config host io/checkpoint_writer io/dataset monitor/watchdog train"
)
# Rooms that include another top-level room's private headers.
declare -A friend_of=(
  [train/state]="monitor/channel"  # sends parts of checkpoints over the watchdog's kind of connection, whose headers need Asio
)
# Each is one path that a file which includes the header begins with.
declare -A vendor_home=(
  [mpi.h]="src/allreduce/" [nccl.h]="src/allreduce/nccl/nccl_library.cpp" [hdf5.h]="src/io/checkpoint"
  ["j[a-z]*\.h"]="src/io/image/" [png.h]="src/io/image/" ["cudnn[a-z_]*.h"]="src/compute/cuda/"
  ["cuda[a-z0-9_]*.h"]="src/compute/cuda/"
  ["dnnl[a-z_]*.h"]="src/compute/onednn/" [dnnl.hpp]="src/compute/onednn/"
  [CLI/CLI.hpp]="src/config/options.cpp" ["toml[+][+]/toml.h"]="src/config/config_file.cpp" [xxhash.h]="src/base/hash.cpp" ["openssl/[a-z0-9]*.h"]="src/base/hmac.cpp" [asio.hpp]="src/monitor/"
)

sources() { find src include -regex '.*\.\([ch]pp\|cuh?\)'; }
room_of() { # PATH below src/ or include/ringtrain/; sets room
  room=$1
  until [[ -v may_use[$room] || $room != */* ]]; do room=${room%/*}; done
}
while IFS=: read -r file line used; do
  path=${used#*\"} path=${path%%\"*} own=${file#src/}
  room_of "${own#include/ringtrain/}"
  from=$room
  room_of "${path#ringtrain/}"
  [[ -v may_use[$from] ]] || say "$file: is in no room of scripts/check_layers.sh"
  [[ $from == "$room" || " ${may_use[$from]:-} " == *" $room "* ]] || say "$file:$line: $from may not include $room"
  [[ $path == ringtrain/* || ${from%%/*} == "${room%%/*}" || " ${friend_of[$from]:-} " == *" $room "* ]] ||
    say "$file:$line: $room is entered by include/ringtrain/$room only"
  [[ $path == ringtrain/* || $file != include/* ]] || say "$file:$line: a header in include/ includes one of src/"
done < <(sources | xargs grep -nE '^#include "(ringtrain/)?[a-z_]+/' /dev/null)

# A room says in its main header, in five to ten lines, what it is for; of sub-rooms, those of these rooms do.
noted=" allreduce io metrics monitor train "
declare -A note
while read -r room lines file; do
  note[$room]=$file
  ((lines >= 5 && lines <= 10)) || say "$file: the note of room $room has $lines lines; 5 to 10 say what it is for"
done < <(find src include -name '*.hpp' -exec awk '
  function end() { if (room) print room, lines, file; room = "" }
  FNR == 1 { end() }
  /^\/\/ Room `/ { end(); split($0, part, "`"); room = part[2]; lines = 0; file = FILENAME }
  room && /^\/\// { ++lines }
  !/^\/\// { end() }
  END { end() }' {} +)
for room in "${!may_use[@]}"; do
  [[ $room == *.cpp || $room == */* && $noted != *" ${room%%/*} "* ]] || [[ -v note[$room] ]] ||
    say "$room: no header begins with what the room is for: // Room \`$room\`: ..."
done

# A table that goes round in circles allows anything.
circle=$(for room in "${!may_use[@]}"; do for used in ${may_use[$room]}; do echo "$used $room"; done; done | tsort 2>&1 >/dev/null) ||
  say "rooms include each other in a circle: ${circle//$'\n'/ }"

while read -r count folder; do
  ((count <= 16)) || say "$folder: $count files; a folder has 16 at most"
done < <(sources | xargs -n 1 dirname | sort | uniq -c)

for header in "${!vendor_home[@]}"; do
  while IFS=: read -r file line _; do
    [[ $file == "${vendor_home[$header]}"* ]] || say "$file:$line: <$header> belongs in ${vendor_home[$header]}"
  done < <(grep -rnE "#include [<\"]$header[>\"]" src include || true)
done

# A room is a namespace; what base has is in ringtrain itself, for all rooms are written with it.
while IFS=: read -r file line space; do
  room=${file#src/} room=${room#include/ringtrain/} room=${room%%/*} space=${space#namespace } space=${space%% *}
  own=ringtrain::$room
  [[ $room == base ]] && own=ringtrain
  [[ $space == "$own" || $room != base && $space == "$own"::* ]] || say "$file:$line: namespace $space; this room's is $own"
done < <(sources | xargs grep -nE '^namespace ringtrain[a-z_:]* \{' /dev/null)

# Two types of one name in one namespace: the linker keeps one of their functions for both.
while read -r name files; do
  say "$name is the name of two types: $files"
done < <(find src include -name '*.hpp' -exec awk '
  /^namespace [a-z_:]+ \{/ { space = $2 }
  /^(struct|class|enum class) [A-Za-z_]+[^;]*\{/ { name = $1 == "enum" ? $3 : $2; sub(/:$/, "", name); print space "::" name, FILENAME }' {} + | sort |
  awk '{ times[$1]++; files[$1] = files[$1] " " $2 } END { for (name in times) if (times[name] > 1) print name files[name] }')
exit $bad
