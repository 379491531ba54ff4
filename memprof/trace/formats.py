"""What a file is (pickle, gzip, torch.save's zip, JSON) and the plain value in it. Runs in the reader's own process."""

from __future__ import annotations

import io
import json
import os
import zlib
from typing import TYPE_CHECKING, Any

from memprof.errors import InputError
from memprof.trace.check import shown
from memprof.trace.unpickle import load_plain

if TYPE_CHECKING:
    from memprof.trace.limits import Budget

__all__ = ["load_file", "looks_like", "open_plain"]

_BUFFER = 1 << 18
_PART = 1 << 20
_GZIP = b"\x1f\x8b"
_ZIP = b"PK\x03\x04"
_JSON_STARTS = b"{["
_PICKLE_STARTS = b"\x80"

JSON_END = 1 << 30
"""JSON of this many bytes is refused, since it has to be in memory as a whole; a pickle of the same is far smaller."""
_TOO_LARGE = f"is JSON of over {JSON_END >> 30} GiB, more than memprof reads: give the pickle, which is far smaller"
ZEROS_END = 16 << 20
"""So many zero bytes in a row are a hole in the file (a full disk, a sparse file), and no recording."""

INFLATION = 300
"""Plain bytes per compressed byte beyond which a file is a bomb: snapshots reach 7 to 65, deflate can reach 1,032."""
_INFLATION_SLACK = 4 << 20

_LOOKS = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"%PDF", "a PDF"),
    (b"\x7fELF", "a program"),
    (b"\x28\xb5\x2f\xfd", "zstandard data: decompress it first"),
    (b"\xfd7zXZ", "xz data: decompress it first"),
    (b"BZh", "bzip2 data: decompress it first"),
    (b"\x93NUMPY", "a numpy array"),
    (b"GGUF", "GGUF model weights"),
    (b"\x89HDF", "an HDF5 file"),
    (b"SQLite format 3", "an SQLite database (a Nsight export?)"),
    (b"<!DOCTYPE", "an HTML page: give the snapshot itself, not a page made from it"),
    (b"<!doctype", "an HTML page: give the snapshot itself, not a page made from it"),
    (b"<html", "an HTML page: give the snapshot itself, not a page made from it"),
    (b"version https://git-lfs", "a Git LFS pointer: run `git lfs pull` first"),
)
_ADVICE = "memprof reads what torch.cuda.memory._dump_snapshot wrote"


class _Source(io.RawIOBase):
    """The bytes of the file, counted: the budget grows with them."""

    def __init__(self, file: io.RawIOBase, budget: Budget, limit: int | None = None) -> None:
        self._file = file
        self._budget = budget
        self._total = 0
        self._zeros = 0
        self._left = limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer)
        if self._left is not None:
            view = view[: self._left]
        count = self._file.readinto(view) or 0
        if self._left is not None:
            self._left -= count
        self._total += count
        self._look_for_zeros(view[:count])
        self._budget.grant(self._total)
        return count

    def _look_for_zeros(self, view: memoryview) -> None:
        for start in range(0, len(view), _PART):
            part = view[start : start + _PART]
            # The first look is enough for nearly every part of a real file.
            zeros = not part[0] and not part[-1] and not part.tobytes().strip(b"\0")
            self._zeros = self._zeros + len(part) if zeros else 0
            if self._zeros >= ZEROS_END:
                raise InputError(
                    f"has {ZEROS_END >> 20} MiB of zeros in a row, as no recording has: the disk was full, or the copy "
                    "is not complete"
                )


class _Inflated(io.RawIOBase):
    """The plain bytes of a gzip file of one or more members (or of raw deflate data), with an eye on what they cost."""

    def __init__(self, file: io.RawIOBase, budget: Budget, *, wbits: int = 31, limit: int | None = None) -> None:
        self._file = _Source(file, budget, limit)
        self._budget = budget
        self._wbits = wbits
        self._engine = zlib.decompressobj(wbits)
        self._taken = 0
        self._given = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer)
        plain = b""
        while not plain:
            data = self._engine.unconsumed_tail
            if not data:
                data = self._engine.unused_data if self._engine.eof else b""
                if not data:
                    block = bytearray(1 << 16)
                    data = bytes(block[: self._file.readinto(block)])
                    self._taken += len(data)
                if self._engine.eof:
                    # gzip may be followed by another member, or by zeros that pad the file.
                    data = data.lstrip(b"\0") if self._wbits > 0 else b""
                    if not data:
                        return 0
                    self._engine = zlib.decompressobj(self._wbits)
                elif not data:
                    raise InputError("ends in the middle of its compressed data: the file is truncated")
            try:
                plain = self._engine.decompress(data, len(view))
            except zlib.error:
                if self._given and not self._engine.eof and self._taken == len(data):
                    return 0
                raise InputError("has damaged compressed data: copy it again") from None
            if self._given + len(plain) > INFLATION * self._taken + _INFLATION_SLACK:
                raise InputError(
                    f"grows more than {INFLATION} times when decompressed, as no recording does: refused as a gzip bomb"
                )
        view[: len(plain)] = plain
        self._given += len(plain)
        self._budget.grant(self._given)
        return len(plain)


