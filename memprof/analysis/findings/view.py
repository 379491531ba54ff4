"""What every finding looks at: a device's allocations, which of them are alive at the peak, and what the run was."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from memprof.analysis.findings.finding import Certainty, Evidence, Finding
from memprof.analysis.moment import step_phases
from memprof.categories.category import Category

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from numpy.typing import NDArray

    from memprof.analysis.account import DeviceAccount
    from memprof.analysis.moment import StepPhase
    from memprof.trace.model import Frame

    Mask = NDArray[np.bool_]
    Rows = NDArray[np.int64]

__all__ = ["HALF", "TO_COPY", "View", "owner", "view_of"]

HALF = frozenset({"float16", "bfloat16"})
TO_COPY = "aten::_to_copy"
"""The op behind ``tensor.to`` and autocast's casts."""
NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
FEW = 30_000
"""Allocations up to which blocks are placed as the allocator would, for its rounding; more would take long."""
LIBRARIES = ("torch/", "bitsandbytes/", "accelerate/", "transformers/", "peft/", "lightning/")
"""Parts of file names that are not the user's own code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One device; masks and columns have one element per allocation of the whole trace."""

    account: DeviceAccount
    event: int
    """The peak: first event that reaches the highest allocated bytes."""
    live: Mask
    """Alive at the peak."""
    phases: tuple[StepPhase, ...]
    tells: bool = True
    """Whether findings say what they give back, which takes longer than all the rest."""

    @property
    def peak(self) -> int:
        """Bytes allocated at the peak."""
        return int(self.account.replay.allocated[self.event + 1])

    @property
    def size(self) -> Rows:
        """Bytes of every allocation's whole block."""
        return self.account.replay.allocations.size

    @property
    def labelled(self) -> bool:
        """Whether the capture's labels say what each allocation is."""
        return self.account.classification.by == "labels"

    @property
    def config(self) -> Mapping[str, Any]:
        """Configuration of the run; empty where the file does not have it."""
        config = (self.account.trace.made_by or {}).get("config")
        return config if isinstance(config, dict) else {}

    @property
    def samples(self) -> int | None:
        """Samples of a micro-batch, where the file says."""
        mbs = self.config.get("mbs")
        return mbs if type(mbs) is int and mbs > 0 else None

    def of(self, *categories: Category) -> Mask:
        """Tell which allocations are of one of `categories`."""
        return np.isin(self.account.classification.category, [category.code for category in categories])

    def text(self, column: str, wanted: Collection[str] | Callable[[str], bool]) -> Mask:
        """Tell which allocations have, in a text column of the classification, one of `wanted`."""
        known = self.account.classification
        fits = wanted if callable(wanted) else wanted.__contains__
        table = np.array([fits(text) for text in known.texts] + [False])  # the last element answers for -1
        return np.asarray(table[getattr(known, column)], np.bool_)

    def texts(self, column: str, mask: Mask) -> set[str]:
        """Return the texts that the allocations in `mask` have in a column."""
        known = self.account.classification
        return {known.texts[row] for row in np.unique(getattr(known, column)[mask]).tolist() if row >= 0}

    def get(self, column: str, row: int) -> str | None:
        """Return the text of one allocation."""
        known = self.account.classification
        return known.text(getattr(known, column), row)

    def shape(self, row: int) -> tuple[int, ...] | None:
        """Return the shape of one allocation's tensor, where it is known."""
        text = self.get("shape", row)
        return None if text is None else tuple(int(part) for part in text.split(",") if part)

    @property
    def half_modules(self) -> set[str]:
        """Modules that made something in half precision, in the whole run."""
        return self.texts("module", self.text("dtype", HALF))

    @property
    def quantized_modules(self) -> set[str]:
        """Modules whose own weight is quantized."""
        weights = self.of(Category.WEIGHTS) & self.text("finer", {"quantized"})
        return {owner(name) for name in self.texts("parameter", weights)}

    def born_in(self, phase: str) -> Mask:
        """Tell which allocations were made in a phase of any step."""
        return self.text("phase", {phase})

    def stacks(self, fits: Callable[[tuple[Frame, ...]], bool]) -> Mask:
        """Tell which allocations have a stack, innermost frame first, that `fits` says yes to."""
        table, column = self.account.trace.stacks, self.account.replay.allocations.stack
        used = set(np.unique(column).tolist())
        verdicts = [row in used and fits(table.stack(row)) for row in range(len(table))]
        return np.asarray(np.array([*verdicts, False])[column], np.bool_)  # the last element answers for -1

    def evidence(self, rows: Iterable[int], sizes: Mapping[int, int] | None = None) -> tuple[Evidence, ...]:
        """Group allocations by module (layers together), op and dtype, largest group first.

        Parameters
        ----------
        rows
            Allocations.
        sizes
            What counts of each, where that is not the whole block.

        """
        groups: dict[tuple[str | None, str | None, str | None, str | None], list[int]] = {}
        for row in rows:
            module = self.get("module", row)
            module = NUMBER.sub("*", module) if module is not None else None
            where = None if module else self.caller(row)
            key = (module, self.get("op", row), self.get("dtype", row), where)
            groups.setdefault(key, []).append(int(self.size[row]) if sizes is None else sizes[row])
        found = [
            Evidence(module=module, op=op, dtype=dtype, where=where, size=sum(members), count=len(members))
            for (module, op, dtype, where), members in groups.items()
        ]
        return tuple(sorted(found, key=lambda each: (-each.size, each.module or "", each.op or "")))

    def caller(self, row: int) -> str | None:
        """Return the innermost frame outside the known libraries, if the file has Python stacks."""
        for frame in self.account.trace.stacks.stack(int(self.account.replay.allocations.stack[row])):
            if frame.filename.endswith(".py") and not any(part in frame.filename for part in LIBRARIES):
                return f"{frame.name} ({'/'.join(frame.filename.split('/')[-2:])}:{frame.line})"
        return None

    def finding(
        self,
        mask: Mask,
        *,
        id: str,  # noqa: A002 - the field's name in the JSON
        title: Callable[[int], str],
        category: Category,
        fix: str,
        grows: bool,
        counted: Rows | None = None,
        freed: Rows | None = None,
        whole: Mask | None = None,
        gives_back: Callable[[], int | None] | None = None,
        certainty: Certainty | None = None,
    ) -> Finding | None:
        """Make a finding of those allocations in `mask` that are alive at the peak; None if there are none.

        Parameters
        ----------
        mask
            What the cause makes, in the whole run as far as not `whole` says that.
        title
            Gets the bytes.
        grows
            Whether the bytes grow with the micro-batch.
        counted
            Bytes that count of each allocation, where others would be there without the cause; by default all.
        freed
            Events at which the allocations would be freed without the cause; by default they would not be there.
        whole
            What the cause makes in the whole run, where `mask` is only about the peak.
        gives_back
            Returns what the fix gives back, where that is known better than from these allocations alone.
        certainty
            By default certain with labels and likely without.

        """
        sizes = self.size if counted is None else counted
        live = np.flatnonzero(mask & self.live).tolist()
        evidence = self.evidence(live, {row: int(sizes[row]) for row in live})
        size = sum(each.size for each in evidence)
        if not size:
            return None
        return Finding(
            id=id,
            title=title(size),
            category=category.value,
            size=size,
            per_sample=size / self.samples if grows and self.samples else None,
            certainty=certainty or (Certainty.CERTAIN if self.labelled else Certainty.LIKELY),
            evidence=evidence,
            fix=fix,
            gives_back=self._told(gives_back, mask if whole is None else whole, sizes, freed),
        )

    def _told(self, known: Callable[[], int | None] | None, mask: Mask, sizes: Rows, freed: Rows | None) -> int | None:
        if not self.tells:
            return None
        return known() if known is not None else self.gives_back(mask, sizes, freed=freed)

    def given_back_by(self, fix: str) -> int | None:
        """Return by how much the peak falls with a fix of `memprof.analysis.counterfactual`; None if not known."""
        from memprof.analysis.counterfactual import PREDICTIONS, lives_of  # which looks at views itself

        edited = PREDICTIONS[fix](self) if self.labelled else None
        if edited is None:
            return None
        before = lives_of(self)
        if len(before) > FEW:
            return before.highest() - edited.highest()
        return before.peak() - edited.peak()

    def soon_after(self, count: int) -> Rows:
        """Return for every allocation the event at which the `count`-th one after it is made."""
        born = np.sort(self.account.replay.allocations.born)
        at = np.searchsorted(born, self.account.replay.allocations.born, side="right") + count - 1
        return np.append(born, [len(self.account.device.events)] * (count + 1))[np.minimum(at, len(born))]

    def gives_back(self, mask: Mask, sizes: Rows, *, freed: Rows | None = None) -> int:
        """Return by how much the run's peak falls where allocations are not there, or smaller, or go earlier.

        Parameters
        ----------
        mask
            Which allocations.
        sizes
            By how many bytes each is smaller.
        freed
            Events at which they are freed instead.

        """
        allocations = self.account.replay.allocations
        ends = np.minimum(allocations.freed, freed) if freed is not None else allocations.freed
        change = np.zeros(len(self.account.replay.allocated) + 1, np.int64)
        less = np.where(mask, sizes, 0)
        begins = allocations.born if freed is None else np.maximum(ends, allocations.born)
        np.add.at(change, begins + 1, less)
        np.add.at(change, allocations.freed + 1, -less)
        return self.peak - int((self.account.replay.allocated - np.cumsum(change)[:-1]).max())


def view_of(account: DeviceAccount, *, tells: bool = True) -> View:
    """Look at a device at its peak."""
    allocations = account.replay.allocations
    event = account.replay.peak_event
    live = np.zeros(len(allocations), np.bool_)
    live[allocations.live_at(event)] = True
    return View(account=account, event=event, live=live, phases=step_phases(account), tells=tells)


def owner(parameter: str) -> str:
    """Return the module's part of a parameter's name."""
    return parameter.rpartition(".")[0]
