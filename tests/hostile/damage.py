"""Ways to damage a file: its bytes, the members of a zip, values in its JSON, the headers and numbers of its arrays."""

import gzip
import io
import json
import math
import os
import re
import shutil
import warnings
import zipfile
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

Generator = np.random.Generator


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


JUNK: list[Any] = [
    None, True, False, 0, 1, -1, 2, 7, 1000, 10**5, 12 * 10**7, 3 * 10**8, 2**31, 2**53 + 1, 2**63, 2**64, 10**30,
    -(10**12), 10**400, 0.5, -0.5, 1e-300, 1e300, 1.5e18, math.nan, math.inf, -math.inf, "", "x", "1", "\0", "a" * 2000,
    [], [1], [[]], [10**9, 10**9], nested(90), {}, {"spec": "IBP"}, {"spec": "Model"}, {"spec": []}, {"spec": "Popen"},
    {"array": [1], "dtype": "O"}, {"array": ["a"], "dtype": "S2000000000"}, {"array": [0.5] * 3, "dtype": "<f8"},
    {"array": 1}, {"array": [[1.0], [2.0, 3.0]], "dtype": "<f8"}, {"array": [1.0], "dtype": "V1000000000"},
    {"spec": "Gamma", "shape": -1.0}, {"spec": "BetaBernoulli", "n_features": 10**9}, {"value": 1}, {"kind": "dict"},
    {"spec": "BetaProcess", "truncation": 10**9}, {"spec": "StickBreakingIBP", "truncation": 10**9}, "|O",
    "S2000000000", "<f4", "|u1", "<i8", "<c16", "F", "spec Gamma", "spec IBP", "dict", "list", "tuple os.stat_result",
    "tuple thali.running.chains.Result", "tuple thali.posteriors.draws.Draw", "IBP", "auto", "thali", "MT19937",
]  # fmt: skip
SHAPES = ["(10000000000,)", "(1099511627776, 8)", "(-1,)", "(3, 10000000000000)", "()", "(0,)", "(0, 100000000000)",
          "(1, 1)", "3", "(True,)", "(1.5,)", "(" * 200 + ")" * 200, "(2, 2, 2, 2)", "(2814749767106, 0)"]  # fmt: skip
TYPES = ["|O", "|S2000000000", "<U500000000", "<f4", "<f8", "<i8", "<i2", "|u1", "|b1", "<c16", ">f8", "|V8", "<M8[s]",
         "<f2", "<u8", "[('a', '<f8')]", "|S100"]  # fmt: skip
NUMBERS = [0, 1, -1, 2, 7, 255, 10**5, 10**9, 2**31 - 1, -(2**31), 2**62, -(2**62)]
REALS = [math.nan, math.inf, -math.inf, 1e308, -1e300, 1e-320, 0.5, -0.0, 1e150]
TEXTS = ["", "n/a", "1e999", "x", "-", '"', '"""', "1,2", "\0", "é", "\ud7ff", "nan", "inf", "1_000", "9" * 5000, "\n",
         "\r", "a" * 200_000, ";", "0x1p3"]  # fmt: skip


