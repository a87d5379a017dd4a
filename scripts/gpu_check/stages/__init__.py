"""All stages: first what would hurt most if it were wrong. Figures are measured behind what SPEED prepares. Budgets add up to nine minutes."""
from stages.ceilings import CEILINGS
from stages.checkpoint import CHECKPOINT
from stages.deterministic import DETERMINISTIC
from stages.device import DEVICE
from stages.gradients import GRADIENTS
from stages.kernels import KERNELS
from stages.leak import LEAK
from stages.ranks import RANKS
from stages.roofline import ROOFLINE
from stages.sanitizer import SANITIZER
from stages.speed import SPEED
from stages.sums import SUMS
from stages.tests import TESTS
from stages.train import TRAIN
from stages.versions import VERSIONS

ALL = [SUMS, VERSIONS, DEVICE, TESTS, GRADIENTS, SPEED, CEILINGS, KERNELS, TRAIN, DETERMINISTIC, RANKS, ROOFLINE, CHECKPOINT, SANITIZER, LEAK]
