"""Files of fits that are damaged: bytes, members, meta data, arrays."""

import io
import json
import math
import re
import warnings
import zipfile
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np
from hypothesis import strategies as st


def members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(parts: list[tuple[str, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of two members with the same name
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, content in parts:
                archive.writestr(name, content)
    return buffer.getvalue()


@st.composite
def damaged_bytes(draw: Any, content: bytes) -> bytes:
    sort = draw(st.sampled_from(["flip", "cut", "insert", "overwrite", "other"]))
    at = draw(st.integers(0, len(content)))
    if sort == "flip":
        changed = bytearray(content)
        for i in draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=8)):
            changed[i] ^= draw(st.integers(1, 255))
        return bytes(changed)
    if sort == "cut":
        return content[:at] if draw(st.booleans()) else content[at:]
    if sort == "insert":
        return content[:at] + draw(st.binary(max_size=20)) + content[at:]
    if sort == "overwrite":
        return content[:at] + bytes(draw(st.integers(1, 300))) + content[at:]
    return draw(
        st.binary(max_size=100) | st.sampled_from([b"", b"PK\x03\x04", b"PK\x05\x06" + bytes(18), b"{}", bytes(999)])
    )


@st.composite
def damaged_zip(draw: Any, content: bytes) -> bytes:
    """Members removed, renamed, swapped, doubled, added; everything with a right check sum."""
    parts = list(members(content).items())
    for _ in range(draw(st.integers(1, 3))):
        i, j = (draw(st.integers(0, len(parts) - 1)) for _ in range(2))
        sort = draw(st.sampled_from(["remove", "rename", "swap", "double", "add"]))
        if sort == "remove":
            parts = [*parts[:i], *parts[i + 1 :]] or parts
        elif sort == "rename":
            names = st.sampled_from(["meta.json", "x.npy", "../x.npy", "/x.npy", "x", "Z.values.npy", "draws/x.npy"])
            parts[i] = draw(names), parts[i][1]
        elif sort == "swap":
            parts[i], parts[j] = (parts[i][0], parts[j][1]), (parts[j][0], parts[i][1])
        elif sort == "double":
            parts.append((parts[i][0], parts[j][1]))
        else:
            parts.append((draw(st.sampled_from(["more.npy", "draws/more.npy", "x.txt"])), parts[j][1]))
    return zipped(parts)


JSON: list[Any] = [
    None, True, False, 0, 1, -1, 2, 7, 10**30, 0.5, -0.5, 1e300, math.nan, math.inf, "", "x", "IBP", "Model", "Gamma",
    [], [1], [[]], {}, {"spec": "IBP"}, {"spec": "Model"}, {"spec": []}, {"array": [1], "dtype": "O"}, {"array": 1},
    {"array": [0.5, 0.5, 0.5], "dtype": "<f8"}, {"spec": "Gamma", "shape": -1.0}, {"value": 1}, {"kind": "dict"},
    "<f4", "|u1", "<i8", "O", "F", "spec Gamma", "dict", "list", "tuple thali.run.Result", "tuple Draw",
    "tuple os.stat_result",
]  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) inside JSON data."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


@st.composite
def damaged_meta(draw: Any, content: bytes) -> bytes:
    """Other values, keys and types anywhere in meta.json."""
    parts = members(content)
    meta = json.loads(parts["meta.json"])
    values = st.sampled_from(JSON).map(deepcopy)
    for _ in range(draw(st.integers(1, 2))):
        spots = list(places(meta))
        holder, key = spots[draw(st.integers(0, len(spots) - 1))]
        sort = draw(st.sampled_from(["change", "change", "remove", "add"]))
        if sort == "change":
            holder[key] = draw(values)
        elif sort == "remove":
            del holder[key]
        elif isinstance(holder, dict):
            holder[draw(st.sampled_from(["x", "spec", "array", "value", "n_rows"]))] = draw(values)
        else:
            holder.append(draw(values))
    return zipped(list((parts | {"meta.json": json.dumps(meta).encode()}).items()))


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=False)
    return buffer.getvalue()


@st.composite
def damaged_arrays(draw: Any, content: bytes) -> bytes:
    """Other shapes, types and values than there should be, and headers that promise more than there is."""
    parts = members(content)
    names = sorted(name for name in parts if name.endswith(".npy"))
    for _ in range(draw(st.integers(0, 2)) if names else 0):
        name = draw(st.sampled_from(names))
        array = np.lib.format.read_array(io.BytesIO(parts[name]), allow_pickle=False).copy()
        sort = draw(st.sampled_from(["shape", "type", "value", "value", "length"]))
        if sort == "shape":
            array = draw(st.sampled_from([array.ravel(), array[None], array.T, array[..., None], array[:0]]))
        elif sort == "type":
            kind = draw(st.sampled_from(["<f4", "<f8", "<i8", "|u1", "|b1", "<c16", "<U3", "|i1", ">f8"]))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                array = array.astype(kind) if array.dtype.kind != "U" else array
        elif sort == "value" and array.size:
            values: list[Any] = [0, 1, 7, 255] if array.dtype.kind in "ub" else [0, -1, 1, 7, 100]
            values += [10**9, -(2**62)] if array.dtype == np.int64 else []
            values += [np.nan, np.inf, -1e30, 0.5] if array.dtype.kind == "f" else []
            array.flat[draw(st.integers(0, array.size - 1))] = draw(st.sampled_from(values))
        elif sort == "length" and array.ndim:
            array = array[: draw(st.integers(0, len(array)))] if draw(st.booleans()) else np.concatenate([array, array])
        parts[name] = npy(array)
    if names and draw(st.integers(0, 4)) == 0:
        name = draw(st.sampled_from(names))
        promised = draw(st.sampled_from([b"(10000000000,)", b"(1099511627776, 8)", b"(-1,)", b"(3, 10000000000000)"]))
        parts[name] = re.sub(rb"\([0-9, ]*\)", promised, parts[name], count=1)
    return zipped(list(parts.items()))


DAMAGES = [damaged_bytes, damaged_zip, damaged_meta, damaged_arrays]
