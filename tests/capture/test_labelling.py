"""The labelling on small timelines that are written by hand: no torch, every rule on both sides."""

from __future__ import annotations

import pytest
from scripted import Script

from memprof.capture.marks import module_mark, phase_mark, saved_mark, seen_mark, sight_mark
from memprof.capture.phases import NODE
from memprof.categories.category import Category


@pytest.fixture
def script():
    return Script()


def kind(item):
    return item.category, item.finer


def weight(script, address=1, name="fc.weight", finer="base"):
    """Allocate a float32 weight of 4 x 4 in init, and look at it."""
    script.begin(phase_mark("init", -1))
    script.begin("aten::empty")
    script.alloc(address, 64)
    script.end()
    script.op(sight_mark("weights", finer, name), (address, "float32", (4, 4)))
    script.end()


def test_without_a_phase_nothing_is_known(script):
    # given an allocation outside all phases that the run marks
    script.begin("aten::empty")
    script.alloc(1, 16)
    script.end()
    script.begin(phase_mark("init", -1))
    script.end()

    # then
    (item,) = script.labels()
    assert item.category is Category.UNKNOWN
    assert (item.phase, item.step) == ("", -1)


def test_a_temporary_has_phase_step_module_and_the_op_that_asked_for_it(script):
    # given
    script.begin(phase_mark("forward", 3))
    script.begin(module_mark("h.0.mlp"))
    script.begin("aten::to")
    script.begin("aten::_to_copy")
    script.begin("aten::empty_strided")
    script.alloc(1, 32)
    script.end(2)
    script.op("aten::mul", (1, "float16", (4, 4)))
    script.free(1, 32)
    script.end(3)

    # then
    (item,) = script.labels()
    assert kind(item) == (Category.TEMPORARIES, "forward")
    assert (item.phase, item.step, item.module, item.op) == ("forward", 3, "h.0.mlp", "aten::_to_copy")
    assert (item.dtype, item.shape) == ("float16", (4, 4))


def test_an_allocation_outside_any_op_says_so(script):
    script.begin(phase_mark("optimizer", 0))
    script.begin("Optimizer.step#AdamW.step", operator=False)
    script.alloc(1, 8)
    script.free(1, 8)
    script.end(2)
    (item,) = script.labels()
    assert kind(item) == (Category.TEMPORARIES, "optimizer")
    assert item.op == "(no op)"


def test_between_two_phases_of_a_step(script):
    script.begin(phase_mark("forward", 0))
    script.end()
    script.alloc(1, 8)
    script.free(1, 8)
    script.begin(phase_mark("backward", 0))
    script.end()
    (item,) = script.labels()
    assert (item.phase, item.step) == ("between", 0)


@pytest.mark.parametrize("saved", [True, False])
def test_activations_are_alive_when_backward_begins(script, saved):
    # given two allocations of a forward, of which one is freed in it
    script.begin(phase_mark("forward", 0))
    script.begin("aten::gelu")
    script.alloc(1, 32)
    script.alloc(2, 32)
    script.end()
    if saved:
        script.op(saved_mark(), (1, "float32", (8,)))
    script.free(2, 32)
    script.end()
    script.begin(phase_mark("backward", 0))
    script.free(1, 32)
    script.end()

    # then
    kept, freed = script.labels()
    assert kind(kept) == (Category.ACTIVATIONS, "saved" if saved else "held")
    assert kept.saved is saved
    assert kind(freed) == (Category.TEMPORARIES, "forward")


def test_what_outlives_a_forward_that_has_no_backward_is_no_activation(script):
    # given an evaluation's forward, and a later training step
    script.begin(phase_mark("forward", 0))
    script.begin("aten::mm")
    script.alloc(1, 32)
    script.end(2)
    script.begin(phase_mark("forward", 1))
    script.end()
    script.begin(phase_mark("backward", 1))
    script.op("aten::add", (1, "float32", (8,)))
    script.end()

    # then
    (item,) = script.labels()
    assert kind(item) == (Category.TEMPORARIES, "forward")


def test_logits_are_named_by_who_saw_them(script):
    script.begin(phase_mark("forward", 0))
    script.begin("aten::mm")
    script.alloc(1, 32)
    script.end()
    script.op(saved_mark(), (1, "float32", (8,)))
    script.op(sight_mark("activations", "logits", ""), (1, "float32", (8,)))
    script.end()
    script.begin(phase_mark("backward", 0))
    script.end()
    (item,) = script.labels()
    assert kind(item) == (Category.ACTIVATIONS, "logits")
    assert item.saved


