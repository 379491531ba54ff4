"""A scrubbed snapshot: nothing private in it, every number as it was, and the same account."""

from __future__ import annotations

import copy
import gzip
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from memprof.analysis.account import open_account
from memprof.errors import InputError, OutputError
from memprof.trace import load
from memprof.trace.opcodes import check_memory_viz
from memprof.trace.private_text import PrivateText, user_names_in
from memprof.trace.scrub import scrub_snapshot
from memprof.trace.scrub_file import scrub_file

ROOT = Path(__file__).parents[2]
WILD = ROOT / "../shared/wild"
BASE = 1 << 40
USER, HOST = "alice", "gpu17.physics.example.edu"


def frame(name, filename, line=7, **more):
    return {"name": name, "filename": filename, "line": line, **more}


PRIVATE_FRAMES = [
    frame("linear", f"/home/{USER}/venv/lib/python3.11/site-packages/torch/nn/functional.py"),
    frame(
        "train", f"/home/{USER}/secret-project/{USER}_train.py", fx_original_trace=f'File "/home/{USER}/x.py", line 3'
    ),
    frame("run", f"C:\\Users\\{USER}\\other\\main.py"),
    frame("join", "/usr/lib/python3.11/posixpath.py"),
    frame("adamw", f"/data/{USER}/pytorch/torch/optim/adamw.py"),
    frame("at::native::empty_cuda(c10::ArrayRef<long>)", "??"),
]


def private_snapshot():
    """One block and its alloc, with something private at every place that can have it."""
    entry = {
        "action": "alloc",
        "addr": BASE,
        "size": 1000,
        "stream": 0,
        "time_us": 1_700_000_000_000_000,
        "frames": PRIVATE_FRAMES,
        "user_metadata": f"run of {USER} on {HOST}",
        "forward_frames": [f'File "/home/{USER}/secret-project/model.py", line 1, in forward'],
        "compile_context": f"0/0 /tmp/torchinductor_{USER}/ab/cd.py",
        "note": f"asked by {USER}",
    }
    block = {
        "address": BASE,
        "size": 1024,
        "requested_size": 1000,
        "state": "active_allocated",
        "frames": PRIVATE_FRAMES,
        "history": [{"addr": BASE, "real_size": 1000, "frames": copy.deepcopy(PRIVATE_FRAMES)}],
    }
    rest = {"address": BASE + 1024, "size": (2 << 20) - 1024, "requested_size": 0, "state": "inactive", "frames": []}
    segment = {
        "device": 0,
        "address": BASE,
        "total_size": 2 << 20,
        "stream": 0,
        "segment_type": "small",
        "segment_pool_id": (0, 0),
        "blocks": [block, rest],
        "frames": PRIVATE_FRAMES,
    }
    annotations = [
        {"name": name, "stage": stage, "device": 0, "time_us": time}
        for name, time in (
            ("ProfilerStep#3", 1),
            (f"load /home/{USER}/data/set.json", 2),
            (f"{USER}: warm up", 3),
            (f"push to s3://{USER}-bucket/key", 4),
            (f"mail {USER}@example.com", 5),
            ("worker 10.1.2.3", 6),
            ("on login.cluster.local", 7),
        )
        for stage in ("START", "END")
    ]
    return {
        "segments": [segment],
        "device_traces": [[entry]],
        "external_annotations": annotations,
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"},
        "hostname": HOST,
        "extra": {"who": USER, "count": 5, "deep": [(USER, 6)]},
        "memprof": {
            "version": 1,
            "source": "recorded",
            "made_by": {
                "command": f"memprof capture --checkpoint-dir /home/{USER}/ckpt/pythia -o ../{USER}/out/run.pickle",
                "config": {"model": "pythia-70m", "mbs": 2, "data": f"/home/{USER}/alpaca.json"},
                "user": USER,
            },
            "environment": {"torch": "2.11.0", "driver": "580.159.04", "hostname": HOST, "packages": {"numpy": "2.1"}},
            "strings": ["", "weights", "lm_head", "float32"],
            "labels": {"device": [0], "entry": [0], "category": [1], "module": [2], "dtype": [3]},
            "marks": [{"device": 0, "entry": 0, "name": "step 0 forward"}],
        },
    }


