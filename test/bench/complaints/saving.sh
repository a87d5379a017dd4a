#!/usr/bin/env bash
# saving.sh BUILD: the third complaint: Inception v3 on 16 hosts at 100 Mbit/s, a checkpoint every 5 s where steps allow it, and the disk that
# holds it is frozen. Who goes on, and who says why it ended? The ring has 16 workers, the server 15. It takes 8 GB of memory.
. "$(dirname "$(readlink -f "$0")")/runs.sh"
count=${HOSTS:-16} rate=${RATE:-100mbit}
# 299 pixels, the least that this network takes. The server knows no rmsprop, which is in the recipe; sgd leaves memory to 16 ranks.
base=(--model inception_v3 --data "images:$HOSTS_RUN/images" --classes 1001 --batch 1 --optimizer sgd --lr 0.01 --ema 0 --log-every 1)
# Six photographs: a step takes sixteen.
for file in "$here"/../../data/photographs/train/*/*; do
  class=$HOSTS_RUN/images/train/$(basename "$(dirname "$file")")
  mkdir -p "$class"
  for copy in {1..8}; do ln -s "$(realpath "$file")" "$class/$copy-$(basename "$file")"; done
done
disk=$HOSTS_RUN/disk
thaw() { fsfreeze --unfreeze "$disk" 2>/dev/null; }
clean_up() { thaw; umount -l "$disk" 2>/dev/null; }
mkdir "$disk"
truncate -s 2g "$disk.image" && mkfs.ext4 -q "$disk.image" && mount -o loop "$disk.image" "$disk" && fsfreeze --freeze "$disk" && thaw ||
  { echo "skipped: no loop device to freeze"; exit 0; }

freeze_when() { # NAME FILE TEXT: freezes the disk once the file says so, if the run comes so far
  until grep -qE "$3" "$2" 2>/dev/null; do
    [[ -e $results/$1.load ]] && return
    sleep 0.2
  done
  fsfreeze --freeze "$disk"
  stamp "$1" frozen
}
if [[ ! -e $results/ring.load ]]; then
  rm -f "$results"/ring.*
  on_hosts "$count" "$rate"
  freeze_when ring "$results/ring.log" 'checkpoint [0-9]+, ' &
  ring ring "${base[@]}" --steps "${STEPS:-10}" --checkpoint-dir "$disk/ring" --checkpoint-every 5s --final-save-timeout 20s
  wait
  thaw
fi
if [[ ! -e $results/server.load ]]; then
  rm -f "$results"/server.*
  on_hosts "$count" "$rate"
  freeze_when server "$results/server.w0.log" '^Saving checkpoint' &
  # Nothing ends it but this script.
  (
    until grep -q frozen "$results/server.times" 2>/dev/null; do
      [[ -e $results/server.load ]] && exit
      sleep 1
    done
    sleep "${PATIENCE:-420}"
    stamp server ended
    thaw
    # shellcheck disable=SC2046
    kill -TERM $(for ((h = 0; h < count; h++)); do "$hosts" pids $h; done)
  ) &
  parameter_server server "updates=sync save_every=5 save_to=$disk/weights" "${base[@]}" --steps "${STEPS:-10}" 2>/dev/null
  wait
fi
show
