"""A small honest allocator that records itself the way torch does: the snapshots that the reader's tests are made from.

Segments of one size, first fit, blocks rounded to 512 bytes, neighbours merged. An old version of torch's format is a
function here, which takes away or renames what that version did not have.
"""

from __future__ import annotations

import copy

SEGMENT_SIZE = 2 << 20
FRAMES = [{"name": f"function_{line % 7}", "filename": f"model_{line % 3}.py", "line": line} for line in range(1, 40)]


class LittleAllocator:
    """One device; `snapshot` is what torch would write."""

    def __init__(self, device: int = 0, *, record: bool = True) -> None:
        self.device = device
        self.record = record
        self.trace: list[dict] = []
        self.segments: list[dict] = []
        self.clock = 1_700_000_000_000_000

    def alloc(self, size: int, *, depth: int = 3) -> int:
        """Take `size` bytes with a stack of `depth` frames, and return the address."""
        needed = max(512, (size + 511) // 512 * 512)
        frames = [FRAMES[(size + i) % len(FRAMES)] for i in range(depth)]
        for segment in self.segments:
            for index, block in enumerate(segment["blocks"]):
                if block["state"] == "inactive" and block["size"] >= needed:
                    return self._take(segment, index, needed, size, frames)
        address = (self.device + 1) * (1 << 40) + len(self.segments) * 2 * SEGMENT_SIZE
        self._record("segment_alloc", address, SEGMENT_SIZE, frames)
        self.segments.append(
            {
                "device": self.device,
                "address": address,
                "total_size": SEGMENT_SIZE,
                "stream": 0,
                "segment_type": "small",
                "segment_pool_id": (0, 0),
                "is_expandable": False,
                "frames": frames,
                "blocks": [self._block(address, SEGMENT_SIZE, 0, "inactive", [])],
            }
        )
        return self._take(self.segments[-1], 0, needed, size, frames)

    def free(self, address: int) -> None:
        """Give the block at `address` back."""
        for segment in self.segments:
            for index, block in enumerate(segment["blocks"]):
                if block["address"] == address and block["state"] == "active_allocated":
                    self._record("free_requested", address, block["requested_size"], [])
                    self._record("free_completed", address, block["requested_size"], [])
                    block.update(state="inactive", requested_size=0)
                    self._merge(segment["blocks"], index)
                    return
        raise KeyError(address)

    def out_of_memory(self, size: int, free: int) -> None:
        """Fail to take `size` bytes while the device has `free`."""
        self._record("oom", free, size, FRAMES[:2])
        self.trace[-1]["device_free"] = self.trace[-1].pop("addr")

    def snapshot(self, *others: LittleAllocator) -> dict:
        """Return what torch would, for this device and `others`."""
        devices = (self, *others)
        lists: list[list[dict]] = [[] for _ in range(max(d.device for d in devices) + 1)]
        for device in devices:
            lists[device.device] = device.trace
        segments = [segment for device in devices for segment in device.segments]
        for segment in segments:
            active = [block for block in segment["blocks"] if block["state"] != "inactive"]
            segment["allocated_size"] = segment["active_size"] = sum(block["size"] for block in active)
            segment["requested_size"] = sum(block["requested_size"] for block in active)
        return {
            "segments": segments,
            "device_traces": lists,
            "allocator_settings": {
                "PYTORCH_CUDA_ALLOC_CONF": "",
                "max_split_size": -1,
                "garbage_collection_threshold": 0.0,
                "expandable_segments": False,
                "roundup_power2_divisions": {str(1 << i): 0 for i in range(16)},
            },
            "external_annotations": [],
        }

    def live(self) -> dict[int, tuple[int, int]]:
        """Return address -> (block size, requested) of what is allocated now."""
        return {
            block["address"]: (block["size"], block["requested_size"])
            for segment in self.segments
            for block in segment["blocks"]
            if block["state"] == "active_allocated"
        }

    def _take(self, segment: dict, index: int, needed: int, size: int, frames: list) -> int:
        block = segment["blocks"][index]
        address, rest = block["address"], block["size"] - needed
        taken = [self._block(address, needed, size, "active_allocated", frames)]
        if rest:
            taken.append(self._block(address + needed, rest, 0, "inactive", []))
        segment["blocks"][index : index + 1] = taken
        self._record("alloc", address, size, frames)
        return address

    @staticmethod
    def _block(address: int, size: int, requested: int, state: str, frames: list) -> dict:
        return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames}

    @staticmethod
    def _merge(blocks: list[dict], index: int) -> None:
        for left in (index, index - 1):
            if 0 <= left < len(blocks) - 1 and blocks[left]["state"] == blocks[left + 1]["state"] == "inactive":
                blocks[left]["size"] += blocks.pop(left + 1)["size"]

    def _record(self, action: str, address: int, size: int, frames: list) -> None:
        self.clock += 3
        if self.record:
            self.trace.append(
                {
                    "action": action,
                    "addr": address,
                    "size": size,
                    "stream": 0,
                    "time_us": self.clock,
                    "compile_context": "N/A",
                    "user_metadata": "",
                    "frames": frames,
                }
            )


def training(device: int = 0, *, late: bool = False) -> LittleAllocator:
    """Return the recording of two small steps; with `late`, weights were there before it began."""
    allocator = LittleAllocator(device, record=not late)
    weights = [allocator.alloc(300_000 + i) for i in range(5)]
    allocator.record = True
    for step in range(2):
        saved = [allocator.alloc(70_000 + 513 * i, depth=4) for i in range(20)]
        for address in reversed(saved):
            temporary = allocator.alloc(1000 * (step + 1), depth=0)
            allocator.free(address)
            allocator.free(temporary)
    allocator.free(weights.pop())
    return allocator


def as_of_torch_2_0(snapshot: dict) -> dict:
    """Return a snapshot as torch 2.0 wrote it: ``history`` in blocks, no addresses of blocks, no times, no settings."""
    old = copy.deepcopy(snapshot)
    for segment in old["segments"]:
        for key in ("segment_pool_id", "is_expandable", "frames"):
            del segment[key]
        for block in segment["blocks"]:
            frames = block.pop("frames")
            address = block.pop("address")
            if block["state"] == "active_allocated":
                block["history"] = [{"addr": address, "real_size": block["requested_size"], "frames": frames}]
    for trace in old["device_traces"]:
        for entry in trace:
            for key in ("time_us", "compile_context", "user_metadata"):
                del entry[key]
    return {"segments": old["segments"], "device_traces": old["device_traces"]}
