"""Reading a stranger's pickle: plain containers, texts, numbers, bools and None, and nothing that could run.

The C unpickler does the work, with every way out closed: a global, a persistent id and an extension code all end in an
error, and without a global there is nothing on its stack that reduce, newobj or build could call. Bytes, bytearrays and
sets have opcodes of their own and may be built; they can do nothing, and whoever reads the value refuses them where
something else belongs.

That makes a hostile file harmless, not cheap: it can still ask for all memory or run into the end of the C stack. So
`memprof.trace.child` does this in a process of its own, under limits.
"""

from __future__ import annotations

import gc
import pickle
from typing import IO, Any, NoReturn

from memprof.errors import InputError
from memprof.trace.check import shown

__all__ = ["PlainUnpickler", "load_plain"]

# torch.save's format of before 1.6: this number, a protocol number, a dict about the machine, and then the value.
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_HEADERS = 2


class PlainUnpickler(pickle.Unpickler):
    """An unpickler that builds plain values only."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        """Refuse every global.

        Raises
        ------
        InputError
            Always.
        """
        wanted = shown(f"{module}.{name}").removeprefix("the text ")
        raise InputError(
            f"asks for the Python object {wanted}: refused, memprof runs nothing from a file (no snapshot needs it)"
        )

    def persistent_load(self, pid: Any, /) -> NoReturn:  # noqa: ARG002 - the name that pickle documents
        """Refuse every persistent id.

        Raises
        ------
        InputError
            Always.
        """
        raise InputError(
            "refers to tensors or other outside data (a persistent id): refused, this is no memory snapshot"
        )


def load_plain(file: IO[bytes]) -> Any:
    """Return the value of a pickle of any protocol, also of one inside torch.save's format of before 1.6.

    The garbage collector is off meanwhile: it would walk millions of dicts that are all alive.

    Raises
    ------
    InputError
        Not a pickle, a truncated one, or one that asks for more than plain values.
    MemoryError
        It needs more memory than there is; what that says of the file, whoever set the limit knows.
    OSError
        The file cannot be read.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        value = PlainUnpickler(file).load()
        if type(value) is int and value == _LEGACY_MAGIC:
            for _ in range(_LEGACY_HEADERS):
                PlainUnpickler(file).load()
            value = PlainUnpickler(file).load()
    except (InputError, MemoryError, OSError):
        raise
    except EOFError:
        raise InputError("ends in the middle of its pickle: the file is truncated, copy or record it again") from None
    except OverflowError:
        raise InputError("asks for more memory than a file of its size can need: damaged, or made to do harm") from None
    except Exception as error:  # noqa: BLE001 - the C unpickler raises whatever the opcodes of a damaged file lead to
        text = str(error)
        if "truncated" in text or "ran out of" in text:
            raise InputError(
                "ends in the middle of its pickle: the file is truncated, copy or record it again"
            ) from None
        raise InputError(
            f"is a damaged pickle ({shown(text).removeprefix('the text ')}): copy or record it again"
        ) from None
    finally:
        if enabled:
            gc.enable()
    return value
