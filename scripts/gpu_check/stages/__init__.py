"""All stages, the most valuable first. Budgets add up to nine minutes."""
from stages.ceilings import CEILINGS
from stages.checkpoint import CHECKPOINT
from stages.deterministic import DETERMINISTIC
from stages.device import DEVICE
from stages.leak import LEAK
from stages.ranks import RANKS
from stages.roofline import ROOFLINE
from stages.sanitizer import SANITIZER
from stages.speed import SPEED
from stages.tests import TESTS
from stages.train import TRAIN
from stages.versions import VERSIONS

ALL = [VERSIONS, DEVICE, CEILINGS, TESTS, TRAIN, DETERMINISTIC, RANKS, SPEED, ROOFLINE, CHECKPOINT, SANITIZER, LEAK]