def test_the_highest_role_wins_whenever_it_was_seen(script):
    # given a gradient that was first seen flowing, then as .grad
    script.begin(phase_mark("backward", 0))
    script.begin(NODE + "MmBackward0", sequence=4)
    script.begin("aten::mm")
    script.alloc(1, 32)
    script.end(2)
    script.begin(NODE + "torch::autograd::AccumulateGrad")
    script.op("torch::autograd::AccumulateGrad", (1, "float32", (8,)), backward=True)
    script.end()
    script.op(sight_mark("gradients", "parameter", "h.0.lora_A"), (1, "float32", (8,)))
    script.end()

    # then
    (item,) = script.labels()
    assert kind(item) == (Category.GRADIENTS, "parameter")
    assert (item.parameter, item.module) == ("h.0.lora_A", "h.0")


def test_flowing_gradients_and_temporaries_of_a_node(script):
    # given a node that returns one tensor and drops another, and the node that it flows into
    script.begin(phase_mark("backward", 0))
    script.begin(NODE + "MulBackward0", sequence=2)
    script.begin("aten::mul")
    script.alloc(1, 32)
    script.alloc(2, 32)
    script.free(2, 32)
    script.end(2)
    script.begin(NODE + "AddBackward0", sequence=1)
    script.op("AddBackward0", (1, "float32", (8,)), backward=True)
    script.free(1, 32)
    script.end(2)

    # then
    flows, dropped = script.labels()
    assert kind(flows) == (Category.GRADIENTS, "activation")
    assert kind(dropped) == (Category.TEMPORARIES, "backward")


def test_backward_belongs_to_the_module_whose_op_made_the_node(script):
    # given number 7: an op of module a that makes no node carries it first, then the one of module b that makes it
    script.begin(phase_mark("forward", 0))
    script.begin(module_mark("a"))
    script.op("aten::detach", sequence=7)
    script.end()
    script.begin(module_mark("b"))
    script.op("aten::mm", sequence=7)
    script.end(2)
    script.begin(phase_mark("backward", 0))
    script.begin(NODE + "MmBackward0", sequence=7)
    script.begin("aten::mm")
    script.alloc(1, 32)
    script.free(1, 32)
    script.end(3)

    # then
    (item,) = script.labels()
    assert item.module == "b"


def test_recomputed_in_backward(script):
    # given a tensor that autograd saves while a node runs
    script.begin(phase_mark("backward", 0))
    script.begin(NODE + "CheckpointFunctionBackward", sequence=1)
    script.begin("aten::mm")
    script.alloc(1, 32)
    script.end()
    script.op(saved_mark(), (1, "float32", (8,)))
    script.free(1, 32)
    script.end(2)

    # then
    (item,) = script.labels()
    assert kind(item) == (Category.ACTIVATIONS, "recomputed")


def test_a_cast_of_a_weight(script):
    # given a weight, and in forward a copy of it in half precision, also saved by autograd
    weight(script)
    script.begin(phase_mark("forward", 0))
    script.begin("aten::_to_copy", (1, "float32", (4, 4)))
    script.begin("aten::empty_strided")
    script.alloc(2, 32)
    script.end(2)
    script.op(saved_mark(), (2, "float16", (4, 4)))
    script.end()
    script.begin(phase_mark("backward", 0))
    script.end()

    # then
    _, cast = script.labels()
    assert kind(cast) == (Category.WEIGHT_CASTS, "base")
    assert cast.parameter == "fc.weight"


def test_a_clone_of_a_weight_is_no_cast(script):
    weight(script)
    script.begin(phase_mark("forward", 0))
    script.begin("aten::clone", (1, "float32", (4, 4)))
    script.alloc(2, 64)
    script.end()
    script.free(2, 64)
    script.end()
    assert kind(script.labels()[1]) == (Category.TEMPORARIES, "forward")


def test_dequantized_by_an_op_and_then_cast(script):
    # given an op that rebuilds the packed weight with a temporary, and a cast of its result
    weight(script, finer="quantized")
    script.begin(phase_mark("backward", 0))
    script.begin(NODE + "MatMul4BitBackward", sequence=1)
    script.begin("bitsandbytes::dequantize_4bit", (1, "float32", (4, 4)))
    script.begin("aten::empty")
    script.alloc(2, 64)
    script.end()
    script.begin("aten::bitwise_and")
    script.alloc(3, 64)
    script.end()
    script.free(3, 64)
    script.end()
    script.begin("aten::_to_copy", (2, "float32", (4, 4)))
    script.alloc(4, 32)
    script.end()
    script.free(2, 64)
    script.free(4, 32)
    script.end(2)

    # then
    _, rebuilt, temporary, cast = script.labels()
    assert kind(rebuilt) == (Category.DEQUANTIZED, "backward")
    assert rebuilt.parameter == "fc.weight"
    assert kind(temporary) == (Category.TEMPORARIES, "backward")
    assert kind(cast) == (Category.DEQUANTIZED, "backward")
    assert cast.parameter == "fc.weight"


