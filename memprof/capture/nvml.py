"""What the driver says this process has of a card, through NVIDIA's management library."""

from __future__ import annotations

import ctypes
import os

__all__ = ["ProcessMemory"]

LIBRARY = "libnvidia-ml.so.1"
_INSUFFICIENT_SIZE = 7
"""``NVML_ERROR_INSUFFICIENT_SIZE`` (nvml.h)."""
_NOT_AVAILABLE = (1 << 64) - 1
"""``NVML_VALUE_NOT_AVAILABLE`` (nvml.h): the driver does not tell processes apart."""


class _ProcessInfo(ctypes.Structure):
    """``nvmlProcessInfo_v2_t`` (nvml.h)."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class ProcessMemory:
    """Reads this process's bytes of the card with a UUID, as ``nvidia-smi`` shows them.

    Parameters
    ----------
    uuid
        Of the card, with or without its ``GPU-``.
    """

    def __init__(self, uuid: str) -> None:
        self._processes = None
        self._device = ctypes.c_void_p()
        try:
            library = ctypes.CDLL(LIBRARY)
            processes = library.nvmlDeviceGetComputeRunningProcesses_v3
            name = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
            if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(self._device)):
                return
        except (OSError, AttributeError):  # no driver, or one older than this call
            return
        self._processes = processes

    def read(self) -> int | None:
        """Return the bytes; None where the driver does not say, or not which of several processes is this one.

        To be called when the process has memory of the card.
        """
        if self._processes is None:
            return None
        room = 64
        for _ in range(3):
            count = ctypes.c_uint(room)
            infos = (_ProcessInfo * room)()
            code = self._processes(self._device, ctypes.byref(count), infos)
            if code != _INSUFFICIENT_SIZE:
                break
            room = 2 * int(count.value)
        if code:
            return None
        found = list(infos[: count.value])
        # In a container the driver may know this process by another number. It has the card, so a single one is it.
        mine = found if len(found) == 1 else [info for info in found if info.pid == os.getpid()]
        return int(mine[0].used) if mine and mine[0].used != _NOT_AVAILABLE else None
