"""Rules on stacks as real files have them: each verdict, its reason, and what stays unknown."""

from __future__ import annotations

import pytest

from memprof.allocator.replay import replay
from memprof.categories.category import CATEGORIES, Category
from memprof.categories.rules import classify_by_rules
from memprof.trace.snapshot import read_snapshot

SITE = "site-packages/"


def frames(*pairs):
    return [{"name": name, "filename": filename, "line": 1} for name, filename in pairs]


MOVE = frames(("convert", SITE + "torch/nn/modules/module.py"), ("_apply", SITE + "torch/nn/modules/module.py"))
QUANTIZE = frames(
    ("_", SITE + "bitsandbytes/backends/cuda/ops.py"),
    ("func_no_dynamo", SITE + "torch/library.py"),
    ("__call__", SITE + "torch/_ops.py"),
    ("quantize_4bit", SITE + "bitsandbytes/functional.py"),
    ("_quantize", SITE + "bitsandbytes/nn/modules.py"),
    ("to", SITE + "bitsandbytes/nn/modules.py"),
    *[(frame["name"], frame["filename"]) for frame in MOVE],
)
FORWARD = frames(("dropout", SITE + "torch/nn/functional.py"), ("forward", "model.py"), ("step", "train.py"))
LOSS = frames(("cross_entropy", SITE + "torch/nn/functional.py"), ("step", "train.py"))
DEQUANTIZE = frames(
    ("_", SITE + "bitsandbytes/backends/cuda/ops.py"),
    ("func_no_dynamo", SITE + "torch/library.py"),
    ("__call__", SITE + "torch/_ops.py"),
    ("dequantize_4bit", SITE + "bitsandbytes/functional.py"),
    ("backward", SITE + "bitsandbytes/autograd/_functions.py"),
    ("apply", SITE + "torch/autograd/function.py"),
)
STATE = frames(("_init_group", SITE + "torch/optim/adam.py"), ("step", SITE + "torch/optim/adam.py"))
ADAM = frames(("_multi_tensor_adam", SITE + "torch/optim/adam.py"), ("step", SITE + "torch/optim/adam.py"))
BATCH = frames(("send_to_device", SITE + "accelerate/utils/operations.py"), ("train", "train.py"))
SCRIPT = frames(("main", "train.py"))
WORKSPACE = frames(("at::cuda::getNewWorkspace()", "??"), ("at::_ops::mm::call(at::Tensor const&)", "??"))


class Tape:
    """Writes a trace event by event, each allocation at an address of its own."""

    def __init__(self):
        self.trace, self.sizes = [], {}

    def alloc(self, stack, size=4096):
        address = 0x7F0000000000 + len(self.sizes) * 2**30
        self.sizes[address] = size
        self._add("alloc", address, stack)
        return address

    def free(self, address):
        self._add("free_requested", address, [])
        self._add("free_completed", address, [])

    def _add(self, action, address, stack):
        self.trace.append({"action": action, "addr": address, "size": self.sizes[address], "stream": 0,
                           "time_us": len(self.trace), "frames": list(stack)})  # fmt: skip

    def verdicts(self, **more):
        trace = read_snapshot({"segments": [], "device_traces": [self.trace], **more}, path="tape.pickle")
        (device,) = trace.devices
        allocations = replay(device, trace.settings, trace.source).allocations
        known = classify_by_rules(device, allocations, trace.stacks)
        return {
            int(allocations.address[row]): (
                CATEGORIES[known.category[row]],
                known.text(known.finer, row),
                known.text(known.phase, row),
                known.text(known.reason, row),
            )
            for row in range(len(allocations))
        }


def one_step(tape):
    """Model, batch, forward, loss, backward, optimizer; returns the addresses by name."""
    made = {"weight": tape.alloc(MOVE), "packed": tape.alloc(QUANTIZE), "batch": tape.alloc(BATCH)}
    made["saved"] = tape.alloc(FORWARD)
    made["scratch"] = tape.alloc(FORWARD)
    tape.free(made["scratch"])
    made["loss"] = tape.alloc(LOSS)
    made["dequantized"] = tape.alloc(DEQUANTIZE)
    tape.free(made["dequantized"])
    made["flowing"] = tape.alloc([])  # autograd's own thread has no Python frames
    tape.free(made["flowing"])
    made["grad"] = tape.alloc([])
    tape.free(made["saved"])
    tape.free(made["loss"])
    made["state"] = tape.alloc(STATE)
    made["update"] = tape.alloc(ADAM)
    tape.free(made["update"])
    made["after"] = tape.alloc(SCRIPT)
    tape.free(made["grad"])
    return made


