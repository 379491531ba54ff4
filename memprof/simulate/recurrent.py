"""What cuDNN's recurrent networks take: weights in one buffer, a workspace, and what training keeps for later.

cuDNN says how much it wants (``cudnnGetRNNTempSpaceSizes``); its library is closed. The sums here are fitted to what it
asked for on an H200 (cuDNN of torch 2.11+cu130) in 1,161 networks of ``tests/simulate/recurrent_probes.py`` and 2,500
others, whose sizes they give to the byte; but for 11 in float16 with a batch of 8, where 1 MiB at most is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from memprof.simulate.cards import Card

__all__ = ["Call", "Network", "Space", "dropout_state_bytes"]

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
    dtype: torch.dtype

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
            dtype=source.dtype,
        )

    @property
    def gates(self) -> int:
        """Return how many products there are for each hidden value and side."""
        return _GATES[self.mode]

    @property
    def given(self) -> int:
        """Return the width of the hidden state that a direction gives."""
        return self.projected or self.hidden

    @property
    def matrices(self) -> int:
        """Return the elements of all matrices."""
        total = 0
        for layer in range(self.layers):
            inputs = self.given * self.directions if layer else self.inputs
            total += self.gates * self.hidden * (inputs + self.given) + self.projected * self.hidden
        return total * self.directions

    @property
    def weights(self) -> int:
        """Return the elements of cuDNN's weight buffer; it has biases whether torch has them or not."""
        return self.matrices + 2 * self.gates * self.hidden * self.layers * self.directions


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Bytes that one call takes."""

    workspace: int
    reserve: int


def dropout_state_bytes(multiprocessors: int) -> int:
    """Return the bytes of the random numbers' state."""
    return multiprocessors * 2048 * 24


_STREAM_BYTES = 8 << 20
"""Of the workspace, for each layer and direction."""
_STATES = {RELU: 1, TANH: 1, LSTM: 2, GRU: 1}
_KEPT = {RELU: 1, TANH: 1, LSTM: 5, GRU: 6}
"""Values that training keeps for each hidden value of a layer."""
_FORWARD = {
    (LSTM, 1): (4, 6),
    (LSTM, 2): (12, 16),
    (GRU, 1): (3, 3),
    (GRU, 2): (10, 10),
    (TANH, 1): (1, 1),
    (TANH, 2): (6, 6),
}
"""By mode and directions: how often the workspace has an output of one direction, and the state of all layers."""
_BACKWARD = {
    (LSTM, 1): (1, 3),
    (LSTM, 2): (2, 10),
    (GRU, 1): (1, 1),
    (GRU, 2): (2, 6),
    (TANH, 1): (1, 1),
    (TANH, 2): (2, 6),
}
_SMALL_FORWARD = {
    (LSTM, 1): (16, -2),
    (LSTM, 2): (16, -6),
    (GRU, 1): (12, -1),
    (GRU, 2): (12, -4),
    (TANH, 1): (4, 1),
    (TANH, 2): (4, 0),
}
"""What the persistent kernels have beyond `_FORWARD`."""
_SMALL_BACKWARD = {
    (LSTM, 1): (12, 1),
    (LSTM, 2): (12, 0),
    (GRU, 1): (14, 1),
    (GRU, 2): (14, 0),
    (TANH, 1): (9, 1),
    (TANH, 2): (9, 0),
}


