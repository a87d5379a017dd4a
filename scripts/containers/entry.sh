#!/bin/sh
# What the image starts: `mpirun ... train ...` by way of scripts/supervise, so that `docker stop` and `kubectl delete` leave the last
# save its time, and the exit code is 143; any other command as it is.
case $1 in
  mpirun | */mpirun)
    for word in "$@"; do
      case $word in
        train | */train | ringtrain | */ringtrain) exec /opt/ringtrain/share/ringtrain/scripts/supervise "$@" ;;
      esac
    done
    ;;
esac
exec "$@"
