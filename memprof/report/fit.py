"""What fits, for people: a table for each card, and the answer in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text

from memprof.analysis.fit_search_need import Answer
from memprof.report.caveats import caveat_line
from memprof.report.fit_progress import ANSWERS
from memprof.report.text import clean
from memprof.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from memprof.analysis.fit_search import CardFit

__all__ = ["answer_sentence", "fit_report"]

NAMES = {"mbs": "micro-batch size", "seq": "sequence length"}


def fit_report(fits: Sequence[CardFit], *, over: str, config: Mapping[str, Any], torch: str, alloc_conf: str) -> Lines:
    """Render what fits.

    Parameters
    ----------
    fits
        The answer for each card.
    over
        What was searched for: mbs or seq.
    config
        What was run, but for that.
    torch
        Version that was simulated.
    alloc_conf
        What ``PYTORCH_ALLOC_CONF`` said.

    """
    facts = [str(config[name]) for name in ("model", "precision", "quant")]
    facts += [f"{name} {config[name]}" for name in ("mbs", "seq") if name in config]
    facts.append(f"{config['cycles']} optimizer cycles of {config['steps']} micro-steps")
    parts: list[RenderableType] = [
        Text(f"largest {NAMES[over]} that fits: {clean(', '.join(facts))}", style="bold"),
        Text(f"simulated with torch {clean(torch)}, no GPU was used; {clean(_conf(alloc_conf))}", style="dim"),
    ]
    for fit in fits:
        parts += [Text(), *_card_parts(fit, over)]
    if len(fits) > 1:
        parts += [Text(), _summary(fits, over)]
    return Lines(*parts)


def answer_sentence(fit: CardFit, over: str) -> str:
    """Say what fits, how surely, and what does not."""
    found = fit.found
    if found.fits is None:
        parts = [f"{over} {found.first} does not fit with memory to spare"]
    else:
        best = found.needs[found.fits]
        parts = [f"{over} {found.fits} fits, with {format_bytes(best.margin)} to spare"]
        if best.uncertain:
            parts[0] += f" where {format_bytes(best.uncertain)} are uncertain"
    if found.tight is not None:
        parts.append(f"{over} {found.tight} at worst by giving cached memory back to the driver, which costs time")
    if found.close:
        low, high = found.close
        parts.append(f"{over} {low if low == high else f'{low} to {high}'} too close to say")
    if found.fails is not None:
        parts.append(f"{over} {found.fails} does not fit")
    if found.limit is not None:
        parts.append(f"nothing larger than {over} {found.limit} was looked at ({fit.limited_by})")
    return "; ".join(parts)


def _conf(alloc_conf: str) -> str:
    return f"PYTORCH_ALLOC_CONF {alloc_conf}" if alloc_conf else "torch's default allocator settings"


def _card_parts(fit: CardFit, over: str) -> list[RenderableType]:
    title = Text(clean(fit.name), style="bold")
    if not fit.measured:
        title.append("  never measured: the answer is a bound", style="yellow")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(over, justify="right")
    for column in ("allocated", "reserved", "margin"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("fits")
    for at, need in fit.found.needs.items():
        word, style = ANSWERS[need.answer]
        if need.answer is Answer.CLOSE:
            word += ", more likely yes" if need.expected else ", more likely no"
        reserved = format_bytes(need.reserved)
        low, high = (format_bytes(each) for each in need.reserved_range)
        table.add_row(
            str(at),
            format_bytes(need.allocated),
            reserved if low == high else f"{low} to {high}",
            format_bytes(need.margin),
            Text(word, style=style),
        )
    known = [caveat for caveat in fit.caveats if caveat["bytes"]]
    return [
        title,
        Text(
            f"limit {format_bytes(fit.capacity)} ({fit.capacity:,} B): {format_bytes(fit.total)} of the card less "
            f"{format_bytes(fit.outside)} outside the allocator"
        ),
        table,
        Text(answer_sentence(fit, over), style="bold"),
        *(caveat_line(str(caveat["what"]), int(caveat["bytes"])) for caveat in known),
    ]


def _summary(fits: Sequence[CardFit], over: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("card")
    table.add_column("limit", justify="right", no_wrap=True)
    table.add_column(f"{over} that fits", justify="right")
    table.add_column("to spare", justify="right", no_wrap=True)
    table.add_column("tight", justify="right")
    table.add_column("too close to say", justify="right")
    table.add_column("does not fit", justify="right")
    table.add_column("")
    for fit in fits:
        found = fit.found
        table.add_row(
            clean(fit.name),
            format_bytes(fit.capacity),
            "none" if found.fits is None else str(found.fits),
            "" if found.fits is None else format_bytes(found.needs[found.fits].margin),
            "" if found.tight is None else str(found.tight),
            "" if found.close is None else "-".join(str(size) for size in dict.fromkeys(found.close)),
            "" if found.fails is None else str(found.fails),
            "measured" if fit.measured else "a bound: never measured",
        )
    return table
