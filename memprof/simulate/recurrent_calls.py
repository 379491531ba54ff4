"""``lstm``, ``gru`` and the plain recurrent networks: composite ops that look up cuDNN where a CPU build has nothing.

What they call on a card is called here (``_cudnn_impl`` in ``ATen/native/cudnn/RNN.cpp``); what cuDNN does not take
runs torch's own composite, cell by cell.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from memprof.simulate.kernels.recurrent import flat_views
from memprof.simulate.recurrent import GRU, LSTM, RELU, TANH, Network

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["RecurrentCalls", "install_cudnn_answers"]

aten = torch.ops.aten
_MODES = {"lstm": LSTM, "gru": GRU, "rnn_tanh": TANH, "rnn_relu": RELU}


class RecurrentCalls:
    """The composite ops of a device."""

    def __init__(self) -> None:
        self._dropout_state: torch.Tensor | None = None

    def forget(self) -> None:
        """Drop the state of dropout, which is made once: the device begins anew."""
        self._dropout_state = None

    def ops(self) -> dict[str, Callable[..., Any]]:
        """Return a function for each op, by full name; those of ``data`` are for packed sequences."""
        found = {}
        for name, mode in _MODES.items():
            packet = getattr(aten, name)
            found[f"{name}.input"] = self._unpacked(packet.input, mode)
            found[f"{name}.data"] = self._packed(packet.data, mode)
        return found

    def _unpacked(self, op: Any, mode: int) -> Callable[..., Any]:
        def run(  # noqa: PLR0917  # torch's signature
            source: torch.Tensor,
            hidden: Any,
            weights: list[torch.Tensor],
            has_biases: bool,  # noqa: FBT001
            layers: int,
            dropout: float,
            train: bool,  # noqa: FBT001
            bidirectional: bool,  # noqa: FBT001
            batch_first: bool,  # noqa: FBT001
        ) -> tuple[torch.Tensor, ...]:
            if not _taken_by_cudnn(source):
                return _by_cells(
                    op, source, hidden, weights, has_biases, layers, dropout, train, bidirectional, batch_first
                )
            return self._call(
                mode,
                source,
                hidden,
                weights,
                has_biases=has_biases,
                layers=layers,
                dropout=dropout,
                train=train,
                bidirectional=bidirectional,
                batch_first=batch_first,
                batch_sizes=[],
            )

        return run

    def _packed(self, op: Any, mode: int) -> Callable[..., Any]:
        def run(  # noqa: PLR0917  # torch's signature
            source: torch.Tensor,
            batch_sizes: torch.Tensor,
            hidden: Any,
            weights: list[torch.Tensor],
            has_biases: bool,  # noqa: FBT001
            layers: int,
            dropout: float,
            train: bool,  # noqa: FBT001
            bidirectional: bool,  # noqa: FBT001
        ) -> tuple[torch.Tensor, ...]:
            if not _taken_by_cudnn(source):
                return _by_cells(
                    op, source, batch_sizes, hidden, weights, has_biases, layers, dropout, train, bidirectional
                )
            return self._call(
                mode,
                source,
                hidden,
                weights,
                has_biases=has_biases,
                layers=layers,
                dropout=dropout,
                train=train,
                bidirectional=bidirectional,
                batch_first=False,
                batch_sizes=batch_sizes.tolist(),
            )

        return run

    def _call(
        self,
        mode: int,
        source: torch.Tensor,
        hidden: Any,
        weights: list[torch.Tensor],
        *,
        has_biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
        batch_sizes: list[int],
    ) -> tuple[torch.Tensor, ...]:
        hx, cx = (hidden[0], hidden[1]) if mode == LSTM else (hidden, None)
        width, proj = hx.size(2), 0
        if cx is not None and cx.size(2) != width:
            width, proj = cx.size(2), width
        network = Network.of(source, mode, width, proj, layers, bidirectional=bidirectional)
        buffer = _weight_buffer(network, weights)
        state = self._state(source, dropout) if train and dropout > 0 else None
        stride = (4 if has_biases else 2) + (1 if proj else 0)
        if torch.is_autocast_enabled("cuda"):
            half = torch.float16
            if weights[0].dtype == torch.float32:
                buffer, weights = _reflattened(network, weights, half)
            # From the last argument to the first, as the compiler that PyTorch is built with evaluates them.
            cx = None if cx is None else _cast(cx, half)
            hx = _cast(hx, half)
            source = _cast(source, half)
        with torch.autocast("cuda", enabled=False):
            output, hy, cy, _, _ = aten._cudnn_rnn(
                source,
                weights,
                stride,
                buffer,
                hx,
                cx,
                mode,
                width,
                proj,
                layers,
                batch_first,
                dropout,
                train,
                bidirectional,
                batch_sizes,
                state,
            )
        return (output, hy, cy) if mode == LSTM else (output, hy)

    def _state(self, source: torch.Tensor, dropout: float) -> torch.Tensor:
        """Make the state of dropout when it is first needed (``get_dropout_state``)."""
        if self._dropout_state is None:
            with torch.no_grad():
                seed = torch.empty((), dtype=torch.int64, device=source.device).random_()
                made: torch.Tensor = aten._cudnn_init_dropout_state(
                    dropout, True, 0, dtype=torch.uint8, device=source.device
                )
                del seed
            self._dropout_state = made
        return self._dropout_state


def _taken_by_cudnn(source: torch.Tensor) -> bool:
    """Tell whether cuDNN computes it (``cudnn_is_acceptable``)."""
    return bool(torch._C._get_cudnn_enabled()) and source.numel() > 0


def _by_cells(op: Any, *args: Any) -> tuple[torch.Tensor, ...]:
    """Run torch's composite without cuDNN."""
    cudnn: Any = torch.backends.cudnn
    with cudnn.flags(enabled=False):
        result: tuple[torch.Tensor, ...] = op.decompose(*args)
        return result


