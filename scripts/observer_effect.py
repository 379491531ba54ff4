"""What recording changes: the same training, in fresh processes, unrecorded, recorded plainly, and with labels.

    python scripts/observer_effect.py cases                          # CASE MODE, one pair a line
    python scripts/observer_effect.py measure CASE MODE FOLDER       # writes FOLDER/CASE.MODE.json
    python scripts/observer_effect.py table FOLDER [NOTE]            # writes docs/observer.md from those

Modes: none (no recording), plain (torch's own ``_record_memory_history``, without memprof), light and full (memprof's
labels). Processes that measure at the same time wait for one another, since only one may use the card.
"""

# ruff: noqa: INP001 - a folder of scripts is no package
from __future__ import annotations

import argparse
import fcntl
import gc
import hashlib
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

MODES = ("none", "plain", "light", "full")
CYCLES, WARM_UP = 16, 4
"""Optimizer cycles of two micro-steps each; the first ones are not timed."""
RECIPES = {
    f"pythia-70m {quant} mbs {mbs}": {"model": "pythia-70m", "quant": quant, "mbs": mbs, "precision": "16-mixed"}
    for quant in ("none", "bnb.nf4")
    for mbs in (1, 16)
}
HUGGING_FACE = "llama peft mbs 4"
AIMS = {"light": 1.1, "full": 1.5}
"""Times the time of a step without."""
CASES = (*RECIPES, HUGGING_FACE)


class Clock:
    """Times cycles; one process at a time."""

    def __init__(self, device: str) -> None:
        self.seconds: list[float] = []
        self._device = device
        self._lock = (Path(tempfile.gettempdir()) / "memprof-observer-effect.lock").open("w", encoding="utf-8")
        self._micro_steps = 0
        self._last = 0.0

    def begin(self) -> None:
        """Wait for the card."""
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def tick(self) -> None:
        """Say that a micro-step ended."""
        import torch

        self._micro_steps += 1
        if self._micro_steps % 2:
            return
        if self._device == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        if self._micro_steps > 2 * WARM_UP:
            self.seconds.append((now - self._last) / 2)
        self._last = now
        if self._micro_steps == 2 * CYCLES:
            fcntl.flock(self._lock, fcntl.LOCK_UN)


def main() -> int:
    """Do what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("cases", "measure", "table"))
    parser.add_argument("words", nargs="*")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    if options.what == "cases":
        for case in CASES:
            for mode in MODES:
                print(f"{case!r} {mode}")  # noqa: T201 - a script's output
    elif options.what == "measure":
        case, mode, folder = options.words
        found = measure(case, mode, options.device)
        name = f"{case.replace(' ', '_')}.{mode}.json"
        (Path(folder) / name).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(json.dumps(found))  # noqa: T201 - a script's output
    else:
        write_table(Path(options.words[0]), " ".join(options.words[1:]))
    return 0


def measure(case: str, mode: str, device: str) -> dict[str, Any]:
    """Run one case in one mode and say what the allocator did, and how long a micro-step took."""
    import torch

    from memprof.capture.devices import CudaDevice
    from memprof.capture.environment import describe_environment

    clock = Clock(device)
    program = hugging_face if case == HUGGING_FACE else recipe
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "run.pickle"
        entries = program(case, mode, device, clock, path)
    found: dict[str, Any] = {"case": case, "mode": mode, "step_seconds": clock.seconds}
    if device == "cuda":
        found["max_allocated_bytes"] = torch.cuda.max_memory_allocated()
        found["max_reserved_bytes"] = torch.cuda.max_memory_reserved()
        card = CudaDevice().describe()
    else:
        card = {"card": "cpu"}
    found["environment"] = describe_environment(card)
    if entries is not None:
        events = [(entry["action"], entry["size"]) for entry in entries]
        found["events"] = len(events)
        found["events_sha256"] = hashlib.sha256(json.dumps(events).encode()).hexdigest()
    return found


def recipe(case: str, mode: str, device: str, clock: Clock, path: Path) -> list[dict[str, Any]] | None:
    """Run memprof's recipe; return the history's entries."""
    import torch

    from memprof.capture import capture
    from memprof.capture.observer import Observer
    from memprof.recipes.lit_gpt_2023 import LitGpt2023

    config = LitGpt2023(**RECIPES[case], seq=1037, cycles=CYCLES)
    clock.begin()
    if mode in ("none", "plain"):
        observer = Observer(lambda _step: clock.tick())
        return directly(mode, lambda: config.run(torch.device(device, 0 if device == "cuda" else None), observer))
    done = []

    def progress(text: str, number: int, _of: int) -> None:
        if text == "training" and number not in done:
            done.append(number)
            clock.tick()

    capture(config, output=path, device=device, labels=mode, progress=progress)
    return entries_of(path)


def hugging_face(_case: str, mode: str, device: str, clock: Clock, path: Path) -> list[dict[str, Any]] | None:
    """Train a Llama of transformers with peft's adapters in a plain loop; return the history's entries."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    from memprof import record

    def train(end_step: Callable[[], None]) -> Iterator[None]:
        torch.manual_seed(0)
        sizes = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8, "num_attention_heads": 8}
        lora = LoraConfig(task_type="CAUSAL_LM", r=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.05)
        model = get_peft_model(LlamaForCausalLM(LlamaConfig(vocab_size=32000, **sizes)), lora).to(device)
        optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad])
        for step in range(2 * CYCLES):
            tokens = torch.randint(0, 32000, (4, 512), device=device)
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
            if step % 2:
                optimizer.step()
                optimizer.zero_grad()
            loss.item()
            end_step()
            clock.tick()
        yield  # everything is alive until the recording has ended

    clock.begin()
    if mode in ("none", "plain"):
        running = train(lambda: None)
        return directly(mode, lambda: (next(running), running))
    with record(path, device=device, labels=mode) as recording:
        running = train(recording.step)
        next(running)
    return entries_of(path)


