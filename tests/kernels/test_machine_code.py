"""Machine code is kept where nobody else can write, and a damaged file costs a compilation, nothing else."""

import importlib.util
import os
import pickle
import stat
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numba
import pytest

from thali.kernels import _cache_folders
from thali.kernels._cache_folders import Folders, find_folders
from thali.kernels._machine_code import MachineCode, is_storable, opened, sealed

SOURCE = "def double(x):\n    return 2 * x\n"


@pytest.fixture
def sources(tmp_path):
    folder = tmp_path / "package" / "kernels"
    folder.mkdir(parents=True)
    (folder / "tiny.py").write_text(SOURCE)
    return folder


@pytest.fixture
def places(tmp_path, sources, monkeypatch):
    """All places of a user of this machine, in their order."""
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    temporary.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.setenv("LOCALAPPDATA", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(temporary))
    return [tmp_path / "given", *_cache_folders._places(sources, "")]


def compiled(sources, folders):
    """double, as a process sees it that begins now."""
    spec = importlib.util.spec_from_file_location("tiny", sources / "tiny.py")
    module = sys.modules["tiny"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = numba.njit(module.double)
    function._cache = MachineCode(module.double, folders)
    return function


@pytest.fixture(scope="module", autouse=True)
def no_module_stays():
    yield
    sys.modules.pop("tiny", None)


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    """The name and the content of a sound file."""
    sources = tmp_path_factory.mktemp("kernels")
    (sources / "tiny.py").write_text(SOURCE)
    folders = find_folders(sources, "")
    assert n_hits(compiled(sources, folders)) == 0
    assert n_hits(compiled(sources, folders)) == 1
    (path,) = folders.write.iterdir()
    return path.name, path.read_bytes()


def n_hits(function, x=3):
    assert function(x) == 2 * x
    return sum(function.stats.cache_hits.values())


def damage(path, how):
    content = path.read_bytes()
    if how == "folder":
        path.unlink()
        path.mkdir()
        (path / "something").touch()
    elif how == "nowhere":
        path.unlink()
        path.symlink_to(path.parent / "absent")
    elif how == "loop":
        path.unlink()
        path.symlink_to(path)
    elif how == "unreadable":
        path.chmod(0)
    else:
        middle = len(content) // 2
        flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        path.write_bytes(
            {
                "empty": b"",
                "half": content[:middle],
                "one byte less": content[:-1],
                "one byte more": content + b"\0",
                "one bit": flipped,
                "garbage": b"\x80\x05garbage" * 99,
                "not a pickle": sealed(b"garbage"),
                "another thing": sealed(pickle.dumps(7)),
                "no parts": sealed(pickle.dumps((pickle.loads(opened(content))[0], (1, 2)))),
            }[how]
        )


DAMAGES = ["empty", "half", "one byte less", "one byte more", "one bit", "garbage", "not a pickle", "another thing"]


@pytest.mark.parametrize("how", [*DAMAGES, "no parts", "folder", "nowhere", "loop", "unreadable"])
def test_a_damaged_file_is_compiled_anew(sources, code, how):
    folders = find_folders(sources, "")
    folders.put(*code)
    damage(folders.write / code[0], how)
    hits = n_hits(compiled(sources, folders))
    assert hits == 0 or how == "unreadable"  # the administrator reads everything
    assert n_hits(compiled(sources, folders)) == 1
    assert [stat.S_ISREG(found.lstat().st_mode) for found in folders.write.iterdir()] == [True]


def test_code_of_other_types_is_not_taken_for_it(sources, code):
    folders = find_folders(sources, "")
    compiled(sources, folders)(2.5)
    (real,) = folders.write.glob("*.code")
    real.rename(folders.write / code[0])
    assert n_hits(compiled(sources, folders)) == 0


def test_folders_that_vanish_or_fill_up_do_no_harm(sources, monkeypatch):
    folders = find_folders(sources, "")
    folders.write.rmdir()
    assert n_hits(compiled(sources, folders)) == 0
    assert n_hits(compiled(sources, folders)) == 1

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert n_hits(compiled(sources, folders), 2.5) == 0
    assert len(list(folders.write.iterdir())) == 1


def test_threads_that_write_at_once(sources):
    folders = find_folders(sources, "")
    functions = [compiled(sources, folders) for _ in range(4)]
    threads = [threading.Thread(target=n_hits, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(folders.write.iterdir())) == 1
    assert n_hits(compiled(sources, folders)) == 1


@pytest.mark.parametrize("n_blocked", range(5))
def test_the_first_place_that_can_be_written_to(sources, places, code, n_blocked):
    """A file in the way of a folder stops the administrator, too, whom a read-only folder would not."""
    for place in places[:n_blocked]:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    folders = find_folders(sources, str(places[0]))
    assert folders.write == (None if n_blocked == 4 else places[n_blocked] / _cache_folders._folder_name(sources))
    folders.put(*code)
    assert n_hits(compiled(sources, folders)) == (n_blocked < 4)
    assert not any(place.exists() for place in places[n_blocked + 1 :])


@pytest.mark.parametrize("which", range(4))
def test_our_own_folders_are_trusted_whatever_the_umask(sources, places, which):
    before = os.umask(0)
    try:
        for place in places[:which]:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        folders = find_folders(sources, str(places[0]))
    finally:
        os.umask(before)
    assert folders.write.parent == places[which]
    assert folders.write in folders.read


def test_without_a_home(sources, monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert len(list(_cache_folders._places(sources, ""))) == 2


def test_code_in_a_read_only_package_is_used(sources, places, code, monkeypatch):
    packaged = find_folders(sources, "")
    packaged.put(*code)
    can_write = _cache_folders._can_write
    monkeypatch.setattr(
        _cache_folders, "_can_write", lambda folder: sources not in folder.parents and can_write(folder)
    )
    folders = find_folders(sources, "")
    assert folders.write.parent == places[2]
    assert n_hits(compiled(sources, folders)) == 1
    (packaged.write / code[0]).write_bytes(b"")  # but not a damaged one
    assert compiled(sources, folders)(3) == 6
    assert n_hits(compiled(sources, folders)) == 1


def test_a_place_that_was_asked_for_is_the_only_one(sources, places, code):
    find_folders(sources, "").put(*code)
    folders = find_folders(sources, str(places[0]))
    assert folders.read == (folders.write,)
    assert n_hits(compiled(sources, folders)) == 0
    assert n_hits(compiled(sources, find_folders(sources, ""))) == 1


def lies(monkeypatch, folder, *, uid=None, mode=None):
    """Let a folder seem to have another owner or mode."""
    for name in ("stat", "lstat"):
        real = getattr(os, name)

        def seen(path, *rest, real=real, **more):
            found = real(path, *rest, **more)
            if str(path) != str(folder):
                return found
            return SimpleNamespace(st_uid=found.st_uid if uid is None else uid, st_mode=mode or found.st_mode)

        monkeypatch.setattr(_cache_folders.os, name, seen)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs owners of files")
class TestTrust:
    @pytest.mark.parametrize("lie", [{"uid": 4321}, {"mode": stat.S_IFDIR | 0o777}, {"mode": stat.S_IFDIR | 0o775}])
    @pytest.mark.parametrize("which", ["folder", "place"])
    def test_what_others_can_write_to_is_not_executed(self, sources, places, monkeypatch, lie, which):
        folder = find_folders(sources, str(places[0])).write
        assert folder.parent == places[0]
        lies(monkeypatch, folder if which == "folder" else places[0], **lie)
        folders = find_folders(sources, str(places[0]))
        assert folder not in folders.read
        assert folders.write.parent == places[1]

    def test_a_link_is_not_followed(self, sources, places):
        folder = find_folders(sources, str(places[0])).write
        folder.rename(folder.with_name("elsewhere"))
        folder.symlink_to(folder.with_name("elsewhere"))
        assert folder not in find_folders(sources, str(places[0])).read

    def test_the_folder_for_everybodys_temporary_files(self, sources, places, monkeypatch):
        for place in places[:3]:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        assert find_folders(sources, "").write.parent == places[3]
        lies(monkeypatch, places[3], uid=4321)  # somebody else has made it
        assert find_folders(sources, "") == Folders((), None)

    def test_what_belongs_to_the_owner_of_the_sources_or_the_administrator(self, sources, monkeypatch):
        folder = find_folders(sources, "").write
        monkeypatch.setattr(os, "geteuid", lambda: 4321)
        assert folder in find_folders(sources, "").read


def test_versions_lie_side_by_side_and_old_ones_go(sources):
    names = []
    for i in range(6):
        (sources / "tiny.py").write_text(SOURCE + f"# {i}\n")
        folder = find_folders(sources, "").write
        (folder / "x.code").touch()
        os.utime(folder, (time.time() - 100 + i,) * 2)
        names.append(folder.name)
    assert len(set(names)) == 6
    assert sorted(path.name for path in folder.parent.iterdir()) == sorted(names[-4:])
    (sources / "tiny.py").write_text(SOURCE + "# 3\n")
    assert find_folders(sources, "").write.name == names[3]


@pytest.mark.parametrize("where", [".", "bits"])
def test_a_kernel_that_others_call_may_change(sources, where):
    """Machine code has that of the kernels it calls in it, also of those in other folders."""
    (sources / where).mkdir(exist_ok=True)
    called = sources / where / "called.py"
    names = set()
    for text in ("a = 1\n", "a = 2\n"):
        called.write_text(text)
        names.add(find_folders(sources, "").write.name)
    assert len(names) == 2


def test_what_a_killed_process_was_writing_goes_after_a_while(sources):
    folder = find_folders(sources, "").write
    old, new = folder / "a.part", folder / "b.part"
    old.touch()
    new.touch()
    os.utime(old, (time.time() - 1e5,) * 2)
    find_folders(sources, "")
    assert not old.exists()
    assert new.exists()


def test_only_code_in_files_is_stored():
    names = {}
    exec(SOURCE, names)
    assert not is_storable(names["double"])
    assert not is_storable((lambda y: lambda x: x + y)(1))
    assert is_storable(n_hits)