def load_file(file: io.RawIOBase, budget: Budget) -> Any:
    """Return the plain value in `file`, an unbuffered file at its start.

    Raises
    ------
    InputError
        Empty, of no known format, damaged, or asking for more than plain values.
    """
    head = file.read(64) or b""
    file.seek(0)
    if not head:
        raise InputError("is empty: nothing was written to it, record the snapshot again")
    if head.startswith(_ZIP):
        return _load_zip(file, budget)
    if head.startswith(_GZIP):
        return _load_stream(io.BufferedReader(_Inflated(file, budget), _BUFFER), budget)
    return _load_stream(io.BufferedReader(_Source(file, budget), _BUFFER), budget, size=os.fstat(file.fileno()).st_size)


def open_plain(file: io.RawIOBase, budget: Budget) -> io.BufferedReader:
    """Return the bytes of `file`, an unbuffered file at its start, decompressed where it is gzip.

    The reader raises `InputError` where the compressed data is damaged, truncated or a bomb.
    """
    head = file.read(len(_GZIP)) or b""
    file.seek(0)
    plain: io.RawIOBase = _Inflated(file, budget) if head == _GZIP else _Source(file, budget)
    return io.BufferedReader(plain, _BUFFER)


def looks_like(head: bytes) -> str | None:
    """Name what a file is, by its first bytes, if it is a well-known format that memprof does not read."""
    return next((name for start, name in _LOOKS if head.startswith(start)), None)


def _load_stream(file: io.BufferedReader, budget: Budget, *, size: int = 0) -> Any:
    try:
        return _load_value(file, size)
    except MemoryError:
        raise InputError(budget.shortage()) from None


def _load_value(file: io.BufferedReader, size: int) -> Any:
    head = file.peek(64)[:64]
    if not head:
        raise InputError("is empty once decompressed: record the snapshot again")
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if name := looks_like(head):
        raise InputError(f"looks like {name}; {_ADVICE}")
    if head[:1] in _PICKLE_STARTS:
        return load_plain(file)
    # Protocols 0 and 1 have no mark of their own: a dict or list starts with one of these.
    if head[:1] in b"(]}" and text[:1] not in _JSON_STARTS:
        return load_plain(file)
    if text[:1] and text[:1] in _JSON_STARTS:
        return _load_json(file, size)
    raise InputError(f"is neither a pickle nor JSON (it starts with {_first_bytes(head)}); {_ADVICE}")


def _first_bytes(head: bytes) -> str:
    first = head[:12]
    if all(32 <= byte < 127 for byte in first):
        return shown(first.decode("ascii"))
    return f"the bytes {first.hex(' ')}"


def _load_json(file: io.BufferedReader, size: int) -> Any:
    data = bytearray()
    if size > JSON_END:
        raise InputError(_TOO_LARGE)
    while block := file.read(_BUFFER):
        if 0 in block:
            raise InputError(f"starts like JSON and has a zero byte after {len(data) + block.index(0):,}; {_ADVICE}")
        data += block
        if len(data) > JSON_END:
            raise InputError(_TOO_LARGE)
    try:
        text = data.decode("utf-8-sig", "surrogatepass")
        del data
        return json.loads(text)
    except RecursionError:
        raise InputError("is JSON nested beyond reason: not a torch memory snapshot") from None
    except UnicodeDecodeError:
        raise InputError(f"starts like JSON and is no text; {_ADVICE}") from None
    except ValueError as error:
        fact = shown(str(error)).removeprefix("the text ")
        raise InputError(f"starts like JSON and is damaged or truncated ({fact}); {_ADVICE}") from None


def _load_zip(file: io.RawIOBase, budget: Budget) -> Any:
    """Read ``data.pkl`` of an archive that torch.save wrote, straight from its place in the file."""
    import struct
    import zipfile

    try:
        with zipfile.ZipFile(file) as archive:
            members = [info for info in archive.infolist() if info.filename.rpartition("/")[2] == "data.pkl"]
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, EOFError, struct.error, MemoryError):
        raise InputError("is a damaged or truncated zip archive: copy it again") from None
    if len(members) != 1:
        raise InputError(f"is a zip archive with {len(members)} entries data.pkl, not one of torch.save; {_ADVICE}")
    member = members[0]
    if member.flag_bits & 1 or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(f"is a zip archive that torch.save did not write; {_ADVICE}")
    try:
        file.seek(member.header_offset)
        header = file.read(30) or b""
    except (OSError, ValueError, OverflowError):
        header = b""
    if len(header) != 30 or not header.startswith(_ZIP):
        raise InputError("is a damaged zip archive: its directory points nowhere")
    name_length, extra_length = struct.unpack("<HH", header[26:30])
    file.seek(name_length + extra_length, io.SEEK_CUR)
    if member.compress_type == zipfile.ZIP_STORED:
        stream: io.RawIOBase = _Source(file, budget, member.compress_size)
    else:
        stream = _Inflated(file, budget, wbits=-15, limit=member.compress_size)
    return _load_stream(io.BufferedReader(stream, _BUFFER), budget)
