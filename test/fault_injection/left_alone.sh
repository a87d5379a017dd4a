#!/usr/bin/env bash
# left_alone.sh MPIRUN TRAIN DATA FAILING_READS: rank 0 fails and leaves in good order, and mpirun, which is stopped, ends nobody. The
# other rank, which hears no more of it, ends itself and says why in its report.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") data=$(realpath "$3") library=$(realpath "$4")
enter_folder
export TMPDIR=$dir FOLDER=$dir
LD_PRELOAD=$library "$train" --version >log 2>&1 || skip "nothing can be preloaded here: $(tail -n 1 log)"
cp -r "$data" images
options=(--model cifar10_cnn --classes 2 --data images:images --batch 2 --steps 3000 --threads 1 --data-threads 1 --eval-every 0 --quiet)
"$mpirun" -np 1 --oversubscribe -x FAILING_READS="$dir/images 200 1000000 5" -x LD_PRELOAD="$library" "$support/rank.sh" "$train" "${options[@]}" \
  : -np 1 "$support/rank.sh" "$train" "${options[@]}" >log 2>&1 </dev/null &
mpi=$!
at_end 'kill -KILL $mpi 2>/dev/null; kill -CONT $mpi 2>/dev/null'
await 60 has "trying again"
kill -STOP $mpi
began=$SECONDS
gone() { ! kill -0 "$(cat "$1")" || [[ $(ps -o stat= -p "$(cat "$1")") == Z* ]]; } 2>/dev/null
check "rank 0 ends by itself" wait_for 40 gone 0
check "the other rank ends by itself" wait_for 60 gone 1
echo "the other rank ended $((SECONDS - began)) s after mpirun was stopped"
check "its report says why" grep -q "rank 0 has failed and left, and nobody has ended this rank" train-report-rank1-*.txt
exit $bad
