"""The `.thali` file: a zip of `.npy` members and one `meta.json`. Reading one never executes code.

Written under a temporary name and renamed, so that a file with the final name is always whole. The same content gives
the same bytes.
"""

import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from thali.errors import InvalidFileError
from thali.whole_files import trouble, whole_file

FORMAT = 1
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write(path: str | os.PathLike[str], meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a file. An error (full disk, read-only folder) leaves nothing behind and an older file untouched."""
    try:
        path = Path(path)
    except TypeError as error:
        raise InvalidFileError(f"Cannot write {path}: {error}. Give the path of a file.") from error
    try:
        with whole_file(path) as raw, zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
            text = json.dumps({"format": FORMAT, "members": sorted(arrays), **meta}, indent=1, sort_keys=True)
            archive.writestr(zipfile.ZipInfo("meta.json", _EPOCH), text)
            for name, array in arrays.items():
                buffer = io.BytesIO()
                np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
                info = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, buffer.getvalue(), compresslevel=3)
    except OSError as error:
        raise InvalidFileError(trouble(path, error)) from error


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """(meta, arrays) of a file, or an InvalidFileError that says what is wrong with it."""
    try:
        path = Path(path)
        with zipfile.ZipFile(path) as archive:
            meta = json.loads(archive.read("meta.json"))
            if not isinstance(meta, dict) or not isinstance(meta.get("format"), int):
                raise InvalidFileError(f"{path} is not a .thali file: its meta.json names no format.")
            if meta["format"] > FORMAT:
                raise InvalidFileError(
                    f"{path} has format {meta['format']}, written by thali {meta.get('thali', '?')}. "
                    f"This version reads formats up to {FORMAT}: upgrade thali to read it."
                )
            arrays = {}
            for name in archive.namelist():
                if name.endswith(".npy"):
                    member = io.BytesIO(archive.read(name))
                    arrays[name.removesuffix(".npy")] = np.lib.format.read_array(member, allow_pickle=False)
            if sorted(arrays) != meta.pop("members", []):
                raise damaged(path, "some of its arrays are missing")
    except FileNotFoundError as error:
        raise InvalidFileError(f"There is no file {path}. Check the path.") from error
    except OSError as error:
        raise InvalidFileError(f"Cannot read {path}: {error.strerror or error}.") from error
    except InvalidFileError:
        raise
    except Exception as error:  # a damaged member can raise nearly anything (zlib, struct, tokenize, json, ...)
        raise damaged(path, error) from error
    return meta, arrays


def damaged(path: str | os.PathLike[str], reason: object) -> InvalidFileError:
    return InvalidFileError(
        f"{path} is not a whole .thali file ({reason}). It may be damaged or cut off: copy it again, or fit again."
    )


@contextmanager
def blamed(path: str | os.PathLike[str]) -> Iterator[None]:
    """Whatever goes wrong while the content of a file is put together is the file's fault."""
    try:
        yield
    except InvalidFileError as error:
        raise InvalidFileError(f"{path}: {error}") from error
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError) as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from error
