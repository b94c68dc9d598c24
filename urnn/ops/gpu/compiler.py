"""From CUDA C++ to kernels that can be launched: NVRTC, a cache on disk, and the driver, all through cuda-bindings.

NVRTC comes with PyTorch's CUDA builds: nobody needs a CUDA toolkit or a compiler. The sources are specialised by macros
for each hidden size, which takes about a second the first time; the machine code is kept on disk.
"""

import ctypes
import hashlib
import os
import sys
import threading
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver, nvrtc
from torch import Tensor

from urnn.ops.gpu.plan import Launch

_FOLDER = Path(__file__).parent
_HEADER = "modrelu.cuh"
_lock = threading.Lock()
Macros = tuple[tuple[str, int], ...]


def launch(
    source: str, name: str, macros: dict[str, int], size: Launch, arguments: Sequence[Tensor | int | None]
) -> None:
    """Run kernel ``name`` of ``source`` on the current stream. Tensors go as addresses (None: null), ints as int."""
    device = torch.cuda.current_device()
    with _lock:
        function = _function(source, name, tuple(sorted(macros.items())), device, size.shared_bytes)
    values = tuple(a.data_ptr() if isinstance(a, Tensor) else a or 0 for a in arguments)
    types = tuple(ctypes.c_int if isinstance(a, int) else ctypes.c_void_p for a in arguments)
    config = _config(size, torch.cuda.current_stream().cuda_stream)
    _check(driver.cuLaunchKernelEx(config, function, (values, types), 0))


@lru_cache(maxsize=256)
def _config(size: Launch, stream: int) -> Any:
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = size.blocks, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = size.threads, 1, 1
    config.sharedMemBytes = size.shared_bytes
    config.hStream = stream
    attribute = driver.CUlaunchAttribute()
    if size.together:
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        attribute.value.cooperative = 1
    elif size.cluster > 1:
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        attribute.value.clusterDim.x = size.cluster
        attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1
    if size.together or size.cluster > 1:
        config.attrs, config.numAttrs = [attribute], 1
    return config


def compile_source(source: str, macros: Macros, arch: str) -> bytes:
    """Machine code for ``arch``, such as ``sm_90``. Needs no GPU."""
    header = (_FOLDER / _HEADER).read_bytes()
    text = (_FOLDER / source).read_bytes()
    program = _check(nvrtc.nvrtcCreateProgram(text, source.encode(), 1, [header], [_HEADER.encode()]))
    options = [f"-arch={arch}", "-std=c++17", *(f"-D{name}={value}" for name, value in macros)]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = bytearray(_check(nvrtc.nvrtcGetProgramLogSize(program)))
        _check(nvrtc.nvrtcGetProgramLog(program, log))
        raise RuntimeError(f"{source} does not compile with {options}:\n{log.decode(errors='replace')}")
    code = bytearray(_check(nvrtc.nvrtcGetCUBINSize(program)))
    _check(nvrtc.nvrtcGetCUBIN(program, code))
    _check(nvrtc.nvrtcDestroyProgram(program))
    return bytes(code)


@cache
def _function(source: str, name: str, macros: Macros, device: int, shared_bytes: int) -> Any:
    library = _library(source, macros, _arch(device))
    kernel = _check(driver.cuLibraryGetKernel(library, name.encode()))
    if shared_bytes > 48 * 1024:
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _check(driver.cuKernelSetAttribute(attribute, shared_bytes, kernel, _check(driver.cuDeviceGet(device))))
    return _check(driver.cuKernelGetFunction(kernel))


@cache
def _library(source: str, macros: Macros, arch: str) -> Any:
    code = _code(source, macros, arch)
    return _check(driver.cuLibraryLoadData(code, [], [], 0, [], [], 0))


def _code(source: str, macros: Macros, arch: str) -> bytes:
    """Machine code from the disk, or compiled and kept there."""
    version = _check(nvrtc.nvrtcVersion())
    inputs = [(_FOLDER / file).read_text() for file in (source, _HEADER)] + [repr((macros, arch, version))]
    digest = hashlib.sha256("\0".join(inputs).encode()).hexdigest()
    path = _cache_folder() / f"{source.partition('.')[0]}-{digest[:32]}.cubin"
    if path.is_file():
        return path.read_bytes()
    message = f"urnn: compiling {source} for {dict(macros)}; this happens once, the code is kept in {path.parent}\n"
    timer = threading.Timer(1.0, sys.stderr.write, (message,))
    timer.start()
    try:
        code = compile_source(source, macros, arch)
    finally:
        timer.cancel()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_bytes(code)
        draft.replace(path)
    except OSError as error:
        sys.stderr.write(f"urnn: the compiled code could not be kept: {error}\n")
    return code


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "urnn" / "kernels"


def _arch(device: int) -> str:
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def _check(result: tuple[Any, ...]) -> Any:
    """The values of a call of cuda-bindings, whose first is the status."""
    status, *values = result
    if int(status) != 0:
        raise RuntimeError(f"CUDA: {status!r}")
    return values[0] if len(values) == 1 else tuple(values)
