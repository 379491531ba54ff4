"""What cuDNN's recurrent networks take: weights in one buffer, a workspace, and what training keeps for later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from memprof.simulate.device import Device

__all__ = ["Network", "Space", "dropout_state_bytes", "space"]

RELU, TANH, LSTM, GRU = range(4)
"""cuDNN's modes (``cudnnRNNMode_t``)."""
_GATES = {RELU: 1, TANH: 1, LSTM: 4, GRU: 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Everything of a recurrent network but the batch."""

    mode: int
    inputs: int
    hidden: int
    projected: int
    """Width that the hidden state is projected to, 0 for none."""
    layers: int
    directions: int
    item: int
    """Bytes of an element."""

    @classmethod
    def of(
        cls, source: torch.Tensor, mode: int, hidden: int, proj: int, layers: int, *, bidirectional: bool
    ) -> Network:
        """Return the network that works on `source`."""
        return cls(
            mode=mode,
            inputs=source.size(-1),
            hidden=hidden,
            projected=proj,
            layers=layers,
            directions=2 if bidirectional else 1,
            item=source.element_size(),
        )

    @property
    def gates(self) -> int:
        """Return how many products there are for each hidden value and side."""
        return _GATES[self.mode]

    @property
    def weights(self) -> int:
        """Return the elements of cuDNN's weight buffer; it has biases whether torch has them or not."""
        total = 0
        given = self.projected or self.hidden
        for layer in range(self.layers):
            inputs = given * self.directions if layer else self.inputs
            each = self.gates * self.hidden * (inputs + given + 2) + self.projected * self.hidden
            total += self.directions * each
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Bytes that one call takes."""

    workspace: int
    reserve: int


def dropout_state_bytes(multiprocessors: int) -> int:
    """Return the bytes of the random numbers' state."""
    return multiprocessors * 2048 * 16


def space(
    device: Device,
    network: Network,
    *,
    steps: int,
    batch: int,
    rows: int,
    dropped: bool,
    packed: bool,
    train: bool,
    backward: bool,
) -> Space:
    """Return what a call takes, `rows` being steps times batch, or less where sequences are packed."""
    del steps, batch, dropped, packed, train, backward
    each = rows * network.hidden * network.gates * network.layers * network.directions * network.item
    device.caveats.add("library", "cuDNN's workspace for a recurrent network is an estimate", 2 * each)
    return Space(workspace=each, reserve=each)
