"""What bitsandbytes' outlier columns could take, at most, against what some took on an H200."""

from __future__ import annotations

import ctypes

from memprof.simulate.bitsandbytes_library import NativeLibrary
from memprof.simulate.outliers import DURING, KEPT


def _product(library: NativeLibrary, weights: int, sizes: tuple[int, int, int], threshold: float) -> None:
    """Call the native functions as ``MatMul8bitLt`` does; sizes are rows, inputs and outputs."""
    rows, inputs, outputs = sizes
    library.cint8_vector_quant(1, 2, 3, ctypes.c_float(threshold), rows, inputs, 0)
    library.cigemmlt_32(0, inputs, rows, outputs, weights, 2, 4, None, inputs, inputs, outputs, 0)


def test_outlier_columns_are_a_caveat_with_bytes_that_recorded_ones_are_within() -> None:
    # given the products of a layer that found 333 outliers among 8,192 columns, as the run lora_llama32_int8_bf16 did
    noted: dict[str, list[int]] = {}
    library = NativeLibrary(lambda _kind, what, nbytes: noted.setdefault(what, []).append(nbytes))
    for _step in range(2):
        _product(library, 7, (1152, 8192, 2048), 6.0)
    _product(library, 8, (1152, 2048, 8192), 6.0)
    # then what the run kept (the input's columns, their numbers) and what it took meanwhile are less than what is said
    assert 1534464 + 2664 < noted[KEPT][0] == 1152 * 8192 * 4 + 8192 * 8
    assert max(18874368 + 8192, 681984 + 2 * 2727936, 2727936 + 1363968 + 767232 + 2 * 4718592) < noted[DURING][0]
    # and what is kept is counted once a weight
    assert noted[KEPT] == [noted[KEPT][0]] * 2 + [noted[KEPT][0] + 1152 * 2048 * 4 + 2048 * 8]
    # and nothing is said of a product without a threshold
    before = len(noted[KEPT])
    _product(library, 9, (64, 64, 64), 0.0)
    assert len(noted[KEPT]) == len(noted[DURING]) == before
    # and an empty device begins with nothing kept
    library.begin()
    _product(library, 8, (1, 16, 4), 6.0)
    assert noted[KEPT][-1] == 16 * 4 + 16 * 8