def write(path, snapshot):
    path.write_bytes(pickle.dumps(snapshot, protocol=4))
    return path


def scrubbed(path, tmp_path):
    target = tmp_path / "public.pickle"
    scrub_file(path, target)
    return pickle.loads(target.read_bytes())


def numbers(value):
    """Every number in a value, in order, and where there is a text or container instead."""
    if isinstance(value, dict):
        return [numbers(item) for item in value.values()]
    if isinstance(value, (list, tuple)):
        return [numbers(item) for item in value]
    return "text" if isinstance(value, str) else value


def texts(value):
    if isinstance(value, dict):
        return [text for pair in value.items() for item in pair for text in texts(item)]
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in texts(item)]
    return [value] if isinstance(value, str) else []


def assert_same_account(before, after):
    for one, other in zip(before.devices, after.devices, strict=True):
        ours, theirs = open_account(before, one), open_account(after, other)
        for column in ("allocated", "requested", "pending"):
            assert np.array_equal(getattr(ours.replay, column), getattr(theirs.replay, column))
        assert (ours.replay.reserved is None) == (theirs.replay.reserved is None)
        if ours.replay.reserved is not None:
            assert np.array_equal(ours.replay.reserved, theirs.replay.reserved)
        assert np.array_equal(ours.classification.category, theirs.classification.category)
        for column in ("finer", "phase", "module", "op", "dtype", "shape", "parameter"):
            pairs = zip(getattr(ours.classification, column), getattr(theirs.classification, column), strict=True)
            for row, (mine, yours) in enumerate(pairs):
                assert (mine < 0) == (yours < 0), (column, row)


def test_nothing_private_is_left(tmp_path):
    after = scrubbed(write(tmp_path / "run.pickle", private_snapshot()), tmp_path)

    found = "\n".join(texts(after)).lower()

    for private in (USER, "secret-project", "gpu17", "example", "home", "users", "10.1.2.3", "cluster", "bucket"):
        assert private not in found, private


def test_every_number_and_what_explains_memory_stays(tmp_path):
    before = private_snapshot()

    after = scrubbed(write(tmp_path / "run.pickle", before), tmp_path)

    assert numbers(after) == numbers(before)
    assert [part["filename"] for part in after["device_traces"][0][0]["frames"]] == [
        "torch/nn/functional.py",
        "user_train.py",
        "main.py",
        "posixpath.py",
        "torch/optim/adamw.py",
        "??",
    ]
    assert [part["name"] for part in after["device_traces"][0][0]["frames"]] == [
        "linear",
        "train",
        "run",
        "join",
        "adamw",
        "at::native::empty_cuda(c10::ArrayRef<long>)",
    ]
    names = [annotation["name"] for annotation in after["external_annotations"][::2]]
    assert names == [
        "ProfilerStep#3",
        "load set.json",
        "user: warm up",
        "push to (address)",
        "mail (address)",
        "worker (address)",
        "on (address)",
    ]
    memprof = after["memprof"]
    assert memprof["made_by"]["command"] == "memprof capture --checkpoint-dir pythia -o run.pickle"
    assert memprof["made_by"]["config"] == {"model": "pythia-70m", "mbs": 2, "data": "alpaca.json"}
    assert memprof["environment"]["driver"] == "580.159.04"
    assert memprof["strings"] == ["", "weights", "lm_head", "float32"]
    assert after["allocator_settings"] == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"}


def test_free_text_and_texts_of_unknown_keys_are_emptied(tmp_path):
    after = scrubbed(write(tmp_path / "run.pickle", private_snapshot()), tmp_path)

    entry = after["device_traces"][0][0]
    assert (entry["user_metadata"], entry["note"], after["hostname"]) == ("", "", "")
    assert entry["frames"][1]["fx_original_trace"] == ""
    assert after["extra"] == {"who": "", "count": 5, "deep": [("", 6)]}


