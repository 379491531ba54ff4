"""Findings on files: the committed H200 captures, other people's snapshots, and a fragmenting allocator."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from memprof.allocator.counters import OutOfMemory
from memprof.allocator.driver import Driver
from memprof.allocator.simulation import CachingAllocator
from memprof.allocator.snapshot import device_trace
from memprof.analysis.account import open_account
from memprof.analysis.findings import explain_trace, find_all, merge_sweep, top_finding
from memprof.commands.explain import run
from memprof.errors import InputError
from memprof.trace import load
from memprof.trace.model import Settings, Source, StackTable, Trace
from memprof.trace.snapshot import read_snapshot

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "traces"
WILD = ROOT / "../shared/wild"
MIB = 1 << 20
LENGTH, VOCABULARY, HIDDEN = 1037, 50304, 512
CHUNK = 128
"""Tokens for which the output layer runs at a time."""


def h200(quant, mbs):
    return TRACES / f"h200-pythia-70m-16-mixed-{quant}-mbs{mbs}.pickle"


def account_of(path):
    (device,) = (trace := load(path)).devices
    return open_account(trace, device)


def without_its_labels(path):
    (device,) = (trace := load(path)).devices
    return {finding.id: finding for finding in find_all(open_account(trace, replace(device, labels=None)))}


@pytest.fixture(scope="module")
def found():
    known = {}

    def find(quant, mbs):
        if (quant, mbs) not in known:
            known[quant, mbs] = {finding.id: finding for finding in find_all(account_of(h200(quant, mbs)))}
        return known[quant, mbs]

    return find


@pytest.mark.parametrize(
    ("quant", "mbs", "expected"),
    [
        ("none", 1, {"frozen-weight-casts", "logits-dominate", "logits-copied"}),
        ("none", 16, {"frozen-weight-casts", "logits-dominate", "logits-copied"}),
        ("bnb.nf4", 1, {"logits-dominate", "quantized-output-float32", "weights-float32"}),
        ("bnb.nf4", 16, {"logits-dominate", "quantized-output-float32", "weights-float32"}),
    ],
)
def test_h200_captures_have_these_findings_and_no_others(found, quant, mbs, expected):
    assert set(found(quant, mbs)) == expected


def test_output_layer_in_chunks_casts_its_frozen_weight_for_each_of_them(found):
    chunks = -(-LENGTH // CHUNK)
    row = found("none", 16)["frozen-weight-casts"].evidence[0]

    assert (row.module, row.dtype, row.count) == ("lm_head.linear", "float16", chunks)
    exact = chunks * VOCABULARY * HIDDEN * 2
    assert exact <= row.size < exact + chunks * MIB  # a block in the large pool has up to 1 MiB more


def test_float32_outputs_of_quantized_layers_are_counted_as_on_paper(found):
    mbs = 16
    logits = mbs * LENGTH * VOCABULARY * 2
    hidden = 5 * mbs * LENGTH * 4 * HIDDEN * 2  # of the last of 6 layers backward has taken it at the peak

    finding = found("bnb.nf4", mbs)["quantized-output-float32"]

    assert logits + hidden <= finding.size < 1.003 * (logits + hidden)
    assert finding.per_sample == finding.size / mbs


@pytest.mark.parametrize("mbs", [1, 16])
def test_without_labels_stacks_tell_the_same_float32_outputs(found, mbs):
    hidden = without_its_labels(h200("bnb.nf4", mbs))

    ours, theirs = found("bnb.nf4", mbs)["quantized-output-float32"], hidden["quantized-output-float32"]
    assert theirs.size == ours.size
    assert (theirs.certainty.value, ours.certainty.value) == ("likely", "certain")


@pytest.mark.parametrize("quant", ["none", "bnb.nf4"])
def test_without_labels_the_loss_tells_the_logits_but_for_the_last_chunk(found, quant):
    hidden = without_its_labels(h200(quant, 16))

    ours, theirs = found(quant, 16)["logits-dominate"].size, hidden["logits-dominate"].size
    assert 0.99 * ours < theirs <= ours


def test_without_labels_plain_layers_return_no_float32():
    assert set(without_its_labels(h200("none", 16))) == {"logits-dominate"}


def test_most_important_finding_has_the_most_bytes():
    account = account_of(h200("bnb.nf4", 16))

    sizes = [finding.size for finding in find_all(account)]

    assert sizes == sorted(sizes, reverse=True)
    assert top_finding(account) == replace(find_all(account)[0], gives_back=None)


def test_sweep_puts_a_configuration_together_and_takes_bytes_per_sample_from_its_ends(found):
    points = [(quant, mbs) for mbs in (1, 16) for quant in ("none", "bnb.nf4")]
    files = [each for point in points for each in explain_trace(load(h200(*point)), worth=0.0)]

    merged = {each.config["quant"]: each for each in merge_sweep(files)}

    assert set(merged) == {"none", "bnb.nf4"}
    assert merged["bnb.nf4"].batches == (1, 16)
    by_id = {finding.id: finding for finding in merged["bnb.nf4"].findings}
    low, high = (found("bnb.nf4", mbs)["quantized-output-float32"].size for mbs in (1, 16))
    assert by_id["quantized-output-float32"].size == high
    assert by_id["quantized-output-float32"].per_sample == (high - low) / 15
    assert by_id["weights-float32"].per_sample is None


def test_what_is_worth_a_line_at_one_micro_batch_is_told_at_the_largest():
    paths = [TRACES / f"sweep-pythia-70m/pythia-70m_16-mixed_bnb.nf4_seq1037_mbs{mbs}.pickle" for mbs in (2, 32)]
    alone = [{finding.id for finding in each.findings} for path in paths for each in explain_trace(load(path))]

    (merged,) = merge_sweep([each for path in paths for each in explain_trace(load(path), worth=0.0)])

    assert ["dropout-masks" in ids for ids in alone] == [True, False]
    (masks,) = (finding for finding in merged.findings if finding.id == "dropout-masks")
    exact = 5 * 32 * LENGTH * HIDDEN  # a bool for each element, in each layer that backward has not reached
    assert exact <= masks.size <= exact + 5 * MIB


def test_json_is_a_list_of_findings_of_the_documented_shape(capsys):
    run(h200("bnb.nf4", 16), as_json=True)

    findings = json.loads(capsys.readouterr().out)

    assert [finding["bytes"] for finding in findings] == sorted((f["bytes"] for f in findings), reverse=True)
    for finding in findings:
        assert {
            "id", "title", "category", "bytes", "bytes_per_sample", "certainty", "evidence", "fix"
        } <= set(finding)  # fmt: skip
        assert sum(row["bytes"] for row in finding["evidence"]) == finding["bytes"]
        assert {"module", "op", "dtype", "bytes"} <= set(finding["evidence"][0])


def test_report_shows_title_evidence_and_fix(capsys):
    run(h200("bnb.nf4", 16), as_json=False)

    shown = capsys.readouterr().out

    assert "Quantized layers return float32: 2.014 GB more than in half precision" in shown
    assert "lm_head.linear" in shown
    assert "fix: Give the quantized layers inputs in half precision" in shown


def test_directory_leaves_out_what_it_cannot_read_and_says_so(tmp_path, capsys):
    shutil.copy(h200("none", 1), tmp_path / "good.pickle")
    (tmp_path / "bad.pickle").write_bytes(b"\x80\x04]")

    run(tmp_path, as_json=False)

    output = capsys.readouterr()
    assert "good.pickle" in output.out
    assert "left out:" in output.err
    assert "bad.pickle" in output.err


def test_directory_without_snapshot_is_one_clear_line(tmp_path):
    with pytest.raises(InputError, match="has no snapshot in it"):
        run(tmp_path, as_json=False)


def findings_of(allocator):
    """Find on the recording of a simulated allocator, which chooses blocks as torch's does."""
    empty = StackTable(frames=(), frame_index=_ints([], "int32"), offsets=_ints([0], "int64"))
    device = device_trace(allocator)
    trace = Trace(
        path="simulated", source=Source.SIMULATED, devices=(device,), stacks=empty, texts=(), settings=Settings()
    )
    return {finding.id: finding for finding in find_all(open_account(trace, device))}


