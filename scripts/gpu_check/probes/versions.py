"""PyTorch's version and those of its libraries."""
import json
import platform

import torch

print("RESULT " + json.dumps({
    "python": platform.python_version(), "torch": torch.__version__, "cuda": torch.version.cuda or "none",
    "cudnn": str(torch.backends.cudnn.version()),
    "nccl": ".".join(map(str, torch.cuda.nccl.version())) if torch.cuda.is_available() else "none",
    "sees_gpu": torch.cuda.is_available()}))
