"""Work that threads share out among themselves inside of compiled code: a call to the interpreter and back, and a sleep
until a lock opens, take as long as drawing hundreds of rows.

What they share is an array of 64-bit whole numbers, which these functions change and read in one indivisible step; as
plain Python they serve one thread.
"""

import os
from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from thali.kernels._jit import jit

_YIELD = "SwitchToThread" if os.name == "nt" else "sched_yield"
_POLLS = 1_000  # before a thread that waits gives way to others


def fetch_add(numbers: Any, i: int, value: int) -> Any:
    """Add to numbers[i]; returns what was there before."""
    before = numbers[i]
    numbers[i] += value
    return before


def give_way() -> None:
    """Let another thread run on this core, if one is ready to."""


@intrinsic
def _atomic_add(typing_context, numbers, i, value):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array_type = signature.args[0]
        array = context.make_array(array_type)(context, builder, arguments[0])
        place = cgutils.get_item_pointer(context, builder, array_type, array, [arguments[1]])
        return builder.atomic_rmw("add", place, arguments[2], "seq_cst")

    return types.int64(numbers, types.int64, types.int64), generate


@overload(fetch_add)
def _fetch_add(numbers, i, value):  # type: ignore[no-untyped-def]
    return lambda numbers, i, value: _atomic_add(numbers, i, value)  # type: ignore[call-arg]


@overload(give_way)
def _give_way():  # type: ignore[no-untyped-def]
    system_yield = types.ExternalFunction(_YIELD, types.int32())

    def call() -> None:
        system_yield()

    return call


def _wait_until(numbers, i, value):
    """Until another thread has made numbers[i] at least `value`."""
    n = 0
    while fetch_add(numbers, i, 0) < value:
        n += 1
        if n > _POLLS:
            give_way()


wait_until = jit(_wait_until)
