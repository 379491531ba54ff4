"""A CUDA device that allocates and computes nothing: exact memory of real PyTorch programs, without a GPU."""

from memprof.simulate.simulated import SimulatedDevice, install, installed

__all__ = ["SimulatedDevice", "install", "installed"]