def _ints(values, dtype):
    import numpy as np

    return np.array(values, dtype)


def alternate(allocator, *, count, size):
    """Fill segments with pairs of blocks, and free every other one."""
    addresses = [allocator.malloc(size) for _ in range(count)]
    for address in addresses[::2]:
        allocator.free(address)


def test_memory_that_no_moment_needed_is_fragmentation():
    allocator = CachingAllocator(Settings())
    alternate(allocator, count=64, size=12 * MIB)  # each has a segment of its own
    for _ in range(8):
        allocator.malloc(40 * MIB)  # none of the holes takes it

    finding = findings_of(allocator)["fragmentation"]

    # Before: 64 blocks, all needed. After: 32 of them, 8 larger ones, and 32 holes.
    assert finding.size == (64 * 12 + 8 * 40) * MIB - max(64 * 12, 32 * 12 + 8 * 40) * MIB
    assert finding.certainty.value == "certain"


def test_cache_of_a_larger_step_is_no_fragmentation():
    allocator = CachingAllocator(Settings())
    for size in (40, 10):
        for address in [allocator.malloc(size * MIB) for _ in range(32)]:
            allocator.free(address)
    allocator.malloc(10 * MIB)

    assert findings_of(allocator) == {}


def test_cache_left_by_a_failed_step_is_no_fragmentation():
    allocator = CachingAllocator(Settings(), Driver(), allowed=1000 * MIB)
    addresses = [allocator.malloc(40 * MIB) for _ in range(20)]
    with pytest.raises(OutOfMemory):
        allocator.malloc(400 * MIB)
    for address in addresses:
        allocator.free(address)

    assert findings_of(allocator) == {}


