"""dev.py: an environment takes the place of the old one only when it works, wherever a set-up is interrupted.

The tools that install packages are replaced by one that writes a script; nothing is downloaded.
"""

import importlib.util
import os
import re
import shutil
import signal
import sys
import threading
import time
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork") or not (ROOT / "dev.py").exists(), reason="needs a clone, and fork"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of fork beside threads
]


class Repository:
    """A copy of dev.py whose tools are not the real ones."""

    def __init__(self, folder):
        self.folder, self.fails, self.said = folder, None, []
        shutil.copy(ROOT / "dev.py", folder)
        (folder / "pyproject.toml").touch()
        self.version(1)
        spec = importlib.util.spec_from_file_location("dev", folder / "dev.py")
        self.dev = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.dev)
        self.dev.venv = self  # it has a method `create`
        self.dev.install = self.install
        self.dev.quietly = self.quietly
        self.dev.say = self.said.append

    def version(self, number):
        (self.folder / "constraints.txt").write_text(f"package=={number}\n")

    def create(self, folder, **_):
        python = self.dev.python_of(folder)
        python.parent.mkdir()
        python.symlink_to(sys.executable)
        (folder / "pyvenv.cfg").write_text(f"command = python -m venv {folder}\n")

    def install(self):
        bin_folder = self.dev.python_of(self.dev.NEW).parent
        (bin_folder / "thali").write_text(f"#!{bin_folder}/python\n# {(self.folder / 'constraints.txt').read_text()}")
        (bin_folder / "thali").chmod(0o755)
        (self.dev.NEW / "lib").mkdir()
        (self.dev.NEW / "lib" / "module.py").touch()
        if isinstance(self.fails, BaseException):
            raise self.fails
        return self.fails != "install"

    def quietly(self, *command):
        if self.fails == "import" and "-c" in command:
            return False
        if command[0] == self.dev.BIN / "thali":
            return self.fails != "script" and self.script().startswith(f"#!{self.dev.PYTHON}\n")
        return True

    def script(self):
        return (self.dev.BIN / "thali").read_text()

    def has(self, number):
        """Whether .venv is a whole one of this version, and nothing is left beside it."""
        left = {path.name for path in self.folder.iterdir()} - {
            "dev.py",
            "pyproject.toml",
            "constraints.txt",
            "__pycache__",
        }
        return left == {".venv"} and f"package=={number}" in self.script() and self.dev.is_complete(self.dev.VENV)


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


def test_a_set_up_and_a_second_one(repository):
    assert repository.dev.setup() == 0
    assert repository.has(1)
    assert os.access(repository.dev.BIN / "thali", os.X_OK)
    assert str(repository.dev.VENV) in (repository.dev.VENV / "pyvenv.cfg").read_text()
    repository.fails = AssertionError("there is nothing to do")
    assert repository.dev.setup() == 0


FAILURES = [
    "install",
    "import",
    "script",
    KeyboardInterrupt(),
    OSError(28, "No space left on device"),
    RuntimeError("no"),
]


@pytest.mark.parametrize("failure", FAILURES, ids=str)
@pytest.mark.parametrize("had_one", [True, False])
def test_a_failure_keeps_the_old_one(repository, failure, had_one, capsys):
    if had_one:
        assert repository.dev.setup() == 0
    repository.version(2)
    repository.fails = failure
    if isinstance(failure, KeyboardInterrupt | RuntimeError):
        with pytest.raises(type(failure)):
            repository.dev.setup()
    else:
        assert repository.dev.setup() == 1
    assert repository.has(1) == had_one
    if isinstance(failure, str):
        assert ("is still in use" if had_one else "nothing of it is left") in capsys.readouterr().err
    if isinstance(failure, OSError):
        assert "No space left on device" in repository.said[-2]
    assert repository.dev.VENV.exists() == had_one
    repository.fails = None
    assert repository.dev.setup() == 0
    assert repository.has(2)


CHANGES = {
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.remove",
    "os.symlink",
    "os.chmod",
    "shutil.rmtree",
    "shutil.copymode",
}


def killed_at(repository, number):
    """Whether a set-up in another process was killed, which happens before its change of this number on the disk."""
    child = os.fork()
    if child == 0:
        left = [number]

        def kill(event, arguments):
            if event in CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(kill)
        code = 1
        try:
            code = repository.dev.setup()
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("had_one", [True, False])
def test_killed_anywhere(tmp_path, had_one):
    number, is_killed = 0, True
    while is_killed:
        folder = tmp_path / str(number)
        folder.mkdir()
        repository = Repository(folder)
        if had_one:
            assert repository.dev.setup() == 0
        repository.version(2)
        is_killed = killed_at(repository, number)
        repository.fails = "install"
        again = repository.dev.setup()  # which fails, unless the killed one had done it all
        if again == 0:
            assert repository.has(2), number
        else:
            assert repository.has(1) == had_one, number
            assert not repository.dev.NEW.exists()
        repository.fails = None
        assert repository.dev.setup() == 0, number
        assert repository.has(2), number
        number += 1
    assert number > 20