def test_whoever_is_logged_in_is_replaced_too(tmp_path, monkeypatch):
    monkeypatch.setenv("USER", "bob.builder")
    snapshot = private_snapshot()
    snapshot["external_annotations"] = [{"name": "for bob.builder", "stage": "START", "device": 0, "time_us": 1}]

    after = scrubbed(write(tmp_path / "run.pickle", snapshot), tmp_path)

    assert after["external_annotations"][0]["name"] == "for user"


def test_given_names_are_replaced_where_they_are_words():
    snapshot = private_snapshot()
    snapshot["external_annotations"] = [
        {"name": "on GPU17, gpu17_rank3, gpu170", "stage": "START", "device": 0, "time_us": 1}
    ]

    scrub_snapshot(snapshot, {"gpu17": "host"})

    assert snapshot["external_annotations"][0]["name"] == "on host, host_rank3, gpu170"


def test_shared_stacks_stay_shared(tmp_path):
    snapshot = private_snapshot()
    snapshot["device_traces"][0] *= 1000
    path = write(tmp_path / "run.pickle", snapshot)

    after = scrubbed(path, tmp_path)

    entries = after["device_traces"][0]
    assert entries[0]["frames"] is entries[-1]["frames"] is after["segments"][0]["frames"]


def test_scrubbing_twice_changes_nothing_more(tmp_path):
    once = scrubbed(write(tmp_path / "run.pickle", private_snapshot()), tmp_path)

    twice = scrubbed(tmp_path / "public.pickle", tmp_path)

    assert twice == once


@pytest.mark.parametrize("quant", ["none", "bnb.nf4"])
def test_our_own_capture_keeps_its_account_and_opens_in_memory_viz(quant, tmp_path):
    path = ROOT / f"traces/h200-pythia-70m-16-mixed-{quant}-mbs16.pickle"
    target = tmp_path / "public.pickle"

    scrub_file(path, target)

    assert check_memory_viz(target) == []
    before, after = load(path), load(target)
    assert_same_account(before, after)
    assert (after.made_by["config"], after.notes) == (before.made_by["config"], before.notes)
    assert [device.marks for device in after.devices] == [device.marks for device in before.devices]


@pytest.mark.wild
@pytest.mark.skipif(not WILD.is_dir(), reason="other people's snapshots are not beside this checkout")
@pytest.mark.parametrize("name", [path.name for path in sorted(WILD.glob("*.pickle"))])
def test_other_peoples_files_keep_their_account_and_open_in_memory_viz(name, tmp_path):
    target = tmp_path / "public.pickle"

    scrub_file(WILD / name, target)

    assert check_memory_viz(target) == []
    assert_same_account(load(WILD / name), load(target))
    assert not [text for text in texts(pickle.loads(target.read_bytes())) if "/home/" in text or text.startswith("/")]


@pytest.mark.parametrize("form", ["json", "gzip", "list of segments"])
def test_other_forms_become_a_plain_pickle(form, tmp_path):
    snapshot = private_snapshot()
    path = tmp_path / "run"
    if form == "json":
        path.write_text(json.dumps(snapshot))
    elif form == "gzip":
        path.write_bytes(gzip.compress(pickle.dumps(snapshot, protocol=4)))
    else:
        write(path, snapshot["segments"])

    after = scrubbed(path, tmp_path)

    assert USER not in "\n".join(texts(after)).lower()
    assert check_memory_viz(tmp_path / "public.pickle") == []
    assert_same_account(load(path), load(tmp_path / "public.pickle"))


class Harm:
    def __reduce__(self):
        return (os.mkdir, (str(Path(os.environ["SCRUB_HARM"]) / "harmed"),))


