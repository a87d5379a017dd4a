#!/usr/bin/env python3
"""Turns checkpoints into PyTorch's state dictionaries and back, from a checkout: python/ringtrain/torch_state.py says how.

  scripts/checkpoint_to_torch.py FILE.h5 OUT.pth                           # torch.load(OUT.pth, weights_only=True)
  scripts/checkpoint_to_torch.py --from-torch IN.pth --model NAME OUT.h5   # train --init-from OUT.h5
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
sys.dont_write_bytecode = True
try:
    from ringtrain.torch_state import main
except ImportError as missing:
    sys.exit(f"checkpoint_to_torch: {missing}; it needs: pip install torch h5py numpy xxhash")

main()
