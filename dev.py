#!/usr/bin/env python3
"""Set up thali in .venv and run it. Needs nothing but Python >= 3.11 and its pip.

usage: python3 dev.py VERB [arguments handed on]

  setup      make .venv and install thali with its tools (the other verbs do this when needed)
  demo       thali demo: the main job on bundled data
  test       the fast tests
  test-all   all tests, the slow ones too
  bench      the speed benchmark of the collapsed sampler; bench modes | mixing | real_data: the quality ones;
             bench truncation | speakers | doshi_velez_(synthetic|faces|speech) | paisley_(text|genomes): the papers';
             bench priors | uncollapsed | particles | mean_field: the speed of draws, of Gibbs, of the particle filter
             and of coordinate ascent
  lint       ruff check, ruff format --check, mypy
  docs       regenerate the generated tables of the documentation
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 (this file must speak clearly on an older Python)
    sys.exit("dev.py: thali needs Python >= 3.11, this is " + platform.python_version() + ". Try: python3.12 dev.py")

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
STAMP = VENV / "thali-stamp"  # holds "building" until the set-up is complete, then its fingerprint
REQUIREMENTS = ("-c", "constraints.txt", "-e", ".[dev,report,data]")
HOST_PIP = (sys.executable, "-m", "pip", "--no-input", "--python", PYTHON)

REMEDY = """\
dev.py: the set-up failed (see above); the half-built .venv was removed.
  - Is there a connection to the package index? Then run again: python3 dev.py setup
  - Is pip missing or older than 22.3? On Debian or Ubuntu: apt install python3-pip python3-venv
  - uv reads no pip settings; with a mirror, set PIP_INDEX_URL and only pip is used.
  - By hand: python3 -m venv env && env/bin/pip install -c constraints.txt -e ".[dev,report,data]"
"""


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
    child = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
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


def stamp() -> str:
    return STAMP.read_text(encoding="utf-8").strip() if STAMP.exists() else ""


def install() -> bool:
    """Fill the empty .venv: with uv, else with the host's pip, else with the pip inside Python."""
    if not quietly(*HOST_PIP, "--version"):
        say("no usable pip here: trying ensurepip (some minutes) ...")
        return quietly(PYTHON, "-m", "ensurepip") and quietly(PYTHON, "-m", "pip", "install", "--quiet", *REQUIREMENTS)
    if "PIP_INDEX_URL" in os.environ:
        say("PIP_INDEX_URL is set, which uv does not read")
    elif quietly(*HOST_PIP, "install", "--quiet", "uv"):
        say("installing packages with uv ...")
        if quietly(PYTHON, "-m", "uv", "pip", "install", "--quiet", "--python", PYTHON, *REQUIREMENTS):
            return True
        say("uv did not succeed")
    say("installing packages with pip (some minutes) ...")
    return quietly(*HOST_PIP, "install", "--quiet", *REQUIREMENTS)


def setup() -> int:
    """Make .venv unless it is up to date. The stamp comes last, so an interrupted build is redone."""
    wanted = fingerprint()
    if stamp() == wanted and PYTHON.exists():
        return 0
    if Path(sys.prefix).resolve() == VENV:
        say(".venv is out of date and in use by this very Python. Run `deactivate`, then again.")
        return 1
    if VENV.exists() and not stamp():
        say(".venv was not made by dev.py, so it is left alone. Move it away (or remove it) and run again.")
        return 1

    say(f"setting up .venv (Python {platform.python_version()}; once, about a minute)")
    started = time.monotonic()
    done = False
    try:
        shutil.rmtree(VENV, ignore_errors=True)
        VENV.mkdir()
        STAMP.write_text("building\n", encoding="utf-8")
        venv.create(VENV, with_pip=False, symlinks=os.name != "nt")
        if install():
            STAMP.write_text(wanted + "\n", encoding="utf-8")
            done = True
    finally:
        if not done:
            shutil.rmtree(VENV, ignore_errors=True)
    if not done:
        print(REMEDY, end="", file=sys.stderr)
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