@pytest.mark.parametrize("harm", ["runs code", "truncated", "not a snapshot", "bytes inside", "cycle", "deep"])
def test_hostile_file_is_one_line_and_leaves_nothing(harm, tmp_path, monkeypatch):
    monkeypatch.setenv("SCRUB_HARM", str(tmp_path))
    snapshot = private_snapshot()
    data = pickle.dumps(snapshot, protocol=4)
    if harm == "runs code":
        data = pickle.dumps({**snapshot, "extra": Harm()}, protocol=4)
    elif harm == "truncated":
        data = data[:-20]
    elif harm == "not a snapshot":
        data = pickle.dumps({"segments": 5}, protocol=4)
    elif harm == "bytes inside":
        data = pickle.dumps({**snapshot, "extra": b"x"}, protocol=4)
    elif harm == "cycle":
        snapshot["memprof"]["made_by"]["config"] = snapshot["memprof"]["made_by"]
        data = pickle.dumps(snapshot, protocol=4)
    else:
        nested = b"]" * 50_000 + b"a" * 49_999
        data = b"\x80\x04}(\x8c\x08segments]\x8c\x05extra" + nested + b"u."
    path = tmp_path / "hostile.pickle"
    path.write_bytes(data)

    with pytest.raises(InputError) as caught:
        scrub_file(path, tmp_path / "public.pickle")

    assert "\n" not in str(caught.value)
    assert "please report" not in str(caught.value)
    assert [item.name for item in tmp_path.iterdir()] == ["hostile.pickle"]


def test_text_made_to_take_long_does_not(tmp_path):
    snapshot = private_snapshot()
    for number, text in enumerate(("a.b-" * 100_000, "/a" * 200_000, "~" * 400_000, "1.2." * 100_000, "\\" * 400_000)):
        snapshot["external_annotations"].append({"name": text + "!", "stage": "START", "device": 0, "time_us": number})

    scrubbed(write(tmp_path / "run.pickle", snapshot), tmp_path)


def test_target_that_cannot_be_written_is_one_clear_line(tmp_path):
    path = write(tmp_path / "run.pickle", private_snapshot())

    with pytest.raises(OutputError, match="cannot be written"):
        scrub_file(path, tmp_path / "nowhere" / "public.pickle")
    with pytest.raises(OutputError, match="is a directory"):
        scrub_file(path, tmp_path)


def test_file_may_be_scrubbed_in_place(tmp_path):
    path = write(tmp_path / "run.pickle", private_snapshot())

    scrub_file(path, path)

    assert USER not in "\n".join(texts(pickle.loads(path.read_bytes()))).lower()


def test_texts_in_a_cycle_are_scrubbed_once():
    snapshot = {"segments": [], "extra": ["private"]}
    snapshot["extra"].append(snapshot["extra"])

    scrub_snapshot(snapshot)

    assert snapshot["extra"][0] == ""
    assert snapshot["extra"][1] is snapshot["extra"]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("/opt/conda/lib/python3.10/site-packages/transformers/trainer.py", "transformers/trainer.py"),
        ("/usr/lib/python3/dist-packages/numpy/core.py", "numpy/core.py"),
        ("/usr/lib/python3.12/threading.py", "threading.py"),
        ("/home/alice/src/pytorch/torch/nn/modules/linear.py", "torch/nn/modules/linear.py"),
        ("/home/alice/fork/nn/modules/linear.py", "nn/modules/linear.py"),
        ("/opt/pytorch/aten/src/ATen/native/Linear.cpp", "aten/src/ATen/native/Linear.cpp"),
        ("/home/alice/project/model/attention.py", "attention.py"),
        ("D:\\work\\alice\\train.py", "train.py"),
        ("../../alice/train.py", "train.py"),
        ("~/train.py", "train.py"),
        ("src/train.py", "src/train.py"),
        ("train.py", "train.py"),
        ("<string>", "<string>"),
        ("??", "??"),
        ("", ""),
    ],
)
def test_file_names(name, short):
    assert PrivateText().file(name)[0] == short


@pytest.mark.parametrize(
    "text",
    [
        "ProfilerStep#12",
        "Optimizer.step#AdamW.step",
        "aten::mm",
        "## step 3 ##",
        "EleutherAI/pythia-70m",
        "transformer.h.0.mlp/fc",
        "tokens/s 3.5",
        "model.com_layer",
        "loss a/b",
    ],
)
def test_text_without_anything_private_stays(text):
    assert PrivateText({"alice": "user"}).text(text) == text


def test_user_names_are_those_of_home_directories():
    paths = [
        "/home/alice/x.py",
        "C:\\Users\\Bob Smith\\y.py",
        "/root/z.py",
        "/home/ubuntu/w.py",
        "/export/home/carol/v",
    ]

    assert user_names_in(paths) == {"alice", "Bob", "carol"}
