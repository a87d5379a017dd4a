#!/usr/bin/env bash
# Under mpirun: leaves this rank's process id in $FOLDER/RANK and becomes the command.
echo $$ >"$FOLDER/$OMPI_COMM_WORLD_RANK"
exec "$@"
