"""The door: turn this process into one with a simulated CUDA device, and what it can be asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memprof.allocator.conf import parse_alloc_conf
from memprof.allocator.driver import AddressOrder
from memprof.allocator.snapshot import device_trace
from memprof.errors import MemprofError
from memprof.simulate.bitsandbytes_library import install_native_library
from memprof.simulate.cards import Card, card_named
from memprof.simulate.checkpoints import install_checkpoints
from memprof.simulate.companions import install_companions
from memprof.simulate.compiled_libraries import install_loading
from memprof.simulate.device import Device
from memprof.simulate.host_weights import install_host_weights
from memprof.simulate.peak_ranges import PeakRanges, peak_ranges
from memprof.simulate.real_runtime import hide_devices
from memprof.simulate.recurrent_calls import install_cudnn_answers
from memprof.simulate.refusals import install_refusals
from memprof.simulate.registration import register_device
from memprof.simulate.runtime import CUDA_VERSION, CUDNN_VERSION, install_runtime
from memprof.simulate.selftest import self_test
from memprof.simulate.settings import settings_of_environment
from memprof.simulate.support import check_support

if TYPE_CHECKING:
    from memprof.simulate.bitsandbytes_library import NativeLibrary
    from memprof.simulate.caveats import Caveat
    from memprof.trace.model import DeviceTrace, Settings

__all__ = ["SimulatedDevice", "install", "installed"]

_installed: list[SimulatedDevice] = []


class SimulatedDevice:
    """The simulated CUDA device of this process: ``cuda:0`` of its torch.

    Programs use ``torch.cuda`` as ever; this is for what only a simulation can tell.
    """

    def __init__(self, device: Device, library: NativeLibrary) -> None:
        self._device = device
        self._library = library

    @property
    def card(self) -> Card:
        """The card that is simulated."""
        return self._device.card

    @property
    def settings(self) -> Settings:
        """The allocator's settings."""
        return self._device.memory.allocator.settings

    @property
    def caveats(self) -> list[Caveat]:
        """What was invented or is not known so far, the one with most bytes first."""
        return self._device.all_caveats()

    def snapshot(self) -> dict[str, Any]:
        """Return what ``torch.cuda.memory._snapshot()`` returns: plain values, ready for ``pickle``."""
        return self._device.snapshot()

    def recording(self) -> DeviceTrace:
        """Return everything that the allocator did so far, as if it had been recorded from the start."""
        with self._device.memory.held():
            return device_trace(self._device.memory.allocator)

    def figures(self) -> dict[str, int]:
        """Return max_allocated_bytes, max_reserved_bytes, device_used_bytes and managed_bytes."""
        counters = self._device.memory.allocator.counters
        free, total = self._device.memory.info()
        return {
            "max_allocated_bytes": counters.allocated_peak,
            "max_reserved_bytes": counters.reserved_peak,
            "device_used_bytes": total - free,
            "managed_bytes": self._library.managed_bytes,
        }

    def reserved_range(self) -> tuple[int, int]:
        """Return the least and the largest reserved peak that other addresses of segments could have led to."""
        return self.peak_ranges().reserved

    def peak_ranges(self) -> PeakRanges:
        """Return the least and the largest peaks that other addresses of segments could have led to."""
        with self._device.memory.held():
            return peak_ranges(self._device.memory.allocator)

    def begin(self, capacity: int | None = None) -> None:
        """Begin anew with an empty device; tensors that are still alive lose their memory.

        `capacity` is what the process can reserve; the card's memory less the context if not given.
        """
        self._library.begin()
        self._device.reset(capacity)

    def describe(self) -> dict[str, Any]:
        """Return what a file should say of the device: plain values."""
        card = self.card
        return {
            "card": card.name,
            "card_memory_bytes": card.total_bytes,
            "capability": "{}.{}".format(*card.capability),
            "multiprocessors": card.multiprocessors,
            "measured": card.measured,
            "torch": str(torch.__version__),
            "cuda": CUDA_VERSION,
            "caveats": [
                {"kind": c.kind, "what": c.what, "where": c.where, "count": c.count, "bytes": c.bytes}
                for c in self.caveats
            ],
        }


def install(
    card: str | Card = "h200",
    settings: Settings | str | None = None,
    *,
    order: AddressOrder = AddressOrder.CUDA,
) -> SimulatedDevice:
    """Give this process a simulated CUDA device. There is no way back: do it in a process of its own, first thing.

    Parameters
    ----------
    card
        Key of `memprof.simulate.cards.CARDS`, or a card.
    settings
        ``PYTORCH_ALLOC_CONF``, parsed or not; None takes the environment's.
    order
        Where the driver puts segments, where that is not known (other cards than an H200).

    Raises
    ------
    UnsupportedError
        This torch, build or platform cannot be simulated on, or does not behave as expected.
    InputError
        No such card or setting.
    """
    if _installed:
        raise MemprofError("this process has a simulated device already; start another process for another card")
    check_support()
    card = card_named(card) if isinstance(card, str) else card
    if settings is None:
        settings = settings_of_environment()
    elif isinstance(settings, str):
        settings = parse_alloc_conf(settings)
    hide_devices()
    register_device(CUDNN_VERSION)
    install_host_weights()
    device = Device(card, settings, order)
    library = install_native_library(
        lambda kind, what, nbytes: device.caveats.add(kind, what, nbytes)  # noqa: PLW0108  # `reset` replaces them
    )
    device.install()
    if torch.version.cuda is not None:
        install_loading(device.dispatcher.run)
    install_runtime(device)
    install_companions()
    install_cudnn_answers(CUDNN_VERSION)
    install_checkpoints()
    install_refusals(device)
    self_test(device)
    simulated = SimulatedDevice(device, library)
    _installed.append(simulated)
    return simulated


def installed() -> SimulatedDevice | None:
    """Return this process's simulated device, None if it has none."""
    return _installed[0] if _installed else None