def test_request_that_fails_beside_enough_free_memory_is_fragmentation():
    allocator = CachingAllocator(Settings(), Driver(), allowed=700 * MIB)
    alternate(
        allocator, count=160, size=4 * MIB
    )  # five share a segment, so that none of the segments can be given back
    with pytest.raises(OutOfMemory):
        allocator.malloc(200 * MIB)

    finding = findings_of(allocator)["fragmentation"]

    assert finding.size == 80 * 4 * MIB
    assert "209.7 MB could not be had" in finding.title


PYTHON = "/site-packages/"
FORWARD = [
    {"name": "forward", "filename": f"{PYTHON}bitsandbytes/nn/modules.py", "line": 1},
    {"name": "train", "filename": "train.py", "line": 9},
]
REBUILDING = [{"name": "dequantize_4bit", "filename": f"{PYTHON}bitsandbytes/functional.py", "line": 1}, *FORWARD]
BACKWARD = [{"name": "torch::autograd::Engine::evaluate_function(void)", "filename": "??", "line": 0}]
WEIGHT = 3 * MIB


def without_labels(lives_until, size=WEIGHT):
    """A file without labels: an activation, a rebuilt weight that lives until then, and a gradient."""
    order = [("alloc", 0, FORWARD), ("alloc", 1, REBUILDING), ("alloc", 2, BACKWARD), ("free_requested", 2, [])]
    order.insert(2 if lives_until == "forward" else 3, ("free_requested", 1, []))
    trace = [
        {"action": action, "addr": (1 << 40) + at * size, "size": size, "stream": 0, "time_us": i, "frames": frames}
        for i, (action, at, frames) in enumerate(order)
    ]
    return read_snapshot({"segments": [], "device_traces": [trace]}, path="stranger.pickle")


def test_rebuilt_weight_that_lives_into_backward_is_found_by_rules_as_likely():
    (explained,) = explain_trace(without_labels("backward"))

    (finding,) = explained.findings
    assert (finding.id, finding.size, finding.certainty.value) == ("dequantized-weights-kept", WEIGHT, "likely")


def test_workspace_that_a_dequantizing_product_took_is_no_weight():
    (explained,) = explain_trace(without_labels("backward", size=32 * MIB))

    assert explained.findings == ()


def test_rebuilt_weight_that_goes_in_forward_is_not_found_by_rules():
    (explained,) = explain_trace(without_labels("forward"))

    assert explained.findings == ()


def steps_of_a_profiler(*, keeps):
    """A file without labels: in each of five regions ProfilerStep#N something that goes, and what stays if `keeps`."""
    trace, annotations = [], []
    for step in range(5):
        kept, gone = ((1 << 40) + at * WEIGHT for at in (step if keeps else 0, 9))
        actions = [("alloc", kept), ("alloc", gone), ("free_requested", gone)]
        actions += [] if keeps else [("free_requested", kept)]
        annotations.append({"name": f"ProfilerStep#{step}", "stage": "START", "device": 0, "time_us": 100 * step + 1})
        for time, (action, address) in enumerate(actions, 100 * step + 10):
            entry = {"action": action, "addr": address, "size": WEIGHT, "stream": 0, "time_us": time}
            trace.append({**entry, "frames": FORWARD})
    return read_snapshot(
        {"segments": [], "device_traces": [trace], "external_annotations": annotations}, path="stranger.pickle"
    )


def test_what_every_profiler_step_leaves_is_found_without_labels():
    (explained,) = explain_trace(steps_of_a_profiler(keeps=True))

    (finding,) = explained.findings
    # At the peak, in the last step, those of the four steps before stand.
    assert (finding.id, finding.size, finding.certainty.value) == ("grows-every-step", 4 * WEIGHT, "likely")
    assert "3.146 MB every step" in finding.title
    assert finding.evidence[0].where == "train (train.py:9)"


def test_profiler_steps_that_leave_nothing_are_not_found():
    (explained,) = explain_trace(steps_of_a_profiler(keeps=False))

    assert explained.findings == ()


@pytest.mark.wild
@pytest.mark.skipif(not WILD.is_dir(), reason="other people's snapshots are not beside this checkout")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("late_start_inference", set()),
        ("late_start_training", set()),
        ("oom_expandable_4devices", set()),
        ("tiny_97_events", set()),
        ("toplevel_list", set()),
        ("truncated_negative_baseline", set()),
        ("state_only_fragmented", {"cached-without-history"}),
        ("state_only_small", {"cached-without-history"}),
    ],
)
def test_other_peoples_files_have_these_findings(name, expected):
    explained = explain_trace(load(WILD / f"{name}.pickle"))

    assert {finding.id for each in explained for finding in each.findings} == expected
    for each in explained:
        for finding in each.findings:
            assert "cannot be told without history" in finding.title