def test_dequantized_inside_a_multiplication(script):
    # given bitsandbytes' CUDA path: a buffer of the op itself for the weight, and the linear's result that it returns
    weight(script, finer="quantized")
    script.begin(phase_mark("forward", 0))
    script.begin("bitsandbytes::gemm_4bit", (9, "float16", (2, 4)), (1, "float32", (4, 4)))
    script.begin("aten::empty")
    script.alloc(2, 32)
    script.end()
    script.begin("aten::linear", (9, "float16", (2, 4)), (2, "float16", (4, 4)))
    script.begin("aten::mm")
    script.alloc(3, 16)
    script.end(2)
    script.free(2, 32)
    script.end()
    script.op(saved_mark(), (3, "float16", (2, 4)))
    script.end()
    script.begin(phase_mark("backward", 0))
    script.end()

    # then
    _, buffer, result = script.labels()
    assert kind(buffer) == (Category.DEQUANTIZED, "forward")
    assert (buffer.parameter, buffer.op) == ("fc.weight", "bitsandbytes::gemm_4bit")
    assert kind(result) == (Category.ACTIVATIONS, "saved")


def test_the_fused_multiplication_returns_what_it_allocates(script):
    weight(script, finer="quantized")
    script.begin(phase_mark("forward", 0))
    script.begin("bitsandbytes::gemm_4bit", (9, "float16", (2, 4)), (1, "float32", (4, 4)))
    script.begin("aten::empty")
    script.alloc(2, 16)
    script.end(2)
    script.op("aten::add", (2, "float16", (2, 4)))
    script.free(2, 16)
    script.end()
    assert kind(script.labels()[1]) == (Category.TEMPORARIES, "forward")


@pytest.mark.parametrize("seen", [True, False])
def test_a_workspace_is_never_given_to_an_op(script, seen):
    # given what a matrix product allocates and nobody frees
    script.begin(phase_mark("forward", 0))
    script.begin("aten::addmm")
    script.alloc(1, 8_519_680)
    script.end()
    if seen:
        script.op("aten::add", (1, "float32", (8,)))
    script.end()

    # then
    (item,) = script.labels()
    assert item.category is (Category.TEMPORARIES if seen else Category.WORKSPACE)


@pytest.mark.parametrize("phase", ["forward", "backward"])
@pytest.mark.parametrize(("size", "finer"), [(33_554_432, "cublas"), (8_519_680, "cublas"), (1 << 20, "cublaslt")])
def test_a_workspace_that_stays_is_no_activation(script, phase, size, finer):
    # given a workspace taken in a phase, alive when backward begins or made in it
    script.begin(phase_mark(phase, 0))
    script.begin("aten::addmm")
    script.alloc(1, size)
    script.end(2)
    script.begin(phase_mark("backward", 0))
    script.end()

    # then
    assert kind(script.labels()[0]) == (Category.WORKSPACE, finer)


def test_a_convolution_has_its_workspace_from_cudnn(script):
    script.begin(phase_mark("forward", 0))
    script.begin("aten::cudnn_convolution")
    script.alloc(1, 4096)
    script.free(1, 4096)
    script.end(2)
    assert kind(script.labels()[0]) == (Category.WORKSPACE, "cudnn")


def test_the_last_result_of_a_model_is_no_workspace(script):
    # given a result that a module returned, and that no op was ever given
    script.begin(phase_mark("forward", 0))
    script.begin("aten::addmm")
    script.alloc(1, 1 << 20)
    script.end()
    script.op(seen_mark(), (1, "float32", (1 << 18,)))
    script.end()
    assert kind(script.labels()[0]) == (Category.TEMPORARIES, "forward")


def test_no_library_of_the_cpu_keeps_a_workspace(script):
    script.begin(phase_mark("forward", 0))
    script.begin("aten::addmm")
    script.alloc(1, 1 << 20)
    script.end(2)
    assert kind(script.labels(device="cpu")[0]) == (Category.TEMPORARIES, "forward")


def test_an_address_is_used_again(script):
    # given an input at an address where a temporary was
    script.begin(phase_mark("between", 0))
    script.begin("aten::sum")
    script.alloc(1, 32)
    script.end()
    script.free(1, 32)
    script.begin("aten::randint")
    script.alloc(1, 64)
    script.end()
    script.op(sight_mark("inputs", "tokens", ""), (1, "float32", (16,)))
    script.end()

    # then
    old, new = script.labels()
    assert kind(old) == (Category.TEMPORARIES, "between")
    assert kind(new) == (Category.INPUTS, "tokens")
    assert (new.dtype, new.shape) == ("float32", (16,))


