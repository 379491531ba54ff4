"""The frame of an HTML report: one file, everything inline, nothing fetched, every text escaped."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from memprof.errors import UnsupportedError
from memprof.report.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["escaped", "figure", "heading", "note", "page", "paragraph", "plotly_objects", "table"]

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2128; max-width: 1180px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .4rem; }
p { margin: .3rem 0; } .dim { color: #6a737d; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th { color: #6a737d; font-weight: 500; text-align: left; }
td, th { padding: .18rem 1.1rem .18rem 0; vertical-align: top; }
tr { border-bottom: 1px solid #eaecef; } .n { text-align: right; white-space: nowrap; }
tr.sum td { font-weight: 600; } .swatch { display: inline-block; width: .7em; height: .7em; margin-right: .5em; }
"""
# Nothing may be fetched, whatever is in the page.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


# plotly has a button that sends the chart to its makers; the policy would stop it, and it is not offered either.
CONFIG = {"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["sendChartToCloud"]}


def escaped(text: object, limit: int = 300) -> str:
    """Return a text of a file as HTML that shows it and does nothing."""
    return html.escape(clean(str(text), limit))


def heading(text: str) -> str:
    """Return a heading of a section."""
    return f"<h2>{escaped(text)}</h2>"


def paragraph(text: str) -> str:
    """Return a paragraph."""
    return f"<p>{escaped(text, 2000)}</p>"


def note(text: str) -> str:
    """Return a paragraph in the background."""
    return f'<p class="dim">{escaped(text, 2000)}</p>'


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Iterable[int],
    colors: Sequence[str] = (),
    summed: bool = False,
) -> str:
    """Return a table.

    Parameters
    ----------
    header, rows
        Texts, not yet escaped.
    numbers
        The columns that are aligned to the right.
    colors
        The colours of the first rows' swatches.
    summed
        Whether the last row is the sum of the others.

    """
    right = set(numbers)

    def cell(tag: str, column: int, text: str, before: str = "") -> str:
        kind = ' class="n"' if column in right else ""
        return f"<{tag}{kind}>{before}{escaped(text)}</{tag}>"

    lines = ["<div class=scroll><table><tr>", *(cell("th", i, text) for i, text in enumerate(header)), "</tr>"]
    for number, row in enumerate(rows):
        color = colors[number] if number < len(colors) else None
        swatch = "" if color is None else f'<span class="swatch" style="background:{color}"></span>'
        lines.append('<tr class="sum">' if summed and number == len(rows) - 1 else "<tr>")
        lines += [cell("td", i, text, swatch if i == 0 else "") for i, text in enumerate(row)]
        lines.append("</tr>")
    return "".join([*lines, "</table></div>"])


def plotly_objects() -> Any:
    """Return `plotly.graph_objects`.

    Raises
    ------
    UnsupportedError
        If plotly is not installed.

    """
    try:
        import plotly.graph_objects as objects
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"an HTML report needs {error.name}, which is not installed: pip install plotly"
        ) from None
    return objects


def figure(drawn: Any, *, height: int) -> str:
    """Return a plotly figure as HTML, without the library, which the page has once."""
    drawn.update_layout(
        height=height,
        template="plotly_white",
        margin={"l": 70, "r": 20, "t": 45, "b": 50},
        legend={"orientation": "h", "y": -0.18},
        hoverlabel={"namelength": -1},
    )
    text: str = drawn.to_html(full_html=False, include_plotlyjs=False, config=CONFIG)
    return text


def page(title: str, parts: Iterable[str]) -> str:
    """Return the whole page: `parts` are HTML."""
    from plotly.offline import get_plotlyjs

    return "\n".join(
        [
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{escaped(title)}</title><style>{STYLE}</style>",
            f"<script>{get_plotlyjs()}</script></head><body>",
            f"<h1>{escaped(title)}</h1>",
            *parts,
            "</body></html>",
            "",
        ]
    )
