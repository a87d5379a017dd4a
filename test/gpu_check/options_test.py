"""options_test.py TRAIN: TRAIN knows every option that a stage gives it."""
import subprocess
import sys
from pathlib import Path

import support  # noqa: F401
from place import Place
from stages import ALL

train = sys.argv[1]


def options_given():
    place, found = Place("OUT"), set()
    place.executable = lambda name: Path(f"/build/{name}")
    for stage in ALL:
        for command in stage.commands(place):
            words = list(command.argv)
            if "/build/train" in words:
                found |= {word for word in words[words.index("/build/train"):] if word.startswith("--")}
    return found


known = subprocess.run([train, "--help"], capture_output=True, text=True, check=True).stdout
unknown = sorted(option for option in options_given() if f"  {option} " not in known and f"  {option}\n" not in known)
print(f"{len(options_given())} options, unknown: {', '.join(unknown) or 'none'}")
sys.exit(1 if unknown or not options_given() else 0)