def test_a_free_of_what_was_there_before_is_ignored(script):
    script.begin(phase_mark("init", -1))
    script.free(5, 100)
    script.alloc(5, 32)
    script.end()
    (item,) = script.labels()
    assert item.size == 32


def test_the_tensor_that_fills_the_allocation_gives_its_shape(script):
    # given a view that was seen before the whole
    script.begin(phase_mark("forward", 0))
    script.begin("aten::mm")
    script.alloc(1, 64)
    script.end()
    script.op("aten::select", (1, "float32", (4,)))
    script.op("aten::add", (1, "float32", (4, 4)))
    script.free(1, 64)
    script.end()
    (item,) = script.labels()
    assert item.shape == (4, 4)


def test_logits_are_what_a_cross_entropy_is_given(script):
    script.begin(phase_mark("forward", 0))
    script.begin("aten::mm")
    script.alloc(1, 32)
    script.end()
    script.op("aten::cross_entropy_loss", (1, "float32", (2, 4)), (9, "int64", (2,)))
    script.end()
    script.begin(phase_mark("backward", 0))
    script.free(1, 32)
    script.end()
    assert kind(script.labels()[0]) == (Category.ACTIVATIONS, "logits")


@pytest.mark.parametrize("unfinished", [True, False])
def test_a_forward_that_was_cut_off_keeps_its_activations(script, unfinished):
    # given a forward that no backward follows
    script.begin(phase_mark("forward", 0))
    script.begin("aten::gelu")
    script.alloc(1, 32)
    script.end()
    script.op(saved_mark(), (1, "float32", (8,)))
    script.end()
    (item,) = script.labels(unfinished=unfinished)
    expected = (Category.ACTIVATIONS, "saved") if unfinished else (Category.TEMPORARIES, "forward")
    assert kind(item) == expected


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_what_processes_exchange_in_backward_is_a_bucket(script, phase):
    script.begin(phase_mark("init", -1))
    script.begin("aten::empty")
    script.alloc(1, 32)
    script.end(2)
    script.begin(phase_mark(phase, 0))
    script.op("c10d::allreduce_", (1, "float32", (8,)))
    script.end()
    (item,) = script.labels()
    assert kind(item) == ((Category.GRADIENTS, "bucket") if phase == "backward" else (Category.TEMPORARIES, "init"))


@pytest.mark.parametrize("stays", [True, False])
def test_a_forward_that_runs_again_in_backward(script, stays):
    # given a node in which ops make autograd nodes, as checkpointing does, and hooks of its own hide what is saved
    script.begin(phase_mark("backward", 0))
    script.begin(NODE + "AddmmBackward0", sequence=1)
    script.begin("aten::gelu", sequence=9)
    script.alloc(1, 32)
    script.end()
    if not stays:
        script.free(1, 32)
    script.op("aten::add", sequence=10)
    if stays:
        script.free(1, 32)
    script.end(2)
    (item,) = script.labels()
    assert kind(item) == ((Category.ACTIVATIONS, "recomputed") if stays else (Category.TEMPORARIES, "backward"))


def test_what_was_there_before_the_recording_has_a_label_too(script):
    # given a weight at an address that nobody allocated, seen expanded before it was looked at, and a cast of it
    script.begin(phase_mark("forward", 0))
    script.op("aten::add", (1, "float32", (16, 16)))
    script.op(sight_mark("weights", "base", "fc.bias"), (1, "float32", (16,)))
    script.begin("aten::_to_copy", (1, "float32", (16,)))
    script.alloc(2, 32)
    script.end()
    script.free(2, 32)
    script.end()

    # then
    (before,) = script.base()
    assert kind(before) == (Category.WEIGHTS, "base")
    assert (before.born, before.address, before.size, before.parameter) == (-1, 1, 64, "fc.bias")
    (cast,) = script.labels()
    assert (kind(cast), cast.parameter) == ((Category.WEIGHT_CASTS, "base"), "fc.bias")


def test_a_tensor_whose_storage_begins_inside_an_allocation(script):
    # given a block that holds a file, and two weights in it
    script.begin(phase_mark("init", -1))
    script.alloc(1000, 500)
    script.op(sight_mark("weights", "base", "first"), (1100, "float32", (25,)))
    script.op(sight_mark("weights", "base", "second"), (1200, "float32", (75,)))
    script.end()

    # then
    (item,) = script.labels()
    assert kind(item) == (Category.WEIGHTS, "base")
    assert script.base() == []