_GROUPS = ((1, 32), (8, 16), (16, 8), (127, 4), (1 << 62, 2))
"""Largest batch, and steps in a group: fitted to 920 recorded networks; between 96 and 128 the limit is not known."""
_MANY_STEPS = 128
"""Steps from which groups are larger; it is between 101 and 128."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One use of a network on a batch."""

    network: Network
    card: Card
    steps: int
    batch: int
    rows: int
    """Steps times batch, or less where sequences are packed."""
    dropped: bool
    packed: bool

    def space(self, *, train: bool, backward: bool = False) -> Space:
        """Return what the call wants; in training the workspace is that of the pass that wants more.

        `backward` tells that the pass back is what it is asked for, which may use other kernels.
        """
        persistent = self._persistent(backward=backward)
        wanted = self._forward(persistent=persistent, train=train)
        if train:
            wanted = max(wanted, self._backward(persistent=persistent))
        return Space(workspace=self._common + wanted, reserve=self._reserve if train else 0)

    def _bytes(self, *parts: int) -> int:
        """Return parts, in elements, each of which begins on a multiple of 32 bytes."""
        return sum(_rounded(part * self.network.dtype.itemsize) for part in parts)

    @property
    def _kind(self) -> tuple[int, int]:
        return (TANH if self.network.mode == RELU else self.network.mode), self.network.directions

    @property
    def _hidden_rows(self) -> int:
        return self.rows * self.network.hidden

    @property
    def _states(self) -> tuple[int, ...]:
        """Return the elements of one side's states: of a hidden state, and of a cell's state where there is one."""
        network = self.network
        widths = (network.given, network.hidden)[: _STATES[network.mode]]
        return tuple(self.batch * network.layers * network.directions * width for width in widths)

    @property
    def _common(self) -> int:
        network = self.network
        lengths = 0 if self.packed else _rounded(8 * self.batch)
        return _STREAM_BYTES * network.layers * network.directions + self._bytes(network.matrices) + lengths + 256

    def _persistent(self, *, backward: bool) -> bool:
        """Tell whether a kernel is used that keeps weights on the chip (``get_algo``, ``cudnn/RNN.cpp``)."""
        network = self.network
        if network.projected or self.packed or network.dtype not in {torch.float32, torch.float16}:
            return False
        plain = network.mode in {RELU, TANH}
        if network.hidden <= ((256 if plain else 128) if backward else (384 if plain else 192)):
            return True
        alone = network.layers == 1 and network.directions == 1 and network.hidden <= 1024
        whole = network.hidden % 128 == 0 and network.inputs % 128 == 0
        return network.dtype == torch.float16 and alone and whole and self._suits_card()

    def _suits_card(self) -> bool:
        """Tell ``use_persist_device_heuristics``."""
        major, minor = self.card.capability
        mode, batch = self.network.mode, self.batch
        if major == 7:  # Volta
            times = ((40, 128), (20, 96), (10, 32))
            fits = any(self.steps >= steps and batch <= most for steps, most in times)
            return minor != 5 and fits and (batch == 8 or (batch % 16 == 0 and batch not in {80, 112}))
        if major < 8 or minor == 6 or self.card.multiprocessors < 98 or mode == GRU:  # the source's
            return False
        return batch % 8 == 0 and batch <= 128 and (mode == LSTM or batch < 96 or self.network.hidden < 896)

    def _forward(self, *, persistent: bool, train: bool) -> int:
        network, ways = self.network, self.network.directions
        outputs, states = _FORWARD[self._kind]
        if persistent:
            more = _SMALL_FORWARD[self._kind]
            outputs, states = outputs + more[0], states + more[1]
        outputs += ways if network.projected else 0
        masked = self._hidden_rows if train and self.dropped and ways == 1 else 0
        wanted = self._bytes(outputs * self._hidden_rows, masked, states * self.batch * network.hidden * network.layers)
        if not self.packed:
            wanted += self._bytes(self.rows * network.inputs, self.rows * network.given * ways, *(self._states * 2))
        return wanted

    def _backward(self, *, persistent: bool) -> int:
        network, ways = self.network, self.network.directions
        outputs, states = _BACKWARD[self._kind]
        outputs += ways if network.projected else 0
        between = self._hidden_rows * ways if network.layers > 1 else 0
        if persistent:
            more = _SMALL_BACKWARD[self._kind]
            outputs, states = outputs + more[0], states + more[1]
        elif ways == 1 and network.layers > 1:
            outputs -= 1
            between = min(self.rows, self._chunk * self.batch) * network.hidden
        widest = self.rows * max(network.inputs, network.hidden) * (1 if ways == 1 else 4)
        wanted = self._bytes(
            widest, outputs * self._hidden_rows, between, states * self.batch * network.hidden * network.layers
        )
        if not self.packed:
            source, output = self.rows * network.inputs, self.rows * network.given * ways
            wanted += self._bytes(source, source, output, output, *(self._states * 4))
        return wanted

    @property
    def _chunk(self) -> int:
        """Return the steps of a layer's gradient that are there at once, where layers work on groups of steps."""
        if self.steps >= _MANY_STEPS and self.batch > 16:
            group = 8
        else:
            group = next(steps for batch, steps in _GROUPS if self.batch <= batch)
        return min(self.steps, group * self.network.layers + max(group, 8))

    @property
    def _reserve(self) -> int:
        network, ways = self.network, self.network.directions
        kept = ways * network.layers * network.hidden * _KEPT[network.mode]
        if network.projected:
            kept += ways * network.layers * (network.hidden + network.projected)
        total = self._bytes(self.rows * (kept + ways * (network.layers - 1) * network.hidden)) + 256
        if self.dropped and network.layers > 1:
            bits = self.steps * self.batch * network.hidden * ways
            total += ways * (network.layers - 1) * _rounded(bits // 8)
        return total


def _rounded(nbytes: int) -> int:
    return -(-nbytes // 32) * 32
