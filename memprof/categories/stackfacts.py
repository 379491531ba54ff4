"""What one stack says about an allocation: the phase it was made in, what for, and the operation that asked.

A stack is judged once, however many allocations share it. Names are those of PyTorch, bitsandbytes, transformers,
accelerate and Lightning as seen in recorded snapshots; file names are compared by their end, since every machine has
its own prefix.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memprof.trace.model import Frame

__all__ = ["StackFacts", "facts_of_stack", "is_allocator_frame"]

OPTIMIZER_FILES = ("torch/optim/", "bitsandbytes/optim/", "deepspeed/ops/adam/", "apex/optimizers/")
STATE_MAKERS = frozenset({"_init_group", "init_state", "get_state_buffer", "_init_state", "init_step"})
"""Functions in which an optimizer makes the tensors it keeps (torch/optim/*.py, bitsandbytes/optim/optimizer.py)."""
MODEL_MOVERS = frozenset(
    {
        "convert",
        "_apply",
        "load_state_dict",
        "_load_from_state_dict",
        "_load_pretrained_model",
        "set_module_tensor_to_device",
        "_load_state_dict_into_model",
        "_materialize_copy",
        "to_empty",
        "materialize_module",
    }
)
"""Functions that put a model's tensors on the device (torch/nn/modules/module.py, transformers/modeling_utils.py,
accelerate/utils/modeling.py)."""
BATCH_MOVERS = frozenset(
    {
        "send_to_device",
        "move_data_to_device",
        "batch_to",
        "_prepare_inputs",
        "_prepare_input",
        "batch_to_device",
        "move_data_to_device_and_sync",
    }
)
"""Functions that put a batch on the device (accelerate/utils/operations.py, lightning, transformers/trainer.py)."""
QUANTIZERS = frozenset({"quantize_4bit", "quantize_blockwise", "int8_vectorwise_quant", "_quantize", "get_4bit_type"})
DEQUANTIZERS = frozenset(
    {
        "dequantize_4bit",
        "dequantize_blockwise",
        "_dequant_linear_fallback",
        "dequantize_fp4",
        "dequantize_nf4",
        "int8_vectorwise_dequant",
    }
)
KERNEL_WRAPPERS = frozenset({"_", "func_no_dynamo", "_fn", "inner", "__call__", "wrapped", "decorate_context"})
"""Frames between bitsandbytes' kernel and the function that called it (torch/library.py, torch/_ops.py)."""
FORWARD_NAMES = frozenset({"forward", "_call_impl", "_wrapped_call_impl"})
BACKWARD_SYMBOLS = (
    "torch::autograd::Engine::",
    "torch::autograd::python::PythonEngine::thread_init",
    "torch::autograd::generated::details::",
)
BACKWARD_NODE = "Backward0::apply"
WORKSPACE_SYMBOLS = (
    "getNewWorkspace",
    "getNewCUDABlasLtWorkspace",
    "CUDABlasLtWorkspace",
    "gemm_internal_cublaslt",
    "cudnn_frontend",
    "at::native::run_cudnn",
    "parseChosenWorkspaceSize",
)
"""Symbols of aten/src/ATen/cuda/CublasHandlePool.cpp, CUDABlas.cpp and the cuDNN wrappers."""
LAYER_FILES = ("nn/modules/linear.py", "nn/modules/conv.py", "nn/functional.py")
"""Files of the layers whose weights autocast casts."""
OPERATOR = re.compile(r"at::_ops::(\w+)::")
"""The dispatcher's entry of an operator (torchgen writes one struct per operator into ATen/ops/*_ops.h)."""
ALLOCATOR_SYMBOLS = (
    "CUDACachingAllocator",
    "CapturedTraceback",
    "torch::unwind",
    "gather_with_cpp",
    "c10::StorageImpl::StorageImpl",
    "_empty_generic",
    "_empty_strided_generic",
    "empty_cuda",
    "create_out",
    "RegisterCUDA",
    "wrap_kernel_functor",
)


@dataclass(frozen=True, slots=True)
class StackFacts:
    """What a stack says; None where it says nothing."""

    phase: str | None
    role: str | None
    """state, weights, quantized, batch, dequantized, recompute, workspace or layer (a layer with weights ran)."""
    op: str | None
    """Innermost frame worth naming: ``function (file:line)``, or the C++ function."""


def facts_of_stack(frames: Sequence[Frame]) -> StackFacts:
    """Judge one stack, innermost frame first."""
    return StackFacts(_phase(frames), _role(frames), _operation(frames))


@lru_cache(1 << 16)  # stacks share their frames, and this is most of what judging a stack takes
def is_allocator_frame(frame: Frame) -> bool:
    """Tell whether a frame belongs to the allocator or the recording of stacks, which every allocation has."""
    if frame.filename.endswith(".py"):
        return False
    return any(symbol in frame.name or symbol in frame.filename for symbol in ALLOCATOR_SYMBOLS)


def _phase(frames: Sequence[Frame]) -> str | None:
    forward = init = False
    for frame in frames:
        name, file = frame.name, frame.filename
        if any(part in file for part in OPTIMIZER_FILES) or (name == "unscale_" and "grad_scaler" in file):
            return "optimizer"
        if name.startswith("torch::") and (BACKWARD_NODE in name or any(s in name for s in BACKWARD_SYMBOLS)):
            return "backward"
        if name == "backward" and file.endswith(".py") and not file.endswith(("torch/_tensor.py", "accelerator.py")):
            return "backward"  # a Function's backward; Tensor.backward itself only starts the engine
        if name == "_engine_run_backward":
            return "backward"
        forward = forward or name in FORWARD_NAMES
        init = init or name in MODEL_MOVERS or name in {"__init__", "from_pretrained", "reset_parameters"}
    if forward:
        return "forward"
    if init:
        return "init"
    return "between" if any(frame.filename.endswith(".py") for frame in frames) else None


def _role(frames: Sequence[Frame]) -> str | None:
    names = {frame.name for frame in frames}
    if any(frame.name in STATE_MAKERS and any(p in frame.filename for p in OPTIMIZER_FILES) for frame in frames):
        return "state"
    # The kernel itself is an unnamed function `_`; the first real name behind it tells quantize from dequantize.
    caller = next((frame.name for frame in frames if frame.name not in KERNEL_WRAPPERS), "")
    if caller in DEQUANTIZERS:
        return "dequantized"
    if names & QUANTIZERS and names & {"to", "_quantize", "cuda"}:
        return "quantized"
    if names & MODEL_MOVERS:
        return "weights"
    if names & BATCH_MOVERS:
        return "batch"
    if any(
        "torch/utils/checkpoint.py" in frame.filename and frame.name in {"unpack_hook", "backward"} for frame in frames
    ):
        return "recompute"
    if any(
        symbol in frame.name for frame in frames if not frame.filename.endswith(".py") for symbol in WORKSPACE_SYMBOLS
    ):
        return "workspace"
    first = next((frame for frame in frames if frame.filename.endswith(".py")), None)
    return "layer" if first is not None and first.filename.endswith(LAYER_FILES) else None


def _operation(frames: Sequence[Frame]) -> str | None:
    symbol = None
    for frame in frames:
        if is_allocator_frame(frame) or (frame.filename.endswith(".py") and frame.name in KERNEL_WRAPPERS):
            continue
        if frame.filename.endswith(".py"):
            short = "/".join(frame.filename.split("/")[-2:])
            return symbol or f"{frame.name} ({short}:{frame.line})"
        if operator := OPERATOR.match(frame.name):
            return f"aten::{operator[1]}"
        symbol = symbol or _without_arguments(frame.name)
    return symbol


def _without_arguments(symbol: str) -> str:
    plain = symbol.replace("(anonymous namespace)::", "")
    return plain.split("(", 1)[0] or plain
