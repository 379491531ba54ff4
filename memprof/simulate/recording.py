"""The simulated device for `memprof.capture`: recorded by the code that records a real one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memprof.capture.devices import CudaDevice

if TYPE_CHECKING:
    from memprof.simulate.simulated import SimulatedDevice

__all__ = ["RecordedSimulation"]


class RecordedSimulation(CudaDevice):
    """Give this to `memprof.capture.capture` as ``device``, in a process with a simulated device."""

    source = "simulated"

    def __init__(self, simulated: SimulatedDevice) -> None:
        super().__init__()
        self._simulated = simulated

    def describe(self) -> dict[str, Any]:
        """Return what the file says of the card, and what the simulation did not know."""
        return self._simulated.describe()