def pick(rng: Generator, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


# --- bytes ----------------------------------------------------------------------------------------


def bytes_damaged(rng: Generator, content: bytes) -> bytes:
    sort, at = pick(rng, ["flip", "flip", "flip", "cut", "head", "insert", "zeros", "repeat"]), 0
    at = int(rng.integers(len(content) + 1))
    if sort == "flip":
        changed = bytearray(content)
        for i in rng.integers(len(content), size=rng.integers(1, 9)):
            changed[i] = int(rng.integers(256))
        return bytes(changed)
    if sort == "cut":
        return content[:at]
    if sort == "head":
        return content[at:]
    if sort == "repeat":
        return content[:at] + content[max(at - 50, 0) :]
    middle = rng.bytes(int(rng.integers(1, 20))) if sort == "insert" else bytes(int(rng.integers(1, 300)))
    return content[:at] + middle + content[at + (len(middle) if sort == "zeros" else 0) :]


def text_damaged(rng: Generator, content: bytes) -> bytes:
    """One cell of a table is something else."""
    cells = re.split(rb"([,\t\n])", content)
    for _ in range(int(rng.integers(1, 4))):
        cells[int(rng.integers(len(cells)))] = pick(rng, TEXTS).encode("utf-8", "surrogatepass")
    return b"".join(cells)


# --- zips -----------------------------------------------------------------------------------------


def members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(parts: list[tuple[str, bytes]], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of two members with the same name
        with zipfile.ZipFile(buffer, "w", how) as archive:
            for name, content in parts:
                archive.writestr(name, content)
    return buffer.getvalue()


def members_damaged(rng: Generator, content: bytes) -> bytes:
    parts = list(members(content).items())
    for _ in range(int(rng.integers(1, 4))):
        i, j = (int(n) for n in rng.integers(len(parts), size=2))
        sort = pick(rng, ["remove", "rename", "swap", "double", "add", "list"])
        if sort == "remove":
            parts = [*parts[:i], *parts[i + 1 :]] or parts
        elif sort == "rename":
            names = ["meta.json", "x.npy", "../x.npy", "/x.npy", "x", "Z.values.npy", "draws/x.npy", "X.npy", "indices"]
            parts[i] = pick(rng, names), parts[i][1]
        elif sort == "swap":
            parts[i], parts[j] = (parts[i][0], parts[j][1]), (parts[j][0], parts[i][1])
        elif sort == "double":
            parts.append((parts[i][0], parts[j][1]))
        else:
            parts.append((pick(rng, ["more.npy", "draws/more.npy", "history/more.npy", "x.txt"]), parts[j][1]))
    if rng.integers(2):
        parts = _with_members_listed(parts)
    how = pick(rng, [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    return zipped(parts, how if rng.integers(3) == 0 else zipfile.ZIP_DEFLATED)


def _with_members_listed(parts: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """meta.json names the members that there are, so that what is missing is not found at the door."""
    found = dict(parts)
    try:
        meta = json.loads(found["meta.json"])
        meta["members"] = sorted(name.removesuffix(".npy") for name in found if name.endswith(".npy"))
    except (KeyError, ValueError, TypeError):
        return parts
    return [(name, json.dumps(meta).encode() if name == "meta.json" else content) for name, content in parts]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) inside JSON data."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def json_damaged(rng: Generator, content: bytes) -> bytes:
    parts = members(content)
    if "meta.json" not in parts:
        return arrays_damaged(rng, content)
    meta = json.loads(parts["meta.json"])
    for _ in range(int(rng.integers(1, 3))):
        spots = list(places(meta))
        holder, key = spots[int(rng.integers(len(spots)))]
        sort = pick(rng, ["change", "change", "change", "remove", "add", "copy"])
        if sort == "change":
            holder[key] = deepcopy(pick(rng, JUNK))
        elif sort == "remove":
            del holder[key]
        elif sort == "copy":
            other, name = spots[int(rng.integers(len(spots)))]
            holder[key] = deepcopy(other[name])
        elif isinstance(holder, dict):
            holder[pick(rng, ["x", "spec", "array", "value", "n_rows", "stream"])] = deepcopy(pick(rng, JUNK))
        else:
            holder.append(deepcopy(pick(rng, JUNK)))
    return zipped(list((parts | {"meta.json": json.dumps(meta).encode()}).items()))


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def array_damaged(rng: Generator, content: bytes) -> bytes:
    """Of one `.npy`: another header, another shape, another type, other numbers."""
    try:
        array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False).copy()
    except Exception:
        return bytes_damaged(rng, content)
    sort = pick(rng, ["header", "dtype", "shape", "type", "value", "value", "value", "length"])
    if sort == "header":
        return re.sub(rb"\([0-9, ]*\)", pick(rng, SHAPES).encode(), content, count=1)
    if sort == "dtype":
        return re.sub(rb"'descr': '[^']*'", b"'descr': '" + pick(rng, TYPES).encode() + b"'", content, count=1)
    if sort == "shape":
        array = pick(rng, [array.ravel(), array[None], array.T, array[..., None], array[:0] if array.ndim else array])
    elif sort == "type" and array.dtype.kind not in "SU":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            array = array.astype(pick(rng, ["<f4", "<f8", "<i8", "|u1", "|b1", "<c16", "|i1", ">f8", "<u8", "<f2"]))
    elif sort == "value" and array.size and array.dtype.kind in "biuf":
        kind, info = array.dtype.kind, np.iinfo(array.dtype) if array.dtype.kind in "iu" else None
        values = NUMBERS + REALS if kind == "f" else [0, 1]
        if info is not None:
            values = [n for n in NUMBERS if info.min <= n <= info.max]
        with np.errstate(over="ignore"):
            array.flat[int(rng.integers(array.size))] = np.asarray(pick(rng, values)).astype(array.dtype)
    elif array.ndim and len(array):
        array = array[: int(rng.integers(len(array)))] if rng.integers(2) else np.concatenate([array, array])
    return npy(array)


def arrays_damaged(rng: Generator, content: bytes) -> bytes:
    parts = members(content)
    names = sorted(name for name in parts if name.endswith(".npy"))
    for _ in range(int(rng.integers(1, 3)) if names else 0):
        name = pick(rng, names)
        parts[name] = array_damaged(rng, parts[name])
    return zipped(list(parts.items()))


# --- any kind -------------------------------------------------------------------------------------


def content_damaged(rng: Generator, name: str, content: bytes) -> bytes:
    """The content of a file of this name, damaged in a way that suits its format."""
    if name.endswith((".thali", ".npz")):
        how = pick(rng, [bytes_damaged, members_damaged, json_damaged, json_damaged, arrays_damaged, arrays_damaged])
        return how(rng, content)
    if name.endswith(".npy"):
        return pick(rng, [bytes_damaged, array_damaged, array_damaged])(rng, content)
    if name.endswith((".csv", ".tsv")):
        return pick(rng, [bytes_damaged, text_damaged])(rng, content)
    if name.endswith(".gz") and rng.integers(2):
        return gzip.compress(pick(rng, [bytes_damaged, text_damaged])(rng, gzip.decompress(content)))
    return bytes_damaged(rng, content)


def damaged(rng: Generator, whole: Path, target: Path) -> Path:
    """A damaged copy of a file, or of a folder of which one file is damaged, missing, exchanged or no file at all."""
    target = target.with_name(f"{target.name}-{whole.name}")
    if whole.is_file():
        target.write_bytes(content_damaged(rng, whole.name, whole.read_bytes()))
        return target
    shutil.copytree(whole, target)
    names = sorted(file.name for file in target.iterdir())
    one, other = target / pick(rng, names), target / pick(rng, names)
    sort = pick(rng, ["file"] * 12 + ["remove", "exchange", "pipe", "device", "folder", "circle"])
    if sort == "file":
        one.write_bytes(content_damaged(rng, one.name, one.read_bytes()))
        return target
    content = other.read_bytes()
    one.unlink()
    if sort == "exchange":
        one.write_bytes(content)
    elif sort == "pipe":
        os.mkfifo(one)
    elif sort == "device":
        one.symlink_to("/dev/zero")
    elif sort == "folder":
        one.mkdir()
    elif sort == "circle":
        one.symlink_to(one)
    return target
