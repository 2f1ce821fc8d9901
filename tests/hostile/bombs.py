"""Small files that promise gigabytes, hours or the wrong memory, each crafted by hand."""

import gzip
import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hostile.damage import members, nested, npy, places, zipped

ZEROS = bytes(2**20)


def header(shape: object, dtype: str = "<f8") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (63 - (len(text) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def long_member(path: Path, name: str, beginning: bytes, n_megabytes: int, others: dict[str, bytes]) -> None:
    """A zip with one member of zeros after a beginning."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for other, content in others.items():
            archive.writestr(other, content)
        with archive.open(name, "w", force_zip64=True) as member:
            member.write(beginning)
            for _ in range(n_megabytes):
                member.write(ZEROS)


def changed(whole: Path, path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """A fit whose meta.json is another."""
    parts = members(whole.read_bytes())
    meta = json.loads(parts["meta.json"])
    change(meta)
    path.write_bytes(zipped([("meta.json", json.dumps(meta).encode()), *_arrays(parts)]))


def _arrays(parts: dict[str, bytes]) -> list[tuple[str, bytes]]:
    return [(name, content) for name, content in parts.items() if name != "meta.json"]


def with_arrays(whole: Path, path: Path, arrays: dict[str, np.ndarray], change: Callable[[Any], Any] = bool) -> None:
    parts = members(whole.read_bytes())
    meta = json.loads(parts["meta.json"])
    change(meta)
    parts |= {f"{name}.npy": npy(array) for name, array in arrays.items()}
    meta["members"] = sorted(name.removesuffix(".npy") for name in parts if name.endswith(".npy"))
    path.write_bytes(zipped([("meta.json", json.dumps(meta).encode()), *_arrays(parts)]))


def sparse(path: Path, **arrays: Any) -> None:
    buffer = io.BytesIO()
    parts = {"format": np.array(b"csr"), "shape": np.array([4, 5]), "data": np.ones(2)}
    parts |= {"indices": np.array([0, 3]), "indptr": np.array([0, 1, 2, 2, 2])}
    np.savez_compressed(buffer, **parts | arrays)
    path.write_bytes(buffer.getvalue())


def zip_bytes(change: Callable[[bytearray], Any], content: bytes) -> bytes:
    changed = bytearray(content)
    change(changed)
    return bytes(changed)


def craft(folder: Path, fit: Path, run: Path, scale: int = 1) -> list[Path]:
    """All of them; `fit` and `run` are whole ones of Gaussian draws. `scale`: how much the largest unpack to."""
    made: list[Path] = []

    def place(name: str) -> Path:
        made.append(folder / name)
        return made[-1]

    # zips that unpack to gigabytes, and arrays that say they are large
    long_member(place("unpacks.npz"), "X.npy", header((2**10 * scale, 2**13), "<f8"), 64 * scale + 16, {})
    long_member(place("unpacks-a-little.npz"), "X.npy", header((2**20, 9), "|u1"), 9, {})
    parts = members(fit.read_bytes())
    long_member(place("unpacks.thali"), "history/more.npy", header((2**22 * scale,)), 32 * scale, parts)
    long_member(place("not-an-array.thali"), "room", b"", 20 * scale, parts)
    for i, shape in enumerate(["(10000000000, 2)", "(4611686018427387904, 4)", "(0, 10000000000)", "(-4, -4)"]):
        place(f"promises-{i}.npy").write_bytes(header(shape) + ZEROS[:64])
        place(f"promises-{i}.npz").write_bytes(zipped([("X.npy", header(shape) + ZEROS[:64])]))
    for i, dtype in enumerate(["|S2000000000", "<U500000000", "|V2000000000", "|O"]):
        place(f"wide-{i}.npy").write_bytes(header("(2, 2)", dtype) + ZEROS[:64])
        place(f"wide-{i}.thali").write_bytes(zipped([*parts.items(), ("wide.npy", header("(1,)", dtype) + ZEROS[:64])]))
    hole = place("hole.npy")
    with hole.open("wb") as file:
        file.write(header((2**30,), "|u1").replace(b"(1073741824,)", b"(32768, 32768)"))
        file.truncate(2**30 + 200)
    with place("hole.csv").open("wb") as file:
        file.truncate(2**33)

    # what meta.json says
    changed(fit, place("n_dims.thali"), lambda meta: meta.update(n_dims=120_000_000))
    changed(fit, place("n_dims-float.thali"), lambda meta: meta.update(n_dims=1.2e8))
    changed(fit, place("names.thali"), lambda meta: meta.update(dim_names="abc"))
    changed(fit, place("n_chains.thali"), lambda meta: meta["params"].update(n_chains=10**9))
    changed(fit, place("setting.thali"), lambda meta: meta["params"].update(verbose=nested(400)))
    changed(
        fit,
        place("dtype.thali"),
        lambda meta: meta["model"]["observation"].update(scale={"array": ["a"] * 3, "dtype": "S2000000000"}),
    )
    for name, prior in (
        ("finite", {"spec": "BetaBernoulli", "n_features": 10**9}),
        ("sticks", {"spec": "StickBreakingIBP", "truncation": 10**9}),
        ("process", {"spec": "BetaProcess", "truncation": 10**9}),
    ):
        changed(fit, place(f"prior-{name}.thali"), lambda meta, prior=prior: meta["model"].update(prior=prior))
    deep = json.dumps({"format": 1, "members": [], "x": 0}).replace("0", "[" * 100_000 + "]" * 100_000)
    place("deep.thali").write_bytes(zipped([("meta.json", deep.encode())]))
    wide = b'{"format": 1, "members": [], "x": [' + b"[]," * 2 * 10**6 + b"0]}"
    place("wide.thali").write_bytes(zipped([("meta.json", wide)]))
    place("digits.thali").write_bytes(zipped([("meta.json", b'{"format": ' + b"9" * 10**6 + b"}")]))

    # no features at all, and any number of rows or dims
    n = 10**12
    empty = {
        "Z.shapes": [[n, 0]] * 6,
        "codebook/features.shapes": [[0, 3]] * 6,
        "codebook/gram_inv.shapes": [[0, 0]] * 6,
    }
    arrays = {name: np.array(shapes) for name, shapes in empty.items()}
    arrays |= {"codebook/counts.shapes": np.zeros((6, 1), np.int64), "Z.values": np.zeros(0, np.uint8)}
    arrays |= {f"codebook/{name}.values": np.zeros(0) for name in ("features", "gram_inv")}
    arrays |= {"codebook/counts.values": np.zeros(0, np.int64), "draws/n_features": np.zeros((2, 3), np.int64)}
    arrays |= {"draws/n_on": np.zeros((2, 3), np.int64)}
    with_arrays(fit, place("rows.thali"), arrays)
    many = arrays | {"Z.shapes": np.tile([[12, 0]], (6, 1)), "codebook/features.shapes": np.tile([[0, n]], (6, 1))}
    with_arrays(fit, place("dims.thali"), many, lambda meta: meta.update(n_dims=n))
    some = arrays | {
        "Z.shapes": np.tile([[12, 0]], (6, 1)),
        "codebook/features.shapes": np.tile([[0, 3 * 10**7]], (6, 1)),
    }
    with_arrays(fit, place("more-dims.thali"), some, lambda meta: meta.update(n_dims=3 * 10**7))

    # zips that lead elsewhere
    place("twice.thali").write_bytes(zipped([*parts.items(), ("meta.json", b"{}")]))
    place("above.thali").write_bytes(zipped([*parts.items(), ("../x.npy", npy(np.ones(1)))]))
    place("packed.thali").write_bytes(zipped(list(parts.items()), zipfile.ZIP_LZMA))
    content = zipped(list(parts.items()), zipfile.ZIP_STORED)
    marks = [i for i in range(len(content)) if content[i : i + 4] == b"PK\x01\x02"]
    place("encrypted.thali").write_bytes(zip_bytes(lambda b: [b.__setitem__(i + 8, 1) for i in marks], content))
    place("method.thali").write_bytes(zip_bytes(lambda b: [b.__setitem__(i + 10, 99) for i in marks], content))
    place("shared.npz").write_bytes(_overlapping(header((2**18, 16)) + ZEROS * 32, 40))

    # sparse matrices that point elsewhere
    sparse(place("far.npz"), indices=np.array([0, 10**9]))
    sparse(place("before.npz"), indices=np.array([-7, 3]))
    sparse(place("indptr.npz"), indptr=np.array([0, 10**9, 2, 2, 2]))
    sparse(place("falls.npz"), indptr=np.array([0, 2, 1, 2, 2]))
    sparse(place("short.npz"), indptr=np.array([0, 2]))
    sparse(place("float.npz"), indices=np.array([0.5, np.nan]))
    sparse(place("huge.npz"), shape=np.array([10**9, 10**9]), indptr=np.array([0, 2]))
    sparse(place("negative.npz"), shape=np.array([-4, 5]))
    sparse(place("large.npz"), shape=np.array([4, 10**7]))
    sparse(place("objects.npz"), format=np.array(b"lil"))
    sparse(place("complex.npz"), data=np.ones(2, dtype=complex))
    sparse(place("coo.npz"), format=np.array(b"coo"), row=np.array([0, 2**40]), col=np.array([0, 1]))
    sparse(place("coords.npz"), format=np.array("coo"), coords=np.array([[0, 9], [0, 1]]))
    sparse(place("bsr.npz"), format=np.array(b"bsr"), data=np.ones((2, 3, 0)))
    sparse(place("dia.npz"), format=np.array(b"dia"), data=np.ones((2, 5)), offsets=np.array([2**40, -(2**40)]))

    # text
    place("bomb.csv.gz").write_bytes(gzip.compress(b"1,2\n" * 10**6))
    place("line.csv.gz").write_bytes(gzip.compress(b"1," * 10**6))
    place("zeros.csv.gz").write_bytes(gzip.compress(ZEROS * 4))
    place("wide.csv").write_bytes(b"," * 3 * 10**6)

    # what is no file
    for name in ("pipe.csv", "pipe.npy", "pipe.npz", "pipe.parquet", "pipe.csv.gz", "pipe.thali"):
        os.mkfifo(place(name))
    for name in ("zero.csv", "zero.npy", "zero.thali", "zero.parquet"):
        place(name).symlink_to("/dev/zero")
    place("folder.thali").mkdir()
    (folder / "folder.thali" / "run.thali").mkdir()

    # checkpoints
    def run_with(name: str, file: str, change: Callable[[dict[str, Any]], Any]) -> None:
        copy = place(name)
        copy.mkdir()
        for one in run.iterdir():
            (copy / one.name).write_bytes(one.read_bytes())
        changed(run / file, copy / file, change)

    run_with("n_draws", "chain-0.0.thali", lambda meta: meta.update(n_draws=3 * 10**8, draws={"value": None}))
    run_with("n_steps", "chain-0.0.thali", lambda meta: meta.update(n_steps=3 * 10**8, infos={"value": None}))
    run_with("pool_size", "run.thali", lambda meta: _set(meta, "pool_size", 10**5))
    run_with("generator", "run.thali", lambda meta: _set(meta, "bit_generator", "default_rng"))
    run_with("n_rows", "run.thali", lambda meta: meta.update(n_rows=10**18))
    run_with("n_dims", "run.thali", lambda meta: meta.update(n_dims=10**8))
    run_with("n_files", "chain-0.state.thali", lambda meta: meta.update(n_files=10**12))
    run_with("repeated", "chain-0.state.thali", _repeat)
    return made


def _set(value: Any, name: str, new: Any) -> None:
    """Every packed value of this name."""
    if isinstance(value, list) and len(value) == 2 and value[0] == name:
        value[1] = {"value": new}
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _set(inner, name, new)


def _repeat(meta: dict[str, Any]) -> None:
    """The same array again and again."""
    part = next(value for holder, key in places(meta["state"]) if "arrays" in (value := _dict(holder[key])))
    meta["state"] = {"kind": "list", "parts": [[f"x{i}", part] for i in range(20_000)]}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _overlapping(content: bytes, n: int) -> bytes:
    """A zip whose members all are the same bytes."""
    packer = zlib.compressobj(9, wbits=-15)
    packed = packer.compress(content) + packer.flush()
    said = struct.pack("<HHHHHLLLHH", 20, 0, 8, 0, 33, zlib.crc32(content), len(packed), len(content), 5, 0)
    local = b"PK\x03\x04" + said + b"X.npy" + packed
    entries = b"".join(
        b"PK\x01\x02" + struct.pack("<H", 20) + said[:-4] + struct.pack("<HHHHHLL", 5, 0, 0, 0, 0, 0, 0)
        + f"{i:03}.n".encode() for i in range(n)
    )  # fmt: skip
    return local + entries + b"PK\x05\x06" + struct.pack("<HHHHLLH", 0, 0, n, n, len(entries), len(local), 0)
