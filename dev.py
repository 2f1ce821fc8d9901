#!/usr/bin/env python3
"""Set up thali in .venv and run it. Needs nothing but Python >= 3.11 and its pip.

usage: python3 dev.py VERB [arguments handed on]

  setup      make .venv and install thali with its tools (the other verbs do this when needed)
  demo       thali demo: the main job on bundled data
  test       the fast tests
  test-all   all tests, the slow ones too
  bench      the speed benchmark of the collapsed sampler; bench modes | mixing | real_data: the quality ones;
             bench truncation | speakers | doshi_velez_(synthetic|faces|speech) | paisley_(text|genomes) |
             nsfa_(toy|mnist|genes) | recursive_(marginals|pca|synthetic|digits|tabular|omniglot|zero_noise) |
             dd_ibp_(props|drift|eeg): the papers';
             bench priors | uncollapsed | particles | mean_field | links | recursive | stream: the speed of draws, of
             Gibbs, of the particle filter, of coordinate ascent, of linked rows, of rows that are forgotten
             (--rows 10000000 --dims 20: a long stream, with its memory), and of `thali stream`
  lint       ruff check, ruff format --check, mypy
  docs       regenerate the generated tables of the documentation
"""

import contextlib
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if sys.version_info < (3, 11):  # noqa: UP036 (this file must speak clearly on an older Python)
    sys.exit("dev.py: thali needs Python >= 3.11, this is " + platform.python_version() + ". Try: python3.12 dev.py")

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
NEW = ROOT / ".vnew"  # where .venv is built; paths inside are rewritten when it is moved, so names have one length
OLD = ROOT / ".vold"  # the .venv from before, until the new one is seen to work
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
STAMP = "thali-stamp"  # a file in each of the three that holds BUILDING, then the fingerprint
BUILDING = "building"

# Everything has its version and its hashes, the tools that build thali too; thali itself is then put in place by them.
REQUIREMENTS = ("--require-hashes", "--only-binary", ":all:", "-r", "constraints.txt")
THALI = ("--no-deps", "--no-build-isolation", "-e", ".")

REMEDY = """\
dev.py: the set-up failed (see above); {state}.
  - Is there a connection to the package index? Then run again: python3 dev.py setup
  - Is pip missing or older than 22.3? On Debian or Ubuntu: apt install python3-pip python3-venv
  - uv reads no pip settings; with a mirror, set PIP_INDEX_URL and only pip is used.
  - By hand: python3 -m venv env && env/bin/pip install -r constraints.txt && env/bin/pip install --no-deps -e .
"""

_locks: list[int] = []  # held by this process and by what it starts


def say(text: str) -> None:
    print(f"dev.py: {text}", file=sys.stderr, flush=True)


def run(*command: object) -> int:
    """Run a command in the repository root; its exit code. After Ctrl-C the command may finish first."""
    child = subprocess.Popen([str(part) for part in command], cwd=ROOT)
    try:
        code = child.wait()
    except KeyboardInterrupt:
        child.wait()
        raise
    return code if code >= 0 else 128 - code  # a signal n gives 128 + n, as in a shell


def quietly(*command: object) -> bool:
    """Run a command of the set-up and tell whether it succeeded; show what it said only if it failed."""
    words = [str(part) for part in command]
    child = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=_locks)
    if child.returncode != 0:
        print(child.stdout.decode(errors="replace"), end="", file=sys.stderr, flush=True)
    return child.returncode == 0


# --- the environment ------------------------------------------------------------------------------


