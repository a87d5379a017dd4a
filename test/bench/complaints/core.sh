#!/usr/bin/env bash
# core.sh COMMAND...: on one core of this machine, by the number that the host's name ends with: each host of a test is a machine of one core.
export OMPI_MCA_rmaps_base_mapping_policy=slot:PE=1 # else `train` takes mpirun's mask for a default, and all cores
exec taskset -c "$(($(hostname | sed 's/.*-//') % $(nproc)))" "$@"
