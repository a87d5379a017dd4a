"""`mpirun OPTION... train OPTION...`, taken apart."""
import os
import re
import shutil
import subprocess

RANKS = ("-np", "-n", "--np", "--n", "-c")
LAUNCHERS = ("mpirun", "mpiexec", "orterun", "prterun")


class Unclear(Exception):
    """Says what is wrong with the command, and what to do."""


class Command:
    def __init__(self, words, environment):
        if "OMPI_COMM_WORLD_RANK" in environment:
            raise Unclear("is one of several ranks here; put it before mpirun, not behind")
        at = next((i for i, word in enumerate(words) if i > 0 and is_train(word)), 0)
        if at == 0:
            raise Unclear(f"no train that can be run here in: {' '.join(words)}; type mpirun -np N path/to/train --restarts R ...")
        if ":" in words[at:]:
            raise Unclear("the ranks' commands differ (:); one is needed that all of them run")
        self.launcher, self.program, self.options = words[:at], words[at], words[at + 1:]

    def settings(self):
        """Every option's value as `train --print-config given` has it; without those that are unset."""
        printed = subprocess.run([self.program, *self.options, "--print-config", "given"], stdout=subprocess.PIPE, text=True, check=True)
        return dict(re.findall(r"""^([a-z-]+) = ["']?(.*?)["']?$""", printed.stdout, re.MULTILINE))

    def mpirun(self):
        """Where it is among the launcher's words, behind env or timeout perhaps; None: another launcher."""
        return next((i for i, word in enumerate(self.launcher) if os.path.basename(word) in LAUNCHERS), None)

    def value(self, names):
        """Of the launcher's option; None where it has none."""
        own = self.launcher[self.mpirun() + 1:] if self.mpirun() is not None else []
        return next((value for name, value in zip(own, own[1:]) if name in names), None)

    def with_options(self, options):
        """The whole command; these options of `train` win over those that are there."""
        return [*self.launcher, self.program, *self.options, *options]

    def add(self, options):
        self.options += options

    def place_with(self, options, replaced):
        """Gives mpirun these options in place of those of the names `replaced`, which have values."""
        behind = self.mpirun() + 1
        self.launcher = [*self.launcher[:behind], *options, *without(self.launcher[behind:], replaced)]


def is_train(word):
    return os.path.basename(word).endswith("train") and shutil.which(word) is not None


def without(words, names):
    """Without those options and their values."""
    kept, skip = [], False
    for word in words:
        if not skip and word not in names:
            kept.append(word)
        skip = not skip and word in names
    return kept