def _cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    eligible = tensor.is_floating_point() and tensor.dtype != torch.float64
    return tensor.to(dtype) if eligible else tensor


def _weight_buffer(network: Network, weights: list[torch.Tensor]) -> torch.Tensor | None:
    """Return the buffer that holds all weights where cuDNN expects them; None if they are apart."""
    first = weights[0]
    item = first.element_size()
    if first.untyped_storage().nbytes() < network.weights * item:
        return None
    place = first.data_ptr() - first.storage_offset() * item
    for rows in (range(2, 9), range(2)):
        for weight in weights:
            if weight.dim() in rows:
                if weight.data_ptr() != place:
                    return None
                place += weight.numel() * item
    fresh = torch.empty(0, dtype=first.dtype, device=first.device)
    return fresh.set_(first.detach(), 0, (network.weights,), (1,))  # type: ignore[call-overload,no-any-return]


def _reflattened(
    network: Network, weights: list[torch.Tensor], dtype: torch.dtype
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Copy all weights into one buffer of another dtype; gradients go back through the copies."""
    buffer = torch.zeros(network.weights, dtype=dtype, device=weights[0].device)
    with torch.no_grad():
        views = flat_views(buffer, weights)
    return buffer, [view.copy_(weight) for view, weight in zip(views, weights, strict=True)]


def install_cudnn_answers(version: int) -> None:
    """Let ``torch.backends.cudnn`` answer as beside cuDNN: modules ask it whether to put their weights together."""
    cudnn: Any = torch.backends.cudnn
    module: Any = cudnn.m if hasattr(cudnn, "m") else cudnn
    module._init = lambda: True
    module.is_available = lambda: True
    module.version = lambda: version
    modes = types.SimpleNamespace(rnn_relu=RELU, rnn_tanh=TANH, lstm=LSTM, gru=GRU)
    module.rnn.m._cudnn = types.SimpleNamespace(RNNMode=modes)
