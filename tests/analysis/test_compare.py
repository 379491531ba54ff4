"""Two captures: rows sum to the whole difference, and tensors that changed are matched as pairs."""

from __future__ import annotations

import pytest
from growth_values import capture_of
from hypothesis import given
from hypothesis import strategies as st

from memprof.analysis.compare import compare
from memprof.categories.category import CATEGORIES, Category
from memprof.errors import InputError

MB = 10**6
TENSOR = st.fixed_dictionaries(
    {
        "size": st.integers(1, 10**6),
        "category": st.sampled_from([category.value for category in CATEGORIES]),
        "finer": st.sampled_from([None, "saved", "base"]),
        "module": st.sampled_from([None, "lm_head", "transformer.h.0.mlp", "transformer.h.1.mlp"]),
        "op": st.sampled_from([None, "aten::mm", "aten::_to_copy"]),
        "dtype": st.sampled_from([None, "float16", "float32"]),
        "shape": st.sampled_from([None, "", "2,3", "6", "3,2"]),
        "parameter": st.sampled_from([None, None, "lm_head.weight"]),
    }
)


def tensor(size, category="activations", **more):
    return {"size": size, "category": category, **more}


def rows(a, b, **options):
    return compare(capture_of(a, **options), capture_of(b, **options)).changes


@given(st.lists(TENSOR, min_size=1, max_size=20), st.lists(TENSOR, min_size=1, max_size=20), st.booleans())
def test_rows_sum_to_the_difference_and_cover_both_sides(a, b, labelled):
    result = compare(capture_of(a, labelled=labelled), capture_of(b, labelled=labelled))

    assert result.difference == sum(each["size"] for each in b) - sum(each["size"] for each in a)
    assert sum(change.difference for change in result.changes) == result.difference
    assert sum(change.bytes_a for change in result.changes) == sum(each["size"] for each in a)
    assert sum(change.count_a for change in result.changes) == len(a)
    assert sum(change.count_b for change in result.changes) == len(b)


@given(st.lists(TENSOR, min_size=1, max_size=20))
def test_capture_does_not_differ_from_itself(tensors):
    changes = rows(tensors, list(reversed(tensors)))

    assert all(change.paired and not change.difference for change in changes)


def test_output_that_changed_its_type_is_one_pair():
    common = {"module": "lm_head", "op": "aten::mm", "shape": "16,128"}

    (change,) = rows([tensor(2 * MB, dtype="float16", **common)], [tensor(4 * MB, dtype="float32", **common)])

    assert (change.module, change.dtype_a, change.dtype_b, change.difference) == (
        "lm_head",
        "float16",
        "float32",
        2 * MB,
    )
    assert (change.category, change.op, change.paired) == (Category.ACTIVATIONS, "aten::mm", True)


def test_tensor_that_another_op_makes_is_matched_by_module_and_elements():
    plain = tensor(2 * MB, module="mlp", op="aten::addmm", dtype="float16", shape="16592,2048")
    packed = tensor(4 * MB, module="mlp", op="aten::_to_copy", dtype="float32", shape="16,1037,2048")

    (change,) = rows([plain], [packed])

    assert (change.op_a, change.op_b, change.difference) == ("aten::addmm", "aten::_to_copy", 2 * MB)


def test_quantized_weight_is_matched_by_its_name():
    plain = tensor(4 * MB, "weights", finer="base", parameter="fc.weight", dtype="float32", shape="8,8")
    packed = tensor(MB, "weights", finer="quantized", parameter="fc.weight", dtype="uint8", shape="32,1")

    (change,) = rows([plain], [packed])

    assert (change.parameter, change.finer_a, change.finer_b) == ("fc.weight", "base", "quantized")
    assert (change.dtype_a, change.dtype_b, change.difference) == ("float32", "uint8", -3 * MB)


def test_unchanged_tensors_are_not_mixed_with_the_one_that_changed():
    common = {"module": "attn", "op": "aten::mm", "shape": "4,4"}
    same = [tensor(MB, dtype="float32", **common), tensor(MB, dtype="float32", **common)]

    changes = rows(
        [*same, tensor(MB // 2, dtype="float16", **common)],
        [*same, tensor(MB, dtype="float32", **common)],
    )

    assert [(change.dtype_a, change.count_a, change.difference) for change in changes] == [
        ("float16", 1, MB // 2),
        ("float32", 2, 0),
    ]


def test_larger_batch_changes_sizes_and_no_types():
    (change,) = rows(
        [tensor(MB, module="mlp", op="aten::mm", dtype="float16", shape="1,64")],
        [tensor(16 * MB, module="mlp", op="aten::mm", dtype="float16", shape="16,64")],
    )

    assert (change.dtype_a, change.dtype_b, change.difference) == ("float16", "float16", 15 * MB)


def test_parameter_that_changed_its_category_is_one_pair_with_both_categories():
    (change,) = rows(
        [tensor(MB, "weight_casts", parameter="fc.weight", dtype="float16", shape="8")],
        [tensor(2 * MB, "dequantized", parameter="fc.weight", dtype="float32", shape="8")],
    )

    assert (change.category_a, change.category_b) == (Category.WEIGHT_CASTS, Category.DEQUANTIZED)


def test_what_only_one_side_has_has_no_type_on_the_other():
    changes = rows(
        [tensor(MB, module="a", op="x", dtype="float16")], [tensor(3 * MB, "gradients", module="b", dtype="float32")]
    )

    assert [(change.dtype_a, change.dtype_b, change.difference) for change in changes] == [
        (None, "float32", 3 * MB),
        ("float16", None, -MB),
    ]


def test_files_without_labels_are_matched_by_who_asked():
    def frames(line):
        library = {"name": "linear", "filename": "torch/nn/functional.py", "line": 1}
        return [library, {"name": "forward", "filename": "litgpt/lora.py", "line": line}]

    a = [{"size": MB, "frames": frames(7)}, {"size": 5 * MB, "frames": frames(9)}]
    b = [{"size": 4 * MB, "frames": frames(7)}, {"size": 5 * MB, "frames": frames(9)}]

    changes = rows(a, b, labelled=False)

    assert [(change.caller, change.difference) for change in changes] == [
        ("forward (litgpt/lora.py:7)", 3 * MB),
        ("forward (litgpt/lora.py:9)", 0),
    ]


def test_labels_against_rules_is_said():
    result = compare(capture_of([tensor(MB)]), capture_of([tensor(MB)], labelled=False))

    assert "one file has labels" in result.notes[0]


def test_device_that_is_not_there_is_one_clear_line():
    with pytest.raises(InputError, match="nothing recorded for device 3"):
        compare(capture_of([tensor(1)]), capture_of([tensor(1)]), device=3)
