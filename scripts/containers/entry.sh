#!/bin/sh
# What the image starts, so that `docker stop` and `kubectl delete` leave the last save its time. `mpirun ... train ...` goes by way of
# scripts/supervise, and ends with 143. sshd, which a worker of a Kubernetes job is, hands SIGTERM on to the ranks and ends after them
# and the process that writes checkpoints: the kernel kills them with it. Any other command is started as it is.
case $1 in
  mpirun | */mpirun | mpiexec | */mpiexec | orterun | */orterun | prterun | */prterun)
    for word in "$@"; do
      case $word in
        train | */train | ringtrain | */ringtrain) exec /opt/ringtrain/share/ringtrain/scripts/supervise "$@" ;;
      esac
    done
    ;;
  sshd | */sshd)
    pids() { # NAME...
      for comm in /proc/[0-9]*/comm; do
        read -r name 2>/dev/null <"$comm" || continue
        for wanted in "$@"; do [ "$name" != "$wanted" ] || basename "${comm%/comm}"; done
      done
    }
    told=
    trap 'told=yes' TERM INT
    "$@" &
    daemon=$!
    wait $daemon
    code=$?
    [ "$told" ] || exit $code
    for pid in $(pids train ringtrain); do kill -TERM "$pid" 2>/dev/null; done
    while [ "$(pids train ringtrain ringtrain-writer orted prted)" ]; do sleep 0.2; done
    kill $daemon 2>/dev/null
    exit 143
    ;;
esac
exec "$@"
