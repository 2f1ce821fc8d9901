"""Arrays of plain numbers out of bytes that nobody vouches for: `.npy` files, and zips of them.

What a header or a directory promises is held against the bytes that are there before anything is made of it. Every
complaint is a ValueError; the reader of the file makes it one of its own.
"""

import ast
import math
import re
import warnings
import zipfile
from typing import IO, NamedTuple

import numpy as np

_CHUNK = 2**20
_LONGEST_HEADER = 10_000
_PLAIN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_LARGEST_AXIS = 2**48
_LONGEST_TEXT = 64  # bytes of an item that is text: the name of a sparse format
_OF_PYTHON_2 = re.compile(r"(\d)L\b")  # shapes (10L, 2L)


class Header(NamedTuple):
    """What an array says of itself."""

    dtype: np.dtype
    shape: tuple[int, ...]
    fortran: bool

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_numeric(self) -> bool:
        return self.dtype.kind in "biuf"


def read_header(stream: IO[bytes]) -> Header:
    """The header of an array; the stream then stands at its numbers."""
    version = np.lib.format.read_magic(stream)
    length = int.from_bytes(_exactly(stream, 2 if version == (1, 0) else 4), "little")
    if version not in ((1, 0), (2, 0), (3, 0)) or length > _LONGEST_HEADER:
        raise ValueError("an array has no header that is known")
    text = _exactly(stream, length)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of literals that look odd
            said = ast.literal_eval(_OF_PYTHON_2.sub(r"\1", text.decode("latin1")).strip())
        shape, fortran = said["shape"], said["fortran_order"]
        dtype = _dtype(said["descr"]) if isinstance(said["descr"], str) else np.dtype(object)  # a record is no number
    except Exception as error:  # the parser of Python can raise nearly anything
        raise ValueError(f"the header of an array cannot be read ({type(error).__name__})") from error
    if not (isinstance(shape, tuple) and all(type(n) is int and 0 <= n <= _LARGEST_AXIS for n in shape)):
        raise ValueError("an array has no shape that is known")
    if len(shape) > 32 or not isinstance(fortran, bool):
        raise ValueError("an array has no shape that is known")
    return Header(dtype, shape, fortran)


def number_dtype(name: object) -> np.dtype:
    """The dtype of this name, if it is one of real numbers: an item of "S2000000000" alone would take 2 GB."""
    dtype = _dtype(name) if isinstance(name, str) else np.dtype(object)
    if dtype.kind not in "biuf":
        raise ValueError(f"{str(name)[:40]!r} is no type of numbers")
    return dtype


def _dtype(name: str) -> np.dtype:
    if len(name) > 20:
        raise ValueError(f"{name[:40]!r} is no type of numbers")
    try:
        return np.dtype(name)
    except TypeError as error:
        raise ValueError(f"{name!r} is no type of numbers") from error


def read_numbers(stream: IO[bytes], header: Header, n_bytes: int, longest_text: int = _LONGEST_TEXT) -> np.ndarray:
    """The array after its header, of which n_bytes are there: no more is allocated than that."""
    if not (header.is_numeric or (header.dtype.kind in "SU" and header.dtype.itemsize <= longest_text)):
        raise ValueError(f"an array of {header.dtype} holds no plain numbers")
    wanted = header.size * header.dtype.itemsize
    if wanted > n_bytes:
        raise ValueError(f"an array should have {wanted} bytes and has {n_bytes}")
    flat = np.empty(header.size, dtype=header.dtype)
    view = flat.view(np.uint8) if flat.size else np.empty(0, np.uint8)
    at = 0
    while at < wanted:
        chunk = stream.read(min(_CHUNK, wanted - at))
        if not chunk:
            raise ValueError("an array ends too early")
        view[at : at + len(chunk)] = np.frombuffer(chunk, np.uint8)
        at += len(chunk)
    return flat.reshape(header.shape[::-1]).T if header.fortran else flat.reshape(header.shape)


def directory(archive: zipfile.ZipFile, room: int) -> dict[str, zipfile.ZipInfo]:
    """The members by name, if all of them together take no more than `room` bytes and none is odd."""
    members: dict[str, zipfile.ZipInfo] = {}
    total = 0
    for info in archive.infolist():
        name = info.filename
        if name in members or name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/"):
            raise ValueError(f"it has a member {name[:80]!r}, which is there twice or leads elsewhere")
        if info.compress_type not in _PLAIN or info.flag_bits & 0x1:
            raise ValueError(f"its member {name[:80]!r} is encrypted, or packed in a way that is not used here")
        total += info.file_size
        members[name] = info
    if total > room:
        raise TooLargeError(total, room)
    return members


def read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, longest_text: int = _LONGEST_TEXT) -> np.ndarray:
    """The array in a member, its check sum included."""
    with archive.open(info) as stream:
        header = read_header(stream)
        array = read_numbers(stream, header, info.file_size - stream.tell(), longest_text)
        if stream.read(1):  # to the end: the check sum is looked at there
            raise ValueError(f"{info.filename[:80]!r} is longer than its array")
        return array


def member_header(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Header:
    with archive.open(info) as stream:
        return read_header(stream)


class TooLargeError(ValueError):
    """What a file promises is out of proportion to its size."""

    def __init__(self, wanted: float, room: float) -> None:
        super().__init__(f"it would take {_megabytes(wanted)} where its size on disk allows {_megabytes(room)}")


def _megabytes(n_bytes: float) -> str:
    return f"{n_bytes / 1e6:.3g} MB"


def _exactly(stream: IO[bytes], n: int) -> bytes:
    found = stream.read(n)
    if len(found) != n:
        raise ValueError("an array ends in its header")
    return found