@pytest.mark.parametrize("name", [".venv", ".vnew", ".vold"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "file", "foreign folder"])
def test_what_is_not_ours_is_left_alone(repository, name, kind):
    path = repository.folder / name
    elsewhere = repository.folder / "elsewhere"
    if kind == "link":
        elsewhere.mkdir()
    if "link" in kind:
        path.symlink_to(elsewhere)
    elif kind == "file":
        path.write_text("mine")
    else:
        path.mkdir()
        (path / "mine").touch()
    assert repository.dev.setup() == 1
    words = {"file": "not a folder", "foreign folder": "not made by dev.py"}.get(kind, "symbolic link")
    assert repository.said[-1].startswith(name)
    assert words in repository.said[-1]
    assert "run again" in repository.said[-1]
    assert path.is_symlink() == ("link" in kind)
    assert kind != "file" or path.read_text() == "mine"
    assert kind != "foreign folder" or (path / "mine").exists()


def test_a_link_to_one_that_is_up_to_date_is_used(repository):
    assert repository.dev.setup() == 0
    repository.dev.VENV.rename(repository.folder / "elsewhere")
    repository.dev.VENV.symlink_to(repository.folder / "elsewhere")
    repository.fails = AssertionError("there is nothing to do")
    assert repository.dev.setup() == 0


def test_a_read_only_folder(repository, monkeypatch):
    """The administrator may write to it all the same, so that it has to be played."""

    def refuse(path, *_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    for name in ("mkdir", "rename", "unlink", "write_text"):
        monkeypatch.setattr(Path, name, refuse)
    assert repository.dev.setup() == 1
    assert "Permission denied" in repository.said[-2]
    assert "writable" in repository.said[-1]


def test_two_at_once(repository):
    """The second waits, and finds that all is done."""
    dev, begun, go_on = repository.dev, threading.Event(), threading.Event()
    install = dev.install

    def slow():
        begun.set()
        assert go_on.wait(60)
        return install()

    dev.install = slow
    codes = []
    threads = [threading.Thread(target=lambda: codes.append(dev.setup())) for _ in range(2)]
    threads[0].start()
    assert begun.wait(60)
    threads[1].start()
    end = time.monotonic() + 60
    while not any("waiting" in text for text in repository.said) and time.monotonic() < end:
        time.sleep(0.01)
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert codes == [0, 0]
    assert repository.has(1)
    assert sum("setting up" in text for text in repository.said) == 1


def test_a_tool_that_outlives_its_set_up_is_waited_for(repository, monkeypatch):
    """It could still write into the folder that the next set-up removes."""
    dev = repository.dev
    real = importlib.util.module_from_spec(dev.__spec__)
    dev.__spec__.loader.exec_module(real)
    child = os.fork()
    if child == 0:
        with real.alone():
            os._exit(
                0
                if real.quietly(sys.executable, "-c", f"import os, time; os.kill({os.getpid()}, 9); time.sleep(1)")
                else 1
            )
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert dev.setup() == 0
    assert "waiting" in repository.said[0]


# --- constraints.txt ------------------------------------------------------------------------------


def blocks():
    text = (ROOT / "constraints.txt").read_text()
    return {block.split("==")[0]: block for block in re.split(r"\n(?=\S)", text) if not block.startswith("#")}


def test_everything_has_a_version_and_hashes():
    for name, block in blocks().items():
        first, *hashes = block.rstrip().split(" \\\n")
        assert re.fullmatch(rf"{name}==[\w.]+( ; [^#@:]+)?", first), first
        assert hashes, name
        assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}", line) for line in hashes), name


def test_no_address():
    assert not re.search(r"://|--(extra-)?index|--find-links", (ROOT / "constraints.txt").read_text())


def test_all_that_the_project_asks_for_is_there():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [
        *project["build-system"]["requires"],
        *project["dependency-groups"]["build"],
        *project["project"]["dependencies"],
        *(line for lines in project["project"]["optional-dependencies"].values() for line in lines),
    ]
    assert {re.match(r"[\w.-]+", line)[0] for line in asked} <= blocks().keys()


def test_uv_alone(repository):
    shutil.copy(ROOT / "constraints.txt", repository.folder)
    repository.dev.NEW.mkdir()
    text = repository.dev.uv_alone().read_text()
    assert text == blocks()["uv"].rstrip() + "\n"
