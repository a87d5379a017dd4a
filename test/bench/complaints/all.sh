#!/usr/bin/env bash
# all.sh BUILD: the three complaints, one after the other: tables on standard output, plots beside the runs' records in $RESULTS. An hour and a half.
for script in slow_ethernet inception_sized disturbed slow_fall throughput saving; do
  echo "## $script"
  "$(dirname "$(readlink -f "$0")")/$script.sh" "$1" || exit
done
