"""What every recipe is told: model, adapters, batch and length, with the checks that they share."""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memprof.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["CommonSettings", "one_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonSettings:
    """Fields of a recipe that make its runs comparable with those of the others."""

    model: str = "pythia-70m"
    """Name that litgpt has a configuration for."""
    quant: str = "none"
    precision: str = "bf16-true"
    optimizer: str = "adamw"
    mbs: int = 1
    """Samples of a micro-batch."""
    seq: int = 1037
    """Tokens of a sample."""
    steps: int = 2
    """Micro-steps of an optimizer cycle: all but the last accumulate gradients, the last ends in ``optimizer.step``."""
    cycles: int = 1
    """Optimizer cycles; from the second on the optimizer's state is there from the start."""
    lora_r: int = 8
    lora_alpha: int = 16
    lora_dropout: float = 0.05
    lora_query: bool = True
    lora_key: bool = False
    lora_value: bool = True
    lora_projection: bool = False
    lora_mlp: bool = False
    lora_head: bool = False
    learning_rate: float = 3e-4
    weight_decay: float = 0.01
    checkpoint_dir: str | None = None

    @property
    def micro_steps(self) -> int:
        """Steps of the whole run."""
        return self.steps * self.cycles

    def settings(self) -> dict[str, Any]:
        """Return every field; of paths the last part only."""
        values = asdict(self)
        if values["checkpoint_dir"] is not None:
            values["checkpoint_dir"] = Path(values["checkpoint_dir"]).name
        return values

    def lora(self) -> dict[str, Any]:
        """Return the fields that are about the adapters, as litgpt's configuration takes them."""
        return {name: value for name, value in asdict(self).items() if name.startswith("lora_")}

    def check_common(self, *, quantizations: Iterable[str], precisions: Iterable[str]) -> None:
        """Check what holds for every recipe.

        Raises
        ------
        UsageError
            If a value is unknown or out of range; says which option and what is possible.
        """
        one_of("--quant", self.quant, tuple(quantizations))
        one_of("--precision", self.precision, tuple(precisions))
        for option in ("mbs", "steps", "cycles", "lora_r"):
            if getattr(self, option) < 1:
                raise UsageError(f"--{option.replace('_', '-')} {getattr(self, option)}: must be at least 1")
        if self.seq < 2:
            raise UsageError(f"--seq {self.seq}: must be at least 2, the loss needs a next token")
        if not 0 <= self.lora_dropout < 1:
            raise UsageError(f"--lora-dropout {self.lora_dropout}: must be in [0, 1)")


def one_of(option: str, value: str, known: tuple[str, ...]) -> None:
    """Raise `UsageError` if `value` is not in `known`; say what is closest."""
    if value not in known:
        close = difflib.get_close_matches(value, known, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(f"{option} {value}: unknown; it can be {', '.join(known)}{hint}")
