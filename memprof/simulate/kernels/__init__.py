"""What CUDA kernels allocate: one module per family of ops, all writing into the tables of `registry`."""

from memprof.simulate.kernels import (
    attention,
    batch_norms,
    convolution,
    creation,
    ctc,
    embedding,
    foreach,
    losses,
    matmul,
    norms,
    pointwise,
    recurrent,
    reductions,
    topk,
    values,
)
from memprof.simulate.kernels.registry import COMPOSITE, KERNELS, PLAIN, TEMPORARIES

__all__ = [
    "COMPOSITE",
    "KERNELS",
    "PLAIN",
    "TEMPORARIES",
    "attention",
    "batch_norms",
    "convolution",
    "creation",
    "ctc",
    "embedding",
    "foreach",
    "losses",
    "matmul",
    "norms",
    "pointwise",
    "recurrent",
    "reductions",
    "topk",
    "values",
]