def directly(mode: str, run: Callable[[], object]) -> list[dict[str, Any]] | None:
    """Run without memprof; under torch's own history where `mode` is plain."""
    import torch

    gc.collect()
    if mode == "none":
        run()
        return None
    torch.cuda.memory._record_memory_history(max_entries=2_000_000, context="alloc", stacks="python")
    alive = run()
    torch.cuda.synchronize()
    entries: list[dict[str, Any]] = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    del alive
    return entries


def entries_of(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a file that was just written."""
    import pickle

    entries: list[dict[str, Any]] = pickle.loads(path.read_bytes())["device_traces"][0]
    return entries


def write_table(folder: Path, note: str) -> None:
    """Put the measurements side by side; `note` is said with them."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for path in sorted(folder.glob("*.json")):
        each = json.loads(path.read_text(encoding="utf-8"))
        found[each["case"], each["mode"]] = each
    lines, events = [], []
    within: dict[tuple[str, str], list[bool]] = {
        pair: [] for pair in (("light", "none"), ("light", "plain"), ("full", "none"), ("full", "plain"))
    }
    for case in CASES:
        times = {mode: statistics.median(found[case, mode]["step_seconds"]) for mode in MODES if (case, mode) in found}
        if "plain" not in times:
            continue
        plain = found[case, "plain"]
        cells = [f"| {case} | {plain['events']:,}"]
        for mode in ("light", "full"):
            other = found.get((case, mode), {"events_sha256": None})["events_sha256"]
            cells.append(
                "not measured" if other is None else "equal" if other == plain["events_sha256"] else "DIFFERENT"
            )
        peaks = {found[case, mode]["max_allocated_bytes"] for mode in times}
        cells.append(f"{plain['max_allocated_bytes']:,}" + ("" if len(peaks) == 1 else f" and other: {peaks}"))
        events.append(" | ".join(cells) + " |")
        cells = [f"| {case}", *(f"{times[mode] * 1000:.1f}" if mode in times else "" for mode in MODES)]
        pairs = [(mode, base) for base in ("none", "plain") for mode in ("light", "full")]
        cells += [f"{times[mode] / times[base]:.2f}" if mode in times else "" for mode, base in pairs]
        lines.append(" | ".join(cells) + " |")
        for (mode, base), met in within.items():
            if mode in times:
                met.append(times[mode] <= AIMS[mode] * times[base])
    environment = next(iter(found.values()))["environment"]
    versions = ", ".join(f"{name} {version}" for name, version in environment["packages"].items())
    count = len(next(iter(found.values()))["step_seconds"])
    page = f"""# What recording changes

Measured by `scripts/observer_effect.py`, each row and mode in a fresh process, on one {environment["card"]}, driver
{environment["driver"]}, torch {environment["torch"]},
{versions}.

## The allocator

The sequence of events (allocations, frees, segments, each with its size, from the building of the model on) under
`--labels light` and `--labels full`, held against torch's own `_record_memory_history` in a process without memprof;
and `torch.cuda.max_memory_allocated()`, which is the same unrecorded, recorded plainly, and with either kind of labels
where one figure stands.

| run | events | light | full | max_memory_allocated |
|---|---|---|---|---|
{chr(10).join(events)}

## Time

Milliseconds of a micro-step, forward to the end of backward with every second one an optimizer step: the median of
{count} pairs after {WARM_UP}, with `torch.cuda.synchronize()` around each. *none* is the same training with nothing
recorded, *plain* with torch's own history with Python stacks.

| run | none | plain | light | full | light / none | full / none | light / plain | full / plain |
|---|---|---|---|---|---|---|---|---|
{chr(10).join(lines)}

{judgement(within)}
The middle half of a row's pairs spans at most {widest(found):.0%} of its median.
{note}
"""
    (ROOT / "docs" / "observer.md").write_text(page, encoding="utf-8")


def judgement(within: dict[tuple[str, str], list[bool]]) -> str:
    """Say how often what is aimed at is reached."""
    parts = [
        f"{mode} labels are within {AIMS[mode]} times {'an unrecorded run' if base == 'none' else 'a plain recording'} "
        f"in {sum(met)} of {len(met)}"
        for (mode, base), met in within.items()
    ]
    return "What is aimed at:\n- " + ";\n- ".join(parts) + ".\n"


def widest(found: dict[tuple[str, str], dict[str, Any]]) -> float:
    """Return the widest distance between the quartiles of a measurement, as a part of its median."""
    spreads = []
    for each in found.values():
        low, middle, high = statistics.quantiles(each["step_seconds"], n=4)
        spreads.append((high - low) / middle)
    return max(spreads)


if __name__ == "__main__":
    sys.exit(main())
