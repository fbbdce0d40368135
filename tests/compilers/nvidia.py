#!/usr/bin/env python3
"""Prints a table of the kernels as NVIDIA's compiler sees them. Needs no GPU.

    pip install --no-deps slangtorch nvidia-cuda-nvrtc nvidia-cuda-nvcc nvidia-cuda-runtime
    tests/compilers/nvidia.py FOLDER [PATTERN]         a line for each group of kernels
    tests/compilers/nvidia.py --all FOLDER [PATTERN]   also a line for each kernel

FOLDER has the HLSL files of the example `translations`; PATTERN is a regular expression for names of kernels.
Slang translates HLSL to CUDA C++, NVRTC compiles that to PTX, and ptxas to machine code. A driver starts from SPIR-V instead, so
its schedule differs. The limits and the register allocator are those of the cards.
"""

import ctypes
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor

import gpus

ARCHITECTURES = [80, 89, 90]
COLUMNS = ["registers", "stack", "spill stores", "spill loads", "shared"]
PACKAGES = pathlib.Path(sysconfig.get_paths()["purelib"])


def package_file(pattern):
    return next(PACKAGES.glob(pattern), None) or sys.exit(f"{pattern} is not in {PACKAGES}: see the head of this file")


SLANG = package_file("slangtorch/bin/slangc")
PTXAS = package_file("nvidia/*/bin/ptxas")
HEADERS = package_file("nvidia/*/include/cuda_fp16.h").parent
NVRTC = ctypes.CDLL(str(package_file("nvidia/*/lib/libnvrtc.so*")))


def ptx(source, architecture):
    # Vulkan's drivers contract products and sums and divide approximately, as fast math does.
    options = [f"-arch=compute_{architecture}", "-use_fast_math", "-std=c++17", "-w", f"-I{HEADERS}"]
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    NVRTC.nvrtcCreateProgram(ctypes.byref(program), source, b"kernel.cu", 0, None, None)
    failed = NVRTC.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*map(str.encode, options)))
    what = "ProgramLog" if failed else "PTX"
    getattr(NVRTC, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(NVRTC, f"nvrtcGet{what}")(program, text)
    NVRTC.nvrtcDestroyProgram(ctypes.byref(program))
    if failed:
        raise RuntimeError(f"NVRTC: {text.value.decode()}")
    return text.value


def call(*command):
    run = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"LD_LIBRARY_PATH": str(SLANG.parent)})
    if run.returncode != 0:
        raise RuntimeError(f"{command[0].name}: {run.stderr}")
    return run.stderr


def compile_one(path):
    """Returns the numbers of a kernel for each architecture, in the order of COLUMNS."""
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        call(SLANG, path, "-lang", "hlsl", "-target", "cuda", "-entry", path.name.split(".")[1], "-stage", "compute", "-o", at / "k.cu")
        source, all_of = (at / "k.cu").read_bytes(), {}
        for architecture in ARCHITECTURES:
            (at / "k.ptx").write_bytes(ptx(source, architecture))
            said = call(PTXAS, "-v", f"-arch=sm_{architecture}", at / "k.ptx", "-o", at / "k.cubin")
            found = {what: int(number) for number, what in re.findall(r"(\d+) (?:bytes )?(registers|stack|spill stores|spill loads|smem)", said)}
            found["shared"] = found.pop("smem", 0)
            all_of[architecture] = found
    return all_of


def main():
    arguments = sys.argv[1:]
    every = "--all" in arguments
    folder, pattern = [*(word for word in arguments if word != "--all"), "", ""][:2]
    wanted = [path for path in sorted(pathlib.Path(folder).glob("*.hlsl6")) if gpus.is_chosen(path.stem) and re.search(pattern, path.stem)]
    if not folder or not wanted:
        sys.exit(__doc__)
    SLANG.chmod(0o755)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        results = dict(zip([path.stem for path in wanted], pool.map(compile_one, wanted)))
    for architecture in ARCHITECTURES:
        kernels = {name: of[architecture] for name, of in results.items()}
        if every:
            gpus.table([f"sm_{architecture}", *COLUMNS], [[name, *(of[key] for key in COLUMNS)] for name, of in kernels.items()])
        groups = gpus.grouped(kernels, COLUMNS)
        gpus.table([f"sm_{architecture}", "kernels", *COLUMNS], [[group, *numbers] for group, numbers in groups.items()])


main()
