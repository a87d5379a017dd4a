#!/usr/bin/env python3
"""How wide our CUDA kernels read and write global memory: counts of instructions in each kernel's machine code.

Needs nvcc and nvdisasm (PyPI: nvidia-cuda-nvdisasm), but no GPU. LDG.128 loads 16 bytes a thread, `read-only` are
loads through the read-only cache. A kernel with a path for buffers that are not aligned has narrow accesses, too."""
import argparse
import collections
import re
import subprocess
import sys
import tempfile
from pathlib import Path

root = Path(__file__).resolve().parents[2]
columns = [f"{kind}.{bits}" for kind in ("LDG", "STG") for bits in ("128", "64", "32", "16/8")] + ["read-only"]


def machine_code(source, arch, tools):
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        subprocess.run([tools.nvcc, "-O3", "-std=c++20", "--expt-relaxed-constexpr", f"-arch={arch}", "-cubin",
                        "-I", root / "src", "-I", root / "include", "-o", cubin.name, source], check=True)
        return subprocess.run([tools.nvdisasm, "-c", cubin.name], check=True, capture_output=True, text=True).stdout


def width(instruction):
    for bits in ("128", "64"):
        if f".{bits}" in instruction:
            return bits
    return "16/8" if re.search(r"\.[US](16|8)\b", instruction) else "32"


def counts(code):
    """By mangled name."""
    kernels, kernel = {}, None
    for line in code.splitlines():
        if section := re.match(r"\s*\.section\s+\.text\.(\S+?),", line):
            kernel = kernels[section.group(1)] = collections.Counter()
        elif kernel is not None and (access := re.search(r"\s((?:LDG|STG)\.\S+)", line)):
            kernel[f"{access.group(1)[:3]}.{width(access.group(1))}"] += 1
            kernel["read-only"] += "CONSTANT" in access.group(1)
    return kernels


def short_names(mangled):
    text = subprocess.run(["c++filt"], input="\n".join(mangled), check=True, capture_output=True, text=True).stdout
    for name in text.splitlines():
        kernel = re.search(r"run_(?:items|blocks)<(.*)>\(", name)
        name = kernel.group(1) if kernel else name
        for long, short in (("ringtrain::compute::cuda::kernels::", ""), ("work::", ""), ("__nv_bfloat16", "bf16"),
                            ("__half", "fp16"), ("float", "fp32")):
            name = name.replace(long, short)
        yield name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", help="files of src/compute/cuda/kernels, without .cu [all]")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--nvdisasm", default="nvdisasm")
    args = parser.parse_args()
    folder = root / "src/compute/cuda/kernels"
    print("\t".join(["file", *columns, "kernel"]))
    for source in [folder / f"{k}.cu" for k in args.kernels] or sorted(folder.glob("*.cu")):
        found = counts(machine_code(source, args.arch, args))
        for name, kernel in sorted(zip(short_names(found), found.values())):
            if kernel:
                print("\t".join([source.stem, *(str(kernel[c]) for c in columns), name]))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
