"""The simulated device as programs see it: torch.cuda, out of memory, host values, refusals."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from children import run_child, simulate

pytestmark = pytest.mark.torch


def test_torch_cuda_answers_from_the_simulation() -> None:
    answers = simulate("""
        x = torch.zeros(1000, device="cuda")
        free, total = torch.cuda.mem_get_info()
        report(available=torch.cuda.is_available(), count=torch.cuda.device_count(), device=str(x.device),
               name=torch.cuda.get_device_name(), capability=torch.cuda.get_device_capability(),
               bf16=torch.cuda.is_bf16_supported(), current=torch.cuda.current_device(), used=total - free,
               properties=torch.cuda.get_device_properties(0).multi_processor_count,
               allocated=torch.cuda.memory_allocated(), reserved=torch.cuda.memory_reserved(),
               stats=torch.cuda.memory_stats()["allocated_bytes.all.peak"], rng=len(torch.cuda.get_rng_state()))
    """)
    assert answers == {
        "available": True,
        "count": 1,
        "device": "cuda:0",
        "name": "NVIDIA H200",
        "capability": [9, 0],
        "bf16": True,
        "current": 0,
        "used": (2 << 20) + 804_000_000,
        "properties": 132,
        "allocated": 4096,
        "reserved": 2 << 20,
        "stats": 4096,
        "rng": 16,
    }


def test_peaks_cache_streams_and_events() -> None:
    answers = simulate("""
        x = torch.empty(50 << 20, dtype=torch.uint8, device="cuda")
        del x
        before = torch.cuda.max_memory_allocated()
        torch.cuda.empty_cache()
        reserved = torch.cuda.memory_reserved()
        torch.cuda.reset_peak_memory_stats()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            y = torch.empty(2 << 20, dtype=torch.uint8, device="cuda")
            inside = torch.cuda.current_stream() == stream
        y.record_stream(torch.cuda.current_stream())
        del y
        pending = [block["state"] for segment in torch.cuda.memory._snapshot()["segments"]
                   for block in segment["blocks"]]
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record(); end.record(); torch.cuda.synchronize()
        report(before=before, reserved=reserved, inside=inside, pending=pending, time=start.elapsed_time(end) >= 0,
               outside=torch.cuda.current_stream().cuda_stream)
    """)
    assert answers["before"] == 50 << 20
    assert answers["reserved"] == 0
    assert answers["inside"] is True
    assert "active_pending_free" in answers["pending"]
    assert answers["time"] is True
    assert answers["outside"] == 0


def test_history_metadata_and_annotations() -> None:
    answers = simulate("""
        torch.cuda.memory._record_memory_history(max_entries=1000, stacks="python", global_record_annotations=True)
        torch.cuda.memory._set_memory_metadata("here")
        with torch.profiler.record_function("part"):
            x = torch.zeros(10, device="cuda")
        torch.cuda.memory._set_memory_metadata("")
        y = torch.zeros(10, device="cuda")
        snapshot = torch.cuda.memory._snapshot()
        torch.cuda.memory._record_memory_history(enabled=None)
        report(actions=[(e["action"], e["size"], e["user_metadata"]) for e in snapshot["device_traces"][0]],
               stages=[(a["stage"], a["name"]) for a in snapshot["external_annotations"]],
               expandable=snapshot["allocator_settings"]["expandable_segments"],
               after=len(torch.cuda.memory._snapshot()["device_traces"][0]))
    """)
    assert answers["actions"] == [["segment_alloc", 2 << 20, "here"], ["alloc", 40, "here"], ["alloc", 40, ""]]
    assert answers["stages"] == [["START", "part"], ["END", "part"]]
    assert answers["expandable"] is False
    assert answers["after"] == 0


def test_out_of_memory_is_torchs_own() -> None:
    answers = simulate("""
        held = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(10)]
        held.pop()
        torch.cuda.set_per_process_memory_fraction(0.1)
        try:
            torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            message = str(error)
        stats = torch.cuda.memory_stats()
        report(message=message, ooms=stats["num_ooms"], retries=stats["num_alloc_retries"],
               reserved=torch.cuda.memory_reserved(), is_cuda=isinstance(torch.cuda.OutOfMemoryError(), RuntimeError))
    """)
    # the cached block went back to the device before torch gave up
    assert answers["reserved"] == 9 << 30
    assert (answers["ooms"], answers["retries"]) == (1, 1)
    assert answers["message"].startswith(
        "CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which "
        "130.05 GiB is free. Including non-PyTorch memory, this process has 9.75 GiB memory in use. 13.98 GiB allowed; "
        "Of the allocated memory 9.00 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated."
    )


def test_host_values_take_the_true_branch() -> None:
    answers = simulate("""
        mask = torch.ones(2, 8, dtype=torch.bool, device="cuda")
        mask[:, 5:] = False
        ids = torch.arange(10, device="cuda")
        scale = torch.full((), 3.0, device="cuda") * 2
        big = torch.randn(100, 100, device="cuda")
        unknown, caveats = big.sum().item(), [(c.kind, c.what) for c in device.caveats]
        empty, linalg = {}, torch.linalg
        for shape in ((0, 4, 4), (3, 0, 0), (0, 0)):
            x = torch.zeros(shape, device="cuda")
            y = torch.zeros(*shape[:-1], 2, device="cuda")
            factors = linalg.lu_factor(x)
            results = [linalg.inv(x), linalg.solve(x, y), linalg.lu_solve(*factors, y), linalg.det(x),
                       linalg.cholesky(x), *linalg.qr(x), linalg.eigvalsh(x), linalg.svdvals(x), linalg.slogdet(x)[1]]
            empty[str(shape)] = [list(each.shape) for each in results]
        def lists(place):
            whole, half, wide = ([torch.ones(size, dtype=kind, device=place)] for size, kind in (
                (3, torch.int64), (3, torch.float16), ((), torch.float64)))
            made = [torch._foreach_mul(whole, half), torch._foreach_add(whole, 0.5), torch._foreach_div(whole, whole),
                    torch._foreach_sqrt(whole), torch._foreach_abs(whole), torch._foreach_mul(wide, half),
                    torch._foreach_add(whole, whole, alpha=2), torch._foreach_addcmul(whole, half, half, 0.5)]
            return [(str(each.dtype), list(each.shape)) for (each,) in made]
        none = torch.zeros(0, 8, device="cuda")
        wide = [none.abs(), torch.add(none, 1, out=torch.empty(0, device="cuda")), none[None].mT.abs()]
        report(empty=empty, lists=[lists("cuda"), lists("cpu")], wide=[list(each.shape) for each in wide],
               unknown=unknown, caveats=caveats,
               all=bool(mask.all()), some=bool(mask.any()), count=int(mask.sum()), where=mask.nonzero().shape[0],
               picked=ids[ids > 6].tolist(), scale=scale.item())
    """)
    # nor do empty batches, and matrices without rows, stop anything
    for shape in ((0, 4, 4), (3, 0, 0), (0, 0)):
        square, right, vector, batch = list(shape), [*shape[:-1], 2], list(shape[:-1]), list(shape[:-2])
        wanted = [square, right, right, batch, square, square, square, vector, vector, batch]
        assert answers["empty"][str(shape)] == wanted
    # lists of tensors give what the CPU gives, in another dtype than the first list's too
    assert answers["lists"][0] == answers["lists"][1]
    assert answers["wide"] == [[0, 8], [0, 8], [1, 8, 0]]
    assert answers["all"] is False
    assert answers["some"] is True
    assert answers["count"] == answers["where"] == 10
    assert answers["picked"] == [7, 8, 9]
    assert answers["scale"] == 6.0
    assert answers["unknown"] == 0.0
    assert answers["caveats"] == [["value", "the value of a float32 scalar is taken as 0.0"]]


def test_large_models_take_little_host_memory() -> None:
    answers = simulate("""
        model = torch.nn.Sequential(*[torch.nn.Linear(8192, 8192) for _ in range(16)])
        for layer in model:
            torch.nn.init.trunc_normal_(layer.weight, std=0.02)
        model = model.to(torch.bfloat16).to("cuda")
        model(torch.zeros(4, 8192, dtype=torch.bfloat16, device="cuda")).sum().backward()
        # VmHWM, not getrusage: that counts from the size of the process that started this one.
        status = dict(line.split(":", 1) for line in open("/proc/self/status"))
        report(peak=int(status["VmHWM"].split()[0]) * 1024, used=torch.cuda.memory_allocated())
    """)
    # given 4.3 GB of weights in float32 on the host, and 4.3 GB of weights and gradients on the device
    assert answers["used"] > 4 << 30
    assert answers["peak"] < 1 << 30


def test_recipes_ask_for_no_host_memory_for_random_weights() -> None:
    found = simulate("""
        from memprof.recipes import lit_gpt_2023

        lit_gpt_2023.available_memory = lambda: 1_000_000
        lit_gpt_2023.LitGpt2023(model="pythia-14m", seq=8, mbs=1).check(torch.device("cuda"))
        report(checked=True)
    """)
    assert found == {"checked": True}


def test_small_host_tensors_are_computed_as_ever() -> None:
    answers = simulate("""
        torch.manual_seed(0)
        x = torch.randn(100)
        y = torch.full((1 << 20,), 2.0)
        y.mul_(3)
        report(spread=float(x.std()), product=float(y.mean()), copied=bool((y.clone() == 6).all()))
    """)
    assert 0.5 < answers["spread"] < 2
    assert answers["product"] == 6.0
    assert answers["copied"] is True


def test_what_cannot_be_simulated_is_named() -> None:
    # given an op without a shape kernel
    result = run_child('torch.cholesky_solve(torch.eye(2, device="cuda"), torch.eye(2, device="cuda"))\nreport()')
    # when it has one after all the run goes on; a library's own op without one is refused by name
    assert result.returncode == 0 or "cannot be simulated" in result.stderr
    refused = run_child("""
        try:
            print(torch.linalg.lstsq(torch.zeros(5, 3, device="cuda"), torch.zeros(5, 2, device="cuda")))
        except Exception as error:
            print(error)
        library = torch.library.Library("mine", "DEF")
        library.define("op(Tensor x) -> Tensor")
        torch.ops.mine.op(torch.zeros(2, device="cuda"))
    """)
    assert "aten::linalg_lstsq.out cannot be simulated" in refused.stdout  # torch makes its outputs empty first
    assert refused.returncode == 1
    assert "UnsupportedError: mine::op cannot be simulated" in refused.stderr


def test_one_device_to_a_process() -> None:
    result = run_child("install('h200')")
    assert result.returncode == 1
    assert "this process has a simulated device already" in result.stderr


def test_unknown_card_lists_those_there_are() -> None:
    result = run_child("", card="voodoo2")
    assert result.returncode == 1
    assert "card 'voodoo2' is not known; choose one of" in result.stderr


def test_live_tensors_at_exit_do_no_harm() -> None:
    result = run_child("""
        import atexit
        model = torch.nn.Linear(64, 64, device="cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(torch.ones(2, 64, device="cuda")).float().sum()
        kept = {"loss": loss}
        atexit.register(lambda: kept)
    """)
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stderr == ""


def test_statistics_add_up() -> None:
    answers = simulate("""
        small = torch.empty(1000, dtype=torch.uint8, device="cuda")
        large = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
        del large
        stats = torch.cuda.memory_stats()
        summary = torch.cuda.memory_summary()
        report(summary="Allocated memory" in summary, **{key.replace(".", "_"): stats[key] for key in (
            "allocated_bytes.all.peak", "allocated_bytes.large_pool.allocated", "allocated_bytes.large_pool.freed",
            "allocated_bytes.small_pool.current", "requested_bytes.small_pool.current", "segment.all.current",
            "reserved_bytes.large_pool.current", "inactive_split_bytes.all.current", "allocation.all.allocated")})
    """)
    assert answers == {
        "summary": True,
        "allocated_bytes_all_peak": 1024 + (30 << 20),
        "allocated_bytes_large_pool_allocated": 30 << 20,
        "allocated_bytes_large_pool_freed": 30 << 20,
        "allocated_bytes_small_pool_current": 1024,
        "requested_bytes_small_pool_current": 1000,
        "segment_all_current": 2,
        "reserved_bytes_large_pool_current": 30 << 20,
        "inactive_split_bytes_all_current": (2 << 20) - 1024,
        "allocation_all_allocated": 2,
    }


def test_checkpoints_are_loaded_onto_the_device(tmp_path: Path) -> None:
    answers = simulate(f"""
        path = {str(tmp_path / "model.pt")!r}
        model = torch.nn.Linear(256, 256, device="cuda")
        torch.save(model.state_dict(), path)
        before = torch.cuda.memory_allocated()
        state = torch.load(path, map_location="cuda")
        report(device=str(state["weight"].device), grown=torch.cuda.memory_allocated() - before)
    """)
    assert answers == {"device": "cuda:0", "grown": 256 * 256 * 4 + 1024}


def test_compiled_functions_refuse_when_they_are_called() -> None:
    result = run_child("""
        @torch.compile
        def double(x):
            return 2 * x
        print("decorated")
        double(torch.zeros(2, device="cuda"))
    """)
    assert result.returncode == 1
    assert "decorated" in result.stdout
    assert "UnsupportedError: torch.compile cannot be simulated" in result.stderr


def test_freed_while_the_allocator_works() -> None:
    # given garbage in cycles, collected at the smallest excuse
    answers = simulate("""
        import gc
        gc.set_threshold(1, 1, 1)
        class Node:
            def __init__(self):
                self.me, self.tensor = self, torch.empty(1 << 20, device="cuda")
        for _ in range(300):
            Node()
        torch.cuda.memory._record_memory_history()
        for _ in range(300):
            Node()
        torch.cuda.memory._snapshot()
        gc.collect()
        report(left=torch.cuda.memory_allocated(), reserved=torch.cuda.memory_reserved())
    """)
    assert answers["left"] == 0
    assert answers["reserved"] > 0


def test_exceptions_pass_through_frames_that_hold_tensors() -> None:
    answers = simulate("""
        caught, apart = [], []
        on, off = (torch.zeros(3, 3, device=place) for place in ("cuda", "cpu"))
        zeros = torch.zeros(3, dtype=torch.long)
        linear = torch.nn.Linear(3, 3)
        for mixed in (
            lambda: linear(on), lambda: on @ off, lambda: torch.bmm(off[None], on[None]),
            lambda: torch.dot(on[0], off[0]),
            lambda: torch.nn.functional.layer_norm(on, (3,), off[0]), lambda: torch.cat([on, off]),
            lambda: torch.nn.functional.embedding(zeros, on), lambda: torch.nn.functional.cross_entropy(on, zeros),
            lambda: on.gather(0, zeros[None]), lambda: on.scatter(0, zeros[None], 1.0),
            lambda: torch.nn.functional.conv1d(on, off[..., None]),
        ):
            try:
                apart.append(str(mixed().device))
            except RuntimeError as error:
                apart.append(str(error))
        fine = (on[zeros] + torch.tensor(2.0)).copy_(off).device.type
        def fill():
            held = [torch.ones(1000, device="cuda") for _ in range(3)]
            return [torch.zeros(1000, device="cuda") for i in range(4) if 1 / (2 - i)] + held
        for _ in range(3):
            try:
                fill()
            except ZeroDivisionError as error:
                caught.append(str(error))
        torch.cuda.set_per_process_memory_fraction(0.01)
        try:
            [torch.empty(1 << 28, dtype=torch.uint8, device="cuda") for _ in range(100)]
        except torch.OutOfMemoryError:
            caught.append("out of memory")
        del on
        report(caught=caught, left=torch.cuda.memory_allocated(), apart=apart, fine=fine)
    """)
    # a tensor that was left on the CPU among them is named as torch's own wrappers name it
    wanted = [
        ("mat1", "cuda:0", "cpu", "addmm"),
        ("mat2", "cpu", "cuda:0", "mm"),
        ("mat2", "cuda:0", "cpu", "bmm"),
        ("tensor", "cpu", "cuda:0", "_dot"),
        ("weight", "cpu", "cuda:0", "_native_layer_norm"),
        ("tensors", "cpu", "cuda:0", "cat"),
        ("index", "cpu", "cuda:0", "_index_select"),
        ("target", "cpu", "cuda:0", "nll_loss_forward"),
        ("index", "cpu", "cuda:0", "gather"),
        ("index", "cpu", "cuda:0", "scatter_value"),
    ]
    assert answers["apart"] == [
        f"Expected all tensors to be on the same device, but got {name} is on {place}, different from other tensors on "
        f"{others} (when checking argument in method wrapper_CUDA_{method})"
        for name, place, others, method in wanted
    ] + ["Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same"]
    assert answers["fine"] == "cuda"  # indexing, numbers and copies take tensors of the CPU
    assert answers["caught"] == ["division by zero"] * 3 + ["out of memory"]
    assert answers["left"] == 0