@pytest.mark.parametrize(
    ("name", "category", "finer"),
    [
        ("weight", Category.WEIGHTS, None),
        ("packed", Category.WEIGHTS, "quantized"),
        ("batch", Category.INPUTS, None),
        ("saved", Category.ACTIVATIONS, "saved_or_held"),
        ("scratch", Category.TEMPORARIES, "forward"),
        ("loss", Category.ACTIVATIONS, "saved_or_held"),
        ("dequantized", Category.DEQUANTIZED, "backward"),
        ("flowing", Category.TEMPORARIES, "backward"),
        ("grad", Category.GRADIENTS, "parameter"),
        ("state", Category.OPTIMIZER_STATE, None),
        ("update", Category.TEMPORARIES, "optimizer"),
        ("after", Category.TEMPORARIES, "between"),
    ],
)
def test_one_training_step(name, category, finer):
    tape = Tape()
    made = one_step(tape)

    verdict = tape.verdicts()[made[name]]

    assert verdict[:2] == (category, finer)
    assert verdict[3]


def test_workspace_function_in_cpp_stack_is_workspace():
    tape = Tape()
    address = tape.alloc(WORKSPACE, 8_519_680)

    assert tape.verdicts()[address][0] is Category.WORKSPACE


def test_workspace_size_counts_only_at_work_and_when_never_freed():
    tape = Tape()
    kept, freed = tape.alloc(FORWARD, 8_519_680), tape.alloc(FORWARD, 8_519_680)
    tape.free(freed)
    moved = tape.alloc(MOVE, 8_519_680)

    verdicts = tape.verdicts()

    assert verdicts[kept][0] is Category.WORKSPACE
    assert verdicts[freed][0] is Category.TEMPORARIES
    assert verdicts[moved][0] is Category.WEIGHTS


def test_optimizer_region_names_the_phase_where_stacks_are_missing():
    tape = Tape()
    address = tape.alloc([])
    tape.free(address)
    region = [{"name": "Optimizer.step#AdamW.step", "stage": stage, "device": 0, "time_us": time}
              for stage, time in (("START", 0), ("END", 5))]  # fmt: skip

    assert tape.verdicts(external_annotations=region)[address][1:3] == ("optimizer", "optimizer")
    assert tape.verdicts()[address][0] is Category.UNKNOWN


def test_memory_without_history_is_unknown_with_its_reason():
    address = 0x7F0000000000
    block = {"address": address, "size": 2 * 2**20, "requested_size": 2**21, "state": "active_allocated", "frames": []}
    segment = {
        "device": 0,
        "address": address,
        "total_size": 2**21,
        "stream": 0,
        "segment_type": "small",
        "blocks": [block],
    }

    category, _, _, reason = Tape().verdicts(segments=[segment])[address]

    assert category is Category.UNKNOWN
    assert "before recording began" in reason


def test_forward_that_ran_out_of_memory_holds_activations():
    tape = Tape()
    held, gone = tape.alloc(FORWARD), tape.alloc(FORWARD)
    tape.free(gone)
    tape.trace.append({"action": "oom", "device_free": 1, "size": 2, "stream": 0, "time_us": 9, "frames": []})
    tape.free(held)

    verdicts = tape.verdicts()

    assert verdicts[held][0] is Category.ACTIVATIONS
    assert verdicts[gone][0] is Category.TEMPORARIES


def test_recomputed_forward_of_a_checkpoint_is_an_activation_of_backward():
    tape = Tape()
    tape.alloc(FORWARD)
    recompute = frames(("forward", "model.py"), ("unpack_hook", SITE + "torch/utils/checkpoint.py"),
                       ("backward", SITE + "torch/autograd/function.py"))  # fmt: skip
    address = tape.alloc(recompute)
    tape.free(address)

    assert tape.verdicts()[address][:3] == (Category.ACTIVATIONS, "recomputed", "backward")