def fingerprint() -> str:
    """Changes when .venv has to be made anew: other requirements, another Python, or the folder was moved."""
    digest = hashlib.sha256(f"{sys.version}\n{ROOT}\n".encode())
    for name in ("pyproject.toml", "constraints.txt"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def python_of(folder: Path) -> Path:
    return folder / PYTHON.relative_to(VENV)


def stamp(folder: Path) -> str:
    path = folder / STAMP
    return path.read_text(encoding="utf-8", errors="replace").strip() if path.is_file() else ""


def write_stamp(folder: Path, text: str) -> None:
    part = folder / f"{STAMP}.part"
    part.write_text(text + "\n", encoding="utf-8")
    part.replace(folder / STAMP)


def is_complete(folder: Path) -> bool:
    return stamp(folder) not in ("", BUILDING) and python_of(folder).exists()


def is_ready(wanted: str) -> bool:
    """Whether .venv is up to date and no set-up is at work or was killed."""
    return stamp(VENV) == wanted and PYTHON.exists() and not os.path.lexists(NEW) and not os.path.lexists(OLD)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One set-up at a time. What it starts holds the lock, too: a pip that outlives a killed dev.py is waited for."""
    if fcntl is None:
        yield
        return
    handle = os.open(ROOT, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another set-up is at work here: waiting for it ...")
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:  # a file system without locks
            pass
        _locks.append(handle)
        yield
    finally:
        _locks.clear()
        os.close(handle)


def complaint() -> str:
    """Why the folders cannot be used; empty if they are ours to replace, or not there."""
    for path in (VENV, NEW, OLD):
        if path.is_symlink():
            return f"{path.name} is a symbolic link, which dev.py does not replace. Remove the link and run again."
        if path.exists() and not path.is_dir():
            return f"{path.name} is not a folder, so it is left alone. Move it away (or remove it) and run again."
        names = {child.name for child in path.iterdir()} if path.exists() else set()
        if names and not names & {STAMP, f"{STAMP}.part"}:
            return (
                f"{path.name} was not made by dev.py, so it is left alone. Move it away (or remove it) and run again."
            )
    return ""


def remove(folder: Path) -> None:
    """The stamp goes last: what a killed removal leaves is known as ours."""
    if not folder.exists():
        return
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != STAMP:
            path.unlink()
    (folder / STAMP).unlink(missing_ok=True)
    folder.rmdir()


def tidy() -> None:
    """After a set-up that failed or was killed: the .venv from before is back in its place, nothing else is left."""
    if not is_complete(VENV):
        remove(VENV)
        if is_complete(OLD):
            OLD.rename(VENV)
    remove(OLD)
    remove(NEW)


def uv_alone() -> Path:
    """A file of requirements with nothing but uv, its version and its hashes."""
    chosen, is_uv = [], False
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith((" ", "#")):
            is_uv = line.startswith("uv==")
        if is_uv:
            chosen.append(line)
    path = NEW / "uv.txt"
    path.write_text("\n".join(chosen) + "\n", encoding="utf-8")
    return path


def install() -> bool:
    """Fill the empty environment: with uv, else with the host's pip, else with the pip inside Python."""
    python = python_of(NEW)
    host_pip = (sys.executable, "-m", "pip", "--no-input", "--python", python)
    if not quietly(*host_pip, "--version"):
        say("no usable pip here: trying ensurepip (some minutes) ...")
        return quietly(python, "-m", "ensurepip") and installed_by(python, "-m", "pip", "install")
    if "PIP_INDEX_URL" in os.environ:
        say("PIP_INDEX_URL is set, which uv does not read")
    elif quietly(*host_pip, "install", "--quiet", "--require-hashes", "-r", uv_alone()):
        say("installing packages with uv ...")
        # byte code as pip makes it: without, each process would compile all packages anew where it may not write any
        if installed_by(python, "-m", "uv", "pip", "install", "--compile-bytecode", "--python", python):
            return True
        say("uv did not succeed")
    say("installing packages with pip (some minutes) ...")
    return installed_by(*host_pip, "install")


def installed_by(*installer: object) -> bool:
    return quietly(*installer, "--quiet", *REQUIREMENTS) and quietly(*installer, "--quiet", *THALI)


def rewrite_paths() -> None:
    """Scripts name the Python that runs them. A file may be a link into a cache: it is replaced, not written to."""
    old, new = (str(folder).encode() for folder in (NEW, VENV))
    for path in (NEW / "pyvenv.cfg", *python_of(NEW).parent.iterdir()):
        if path.is_file() and not path.is_symlink() and old in (content := path.read_bytes()):
            part = path.with_name(f"{path.name}.part")
            part.write_bytes(content.replace(old, new))
            shutil.copymode(path, part)
            part.replace(path)


def build(wanted: str) -> bool:
    """Make the new environment beside .venv, and let it take its place once it is seen to work."""
    NEW.mkdir()
    write_stamp(NEW, BUILDING)
    venv.create(NEW, with_pip=False, symlinks=os.name != "nt", prompt=VENV.name)
    if not install() or not quietly(python_of(NEW), "-c", "import numpy, scipy, numba, thali"):
        return False
    rewrite_paths()
    if VENV.exists():
        VENV.rename(OLD)
    NEW.rename(VENV)
    if not quietly(BIN / "thali", "--version"):
        return False
    write_stamp(VENV, wanted)
    return True


def setup() -> int:
    """Make .venv unless it is up to date. A set-up that fails or is killed at any point leaves the old one in use."""
    wanted = fingerprint()
    if is_ready(wanted):
        return 0
    try:
        with alone():
            return 0 if is_ready(wanted) else renew(wanted)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        say(f"cannot set up .venv in {ROOT}: {error.strerror or error}{where}.")
        say("Is the folder writable, and is there space (1 GB)? A copy of it elsewhere may be used, too.")
        return 1


def renew(wanted: str) -> int:
    wrong = complaint()
    if wrong:
        say(wrong)
        return 1
    if Path(sys.prefix).resolve() == VENV:
        say(".venv is out of date and in use by this very Python. Run `deactivate`, then again.")
        return 1
    tidy()
    if is_ready(wanted):
        return 0
    say(f"setting up .venv (Python {platform.python_version()}; once, about a minute)")
    started = time.monotonic()
    try:
        done = build(wanted)
    finally:
        with contextlib.suppress(OSError):  # the next set-up does what is left
            tidy()
    if not done:
        state = "the .venv from before is still in use" if VENV.exists() else "nothing of it is left behind"
        print(REMEDY.format(state=state), end="", file=sys.stderr)
        return 1
    say(f"ready in {time.monotonic() - started:.0f} s")
    return 0


# --- the verbs ------------------------------------------------------------------------------------


def demo(*extra: str) -> int:
    return run(BIN / "thali", "demo", *extra)


def test(*extra: str) -> int:
    return run(PYTHON, "-m", "pytest", "-m", "not slow", "-n", "2", "--dist", "worksteal", *extra)


def test_all(*extra: str) -> int:
    return run(PYTHON, "-m", "pytest", "-n", "2", "--dist", "worksteal", *extra)


def bench(*extra: str) -> int:
    for folder in ("speed", "quality", "papers"):
        if extra and (ROOT / "benchmarks" / folder / (extra[0] + ".py")).exists():
            return run(PYTHON, Path("benchmarks", folder, extra[0] + ".py"), *extra[1:])
    return run(PYTHON, Path("benchmarks", "speed", "collapsed.py"), *extra)


def lint(*extra: str) -> int:
    tools = (("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy", "src/thali"))
    return max(run(PYTHON, "-m", *tool) for tool in tools)


def docs(*extra: str) -> int:
    if not (ROOT / "docs" / "build.py").exists():
        say("there is no docs/build.py, so nothing to generate")
        return 0
    return run(PYTHON, Path("docs", "build.py"), *extra)


VERBS = {"demo": demo, "test": test, "test-all": test_all, "bench": bench, "lint": lint, "docs": docs}


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in {"setup", *VERBS}:
        print(__doc__, end="", file=sys.stderr)
        return 2
    verb, *extra = arguments
    code = setup()
    if code != 0 or verb == "setup":
        return code
    return VERBS[verb](*extra)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
