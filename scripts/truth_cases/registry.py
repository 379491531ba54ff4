"""Cases by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Case = Callable[[], Any]

__all__ = ["registry"]


def registry() -> tuple[dict[str, Case], Callable[[Case], Case]]:
    """Return a table of cases and the decorator that registers one under its function's name."""
    cases: dict[str, Case] = {}

    def case(function: Case) -> Case:
        cases[function.__name__] = function
        return function

    return cases, case
