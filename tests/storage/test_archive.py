"""The `.thali` file: same content, same bytes; anything damaged gives one clear error and leaves nothing behind."""

import errno
import io
import json
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from thali.errors import InvalidFileError
from thali.storage import archive as files

META = {"name": "test", "numbers": [1, 0.1, None]}


@pytest.fixture
def arrays(rng):
    return {
        "draws/k": np.arange(6).reshape(2, 3),
        "features": rng.standard_normal((4, 5)),
        "bits": rng.integers(2, size=50).astype(np.uint8),
        "none": np.zeros((0, 3)),
    }


@pytest.fixture
def path(tmp_path, arrays):
    path = tmp_path / "run.thali"
    files.write(path, META, arrays)
    return path


def same(a, b):
    return a.keys() == b.keys() and all(
        a[k].dtype == b[k].dtype and a[k].shape == b[k].shape and np.array_equal(a[k], b[k]) for k in a
    )


def only(path):
    """Nothing but the file itself is in its folder."""
    return [p.name for p in path.parent.iterdir()] == [path.name]


def test_round_trip(path, arrays):
    meta, read = files.read(path)
    assert meta == {"format": files.FORMAT, **META}
    assert same(read, arrays)
    assert only(path)


def test_accepts_a_string_and_overwrites(path, arrays):
    files.write(str(path), {"name": "other"}, {})
    assert files.read(str(path)) == ({"format": files.FORMAT, "name": "other"}, {})
    assert only(path)


def test_same_content_same_bytes(path, arrays, tmp_path):
    other = tmp_path / "other.thali"
    files.write(other, dict(reversed(META.items())), {k: np.asfortranarray(v) for k, v in arrays.items()})
    assert other.read_bytes() == path.read_bytes()


def test_file_has_the_usual_permissions(path):
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


@pytest.mark.parametrize("share", range(10))
def test_truncated_file(path, share):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * share // 10])
    with pytest.raises(InvalidFileError, match=r"run\.thali"):
        files.read(path)


def test_flipped_bytes_never_go_unnoticed(path, arrays):
    """Each byte in turn: an InvalidFileError, or (in a field that does not matter) the very same content."""
    content = path.read_bytes()
    refused = 0
    for i in range(len(content)):
        damaged = bytearray(content)
        damaged[i] ^= 0xFF
        path.write_bytes(damaged)
        try:
            meta, read = files.read(path)
        except InvalidFileError:
            refused += 1
        else:
            assert meta == {"format": files.FORMAT, **META}, i
            assert same(read, arrays), i
    assert refused > 0.5 * len(content)


def write_zip(path, **members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("_", "."), content)


def npy(array, **options):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, **options)
    return buffer.getvalue()


class Boom:
    """Unpickling this would leave a mark."""

    def __reduce__(self):
        return (exec, ("raise SystemExit('a file was executed')",))


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({}, "meta.json"),
        ({"meta_json": "{"}, "whole"),
        ({"meta_json": "[]"}, "format"),
        ({"meta_json": "{}"}, "format"),
        ({"meta_json": b"\xff\xfe"}, "whole"),
        ({"meta_json": json.dumps({"format": files.FORMAT + 1, "thali": "9.9"})}, "upgrade thali"),
        ({"meta_json": json.dumps({"format": "1"})}, "format"),
        ({"meta_json": '{"format": 1}', "a_npy": b"rubbish"}, "whole"),
        ({"meta_json": '{"format": 1}', "a_npy": npy(np.arange(9))[:-8]}, "whole"),
        ({"meta_json": '{"format": 1}', "a_npy": npy(np.array([Boom()], dtype=object), allow_pickle=True)}, "whole"),
        ({"meta_json": '{"format": 1}', "a_npy": pickle.dumps(Boom())}, "whole"),
    ],
    ids=[
        "empty",
        "json",
        "list",
        "no format",
        "text",
        "newer",
        "string",
        "no array",
        "short array",
        "object",
        "pickle",
    ],
)
def test_files_that_are_not_ours(tmp_path, members, words):
    path = tmp_path / "run.thali"
    write_zip(path, **members)
    with pytest.raises(InvalidFileError, match=words):
        files.read(path)


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04", bytes(1000)])
def test_not_a_zip(tmp_path, content):
    path = tmp_path / "run.thali"
    path.write_bytes(content)
    with pytest.raises(InvalidFileError, match=r"run\.thali"):
        files.read(path)


def test_reading_what_is_not_there(tmp_path):
    with pytest.raises(InvalidFileError, match="no file"):
        files.read(tmp_path / "none.thali")
    with pytest.raises(InvalidFileError, match="Cannot read"):
        files.read(tmp_path)


def test_missing_folder(tmp_path, arrays):
    with pytest.raises(InvalidFileError, match="folder"):
        files.write(tmp_path / "nowhere" / "run.thali", META, arrays)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_folder(tmp_path, arrays):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(InvalidFileError, match="folder"):
            files.write(tmp_path / "run.thali", META, arrays)
        assert list(tmp_path.iterdir()) == []
    finally:
        tmp_path.chmod(0o700)


def test_folder_that_refuses(tmp_path, arrays, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InvalidFileError, match="Permission denied"):
        files.write(tmp_path / "run.thali", META, arrays)


@pytest.mark.parametrize("step", ["write", "rename"])
def test_full_disk_keeps_the_older_file(path, arrays, step, monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    before = path.read_bytes()
    if step == "write":
        monkeypatch.setattr(np.lib.format, "write_array", refuse)
    else:
        monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(InvalidFileError, match="No space left"):
        files.write(path, {"name": "new"}, arrays)
    assert path.read_bytes() == before
    assert only(path)


def test_a_folder_with_that_name(tmp_path, arrays):
    path = tmp_path / "run.thali"
    path.mkdir()
    with pytest.raises(InvalidFileError, match="Cannot write"):
        files.write(path, META, arrays)
    assert only(path)


def test_an_array_of_objects_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="Object"):
        files.write(tmp_path / "run.thali", META, {"a": np.array([{}], dtype=object)})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [3 * 2**20, 6 * 2**20])  # doubles: 24 and 48 MB
def test_what_compresses_a_thousandfold_is_read_back(tmp_path, size):
    arrays = {"zeros": np.zeros(size), "few": np.ones(10)}
    files.write(tmp_path / "run.thali", META, arrays)
    assert same(files.read(tmp_path / "run.thali")[1], arrays)


@pytest.mark.parametrize("shape", [(5 * 10**6, 0), (0, 10**8), (2, 10**7)], ids=str)
def test_numbers_that_announce_more_than_there_is_are_read_back(tmp_path, shape):
    """Many rows without a feature: the file is filled up to what its reader must allow. Without that it is refused."""
    bits = np.zeros((shape[0] * shape[1] + 7) // 8, np.uint8)
    arrays = {"Z.values": bits, "Z.shapes": np.array([shape])}
    path = tmp_path / "run.thali"
    files.write(path, META, arrays)
    assert same(files.read(path)[1], arrays)
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist() if name != "room"}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in content.items():
            archive.writestr(name, part)
    with pytest.raises(InvalidFileError, match="its size on disk allows"):
        files.read(path)


def test_room_that_is_asked_for_is_there(tmp_path):
    path = tmp_path / "run.thali"
    files.write(path, {"room": 10**8}, {})
    assert files.room(path) >= 10**8
    assert files.read(path)[0]["room"] == 10**8
