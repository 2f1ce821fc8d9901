"""How much a file may cost: every reader asks here before it opens, and before it makes anything of what a file says.

A small file can promise gigabytes: zeros compress a thousandfold, a header is a few bytes whatever it announces, and a
device has no end. What is made of a file may be a multiple of the bytes that it holds on disk, and a few megabytes in
any case:

    a fit or a checkpoint   16 MB, or 16 times its size; its JSON 4 MB, or twice its size
    data                    64 MB, or 64 times its size (a bit that becomes a double)
    data, sparse            64 MB, or 1000 times its size, but 1.6 GB at most
    text in a .gz           1 MB, or 32 times its size

Files that thali writes are within: what would compress beyond it is stored as it is (`files.write`). Data that are not
can be saved without compression.
"""

import os
import stat

_MB = 2**20

FIT_RATIO, FIT_FLOOR = 16, 16 * _MB
JSON_RATIO, JSON_FLOOR = 2, 4 * _MB
DATA_RATIO, DATA_FLOOR = 64, 64 * _MB
SPARSE_RATIO, SPARSE_MOST = 1000, 1600 * 10**6
TEXT_RATIO, TEXT_FLOOR = 32, _MB  # less, since text takes long to read

LINE_CELLS = 2_000_000  # cells in a line of text,
LINE_LENGTH = 64 * _MB  # and its characters
ARRIVING_LINE = 8 * _MB  # bytes of a line that arrives from another program, of which nothing else is known
DOUBLE = 8  # bytes
_THING = 160  # bytes that a Python object with an array takes at least
_EXTENTS = 1000  # pieces of a file with holes that are looked at


def room_of_fit(size: int) -> int:
    """Bytes that may be made of a `.thali` file with so many bytes on disk."""
    return max(FIT_FLOOR, FIT_RATIO * size)


def room_of_json(size: int) -> int:
    return max(JSON_FLOOR, JSON_RATIO * size)


def room_of_data(size: int) -> int:
    return max(DATA_FLOOR, DATA_RATIO * size)


def room_of_sparse(size: int) -> int:
    """For all cells of a sparse matrix; SPARSE_MOST is the end."""
    return max(DATA_FLOOR, SPARSE_RATIO * size)


def room_of_text(size: int) -> int:
    return max(TEXT_FLOOR, TEXT_RATIO * size)


def cost_of_things(n: int) -> int:
    """Bytes of n Python objects."""
    return _THING * n


def most_features(room: int) -> int:
    """K of which a K x K table has room: features are compared in pairs."""
    return int((room / DOUBLE) ** 0.5)


def not_a_file(path: str | os.PathLike[str]) -> str | None:
    """Why `path` is nothing that can be read from its beginning to its end, in words; None if it is a file.

    It is not opened, since opening a pipe waits for another process. An OSError if it is not there.
    """
    mode = os.stat(path).st_mode
    if stat.S_ISREG(mode):
        return None
    if stat.S_ISDIR(mode):
        return "it is a directory"
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        return "it is a pipe, and a file is needed, which can be read more than once: write its content to a file first"
    return "it is a device, and a file is needed: write what it gives to a file first"


def stored_size(path: str | os.PathLike[str]) -> int:
    """The bytes that a file has on disk: holes, which read as zeros, do not count."""
    found = os.stat(path)
    size, blocks = found.st_size, getattr(found, "st_blocks", None)
    if blocks is None or 512 * blocks >= size // 2 or not hasattr(os, "SEEK_DATA"):
        return size
    stored = end = 0
    with open(path, "rb") as file:
        try:
            for _ in range(_EXTENTS):
                start = os.lseek(file.fileno(), end, os.SEEK_DATA)
                end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
                stored += end - start
        except OSError:  # no data after the last hole
            return stored
    return size
