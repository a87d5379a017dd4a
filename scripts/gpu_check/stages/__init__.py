"""All stages: first what no GPU has run yet, then what would hurt most if it were wrong. Figures are measured behind what SPEED prepares.
Budgets add up to 560 s, of 15 minutes that one can count on."""
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

ALL = [SUMS, VERSIONS, DEVICE, RANKS, TESTS, GRADIENTS, SPEED, CEILINGS, KERNELS, TRAIN, DETERMINISTIC, ROOFLINE, CHECKPOINT, SANITIZER, LEAK]
