"""The `.thali` file: a zip of `.npy` members and one `meta.json`. Reading one never executes code.

Written under a temporary name and renamed, so that a file with the final name is always whole. The same content gives
the same bytes. What may be made of a file is limited by its size (`limits`), and no file is written that would be
beyond: a member that compresses too well is stored as it is, and `room` is filled up where numbers alone, such as those
of rows and dims, announce more than the arrays hold.
"""

import io
import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from thali.errors import InvalidFileError
from thali.files import limits
from thali.files.archives import TooLargeError, directory, read_member
from thali.files.whole_files import trouble, whole_file

FORMAT = 1
_EPOCH = (1980, 1, 1, 0, 0, 0)
_LEVEL = 3  # of compression
_PIECE = 2**20


def write(path: str | os.PathLike[str], meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a file. An error (full disk, read-only folder) leaves nothing behind and an older file untouched.

    `meta["room"]` may say how many bytes its reader has to allow, if that is more than its arrays show.
    """
    try:
        path = Path(path)
    except TypeError as error:
        raise InvalidFileError(f"Cannot write {path}: {error}. Give the path of a file.") from error
    try:
        with whole_file(path) as raw, zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
            text = json.dumps({"format": FORMAT, "members": sorted(arrays), **meta}, indent=1, sort_keys=True)
            _add(archive, "meta.json", text.encode(), zipfile.ZIP_STORED)
            is_large = sum(array.nbytes + 256 for array in arrays.values()) + len(text) > limits.FIT_FLOOR // 2
            for name, array in arrays.items():
                buffer = io.BytesIO()
                np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
                content = buffer.getvalue()
                too_well = is_large and _packs_to(content, 2 * len(content) // limits.FIT_RATIO)
                _add(archive, f"{name}.npy", content, zipfile.ZIP_STORED if too_well else zipfile.ZIP_DEFLATED)
            needed = _announced(meta, arrays)
            if needed > limits.FIT_FLOOR:
                _add(archive, "room", bytes(needed // limits.FIT_RATIO + 1), zipfile.ZIP_STORED)
    except OSError as error:
        raise InvalidFileError(trouble(path, error)) from error


def _add(archive: zipfile.ZipFile, name: str, content: bytes, how: int) -> None:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.compress_type = how
    archive.writestr(info, content, compresslevel=_LEVEL)


def _packs_to(content: bytes, size: int) -> bool:
    """Whether it is smaller than so many bytes when it is compressed."""
    packer = zlib.compressobj(_LEVEL)
    for start in range(0, len(content), _PIECE):
        size -= len(packer.compress(content[start : start + _PIECE]))
        if size <= 0:
            return False
    return size > len(packer.flush())


def _announced(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> int:
    """Bytes that may come of what the content says beyond its own size: bits take a byte each once they are unpacked,
    small arrays are Python objects, and a row or a column of doubles is made for every axis."""
    n_dims, most = (n if isinstance(n, int) else 0 for n in (meta.get("n_dims"), meta.get("room")))
    most = max(most, limits.DOUBLE * n_dims)
    for name, array in arrays.items():
        if array.ndim == 1 and not name.endswith(".values"):  # one number for each of many things
            most = max(most, limits.cost_of_things(len(array)))
        elif name.endswith(".shapes") and array.ndim == 2 and array.size:
            longest = limits.DOUBLE * int(array.max())
            cells = float(np.prod(array, axis=1, dtype=float).max()) if array.shape[1] else 1.0
            values = arrays.get(f"{name.removesuffix('.shapes')}.values")
            if values is None or values.dtype != np.uint8:
                cells = 0.0
            most = max(most, limits.cost_of_things(len(array)), longest, int(cells))
    return most


def room(path: str | os.PathLike[str]) -> int:
    """Bytes that may be made of a file."""
    return limits.room_of_fit(limits.stored_size(path))


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """(meta, arrays) of a file, or an InvalidFileError that says what is wrong with it."""
    try:
        path = Path(path)
        wrong = limits.not_a_file(path)
        if wrong is not None:
            raise InvalidFileError(f"Cannot read {path}: {wrong}.")
        with zipfile.ZipFile(path) as archive, np.errstate(all="ignore"):
            most = room(path)
            members = directory(archive, most)
            meta = _read_meta(path, archive, members["meta.json"])
            arrays = {
                name.removesuffix(".npy"): read_member(archive, info)
                for name, info in members.items()
                if name.endswith(".npy")
            }
        if sorted(arrays) != meta.pop("members", []):
            raise damaged(path, "some of its arrays are missing")
        if not all(array.dtype.kind in "biuf" for array in arrays.values()):
            raise damaged(path, "some of its arrays hold no numbers")
        announced = _announced(meta, arrays)
        if announced > most:
            raise TooLargeError(announced, most)
    except FileNotFoundError as error:
        raise InvalidFileError(f"There is no file {path}. Check the path.") from error
    except OSError as error:
        raise InvalidFileError(f"Cannot read {path}: {error.strerror or error}.") from error
    except InvalidFileError:
        raise
    except Exception as error:  # a damaged member can raise nearly anything (zlib, struct, tokenize, json, ...)
        raise damaged(path, error) from error
    return meta, arrays


def _read_meta(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> dict[str, Any]:
    most = limits.room_of_json(limits.stored_size(path))
    if info.file_size > most:
        raise TooLargeError(info.file_size, most)
    try:
        meta = json.loads(archive.read(info))
    except RecursionError:
        raise damaged(path, "its meta.json is nested too deeply") from None
    if not isinstance(meta, dict) or type(meta.get("format")) is not int:
        raise InvalidFileError(f"{path} is not a .thali file: its meta.json names no format.")
    if meta["format"] > FORMAT:
        raise InvalidFileError(
            f"{path} has format {meta['format']}, written by thali {meta.get('thali', '?')}. "
            f"This version reads formats up to {FORMAT}: upgrade thali to read it."
        )
    return meta


def damaged(path: str | os.PathLike[str], reason: object) -> InvalidFileError:
    return InvalidFileError(
        f"{path} is not a whole .thali file ({reason}). It may be damaged or cut off: copy it again, or fit again."
    )


@contextmanager
def blamed(path: str | os.PathLike[str]) -> Iterator[None]:
    """Whatever goes wrong while the content of a file is put together is the file's fault."""
    try:
        with np.errstate(all="ignore"):  # numbers out of range are found by what becomes of them
            yield
    except InvalidFileError as error:
        raise InvalidFileError(f"{path}: {error}") from error
    except Exception as error:  # a file that was made to mislead can raise anything, RecursionError among them
        raise damaged(path, f"{type(error).__name__}: {str(error)[:500]}") from error
