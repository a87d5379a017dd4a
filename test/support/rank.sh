#!/usr/bin/env bash
# Under mpirun: leaves this rank's process id in $FOLDER/RANK and becomes the command; rank $LIMITED in the control group $GROUP.
echo $$ >"$FOLDER/$OMPI_COMM_WORLD_RANK"
[ "${LIMITED:-}" != "$OMPI_COMM_WORLD_RANK" ] || echo $$ >"$GROUP/cgroup.procs"
exec "$@"
