"""`thali doctor`: is everything there, and does it compute the right numbers here?"""

import importlib.metadata as metadata
import os
import platform
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from thali.cli.console import Code, show, show_json


class Finding(NamedTuple):
    """One thing that was looked at."""

    name: str
    value: str
    status: str = "ok"  # or "problem", or "absent" for an optional part
    remedy: str = ""


_STYLE = {"ok": None, "absent": "yellow", "problem": "bold red"}
_MARK = {"ok": "OK", "absent": "--", "problem": "PROBLEM"}


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Write the findings as JSON.")] = False,
) -> None:
    """Check this installation.

    Looks at versions, cores and caches, and computes a small fit whose answer is known.
    """
    looks: list[Callable[[], list[Finding]]] = [_versions, _extras, _cores, _blas, _cache, _computes]
    findings = [finding for look in looks for finding in _safely(look)]
    healthy = all(finding.status != "problem" for finding in findings)
    if json:
        show_json({"healthy": healthy, "findings": [finding._asdict() for finding in findings]})
    else:
        for finding in findings:
            show(f"{_MARK[finding.status]:8}{finding.name:16}{finding.value}", style=_STYLE[finding.status])
            if finding.remedy:
                show(f"{'':8}{'':16}-> {finding.remedy}", style=_STYLE[finding.status])
        show("all is well" if healthy else "there are problems: see above", style="green" if healthy else "bold red")
    if not healthy:
        raise typer.Exit(Code.ERROR)


def _safely(look: Callable[[], list[Finding]]) -> list[Finding]:
    """A look that fails is a finding too."""
    try:
        return look()
    except Exception as error:
        name = look.__name__.strip("_")
        return [Finding(name, f"{type(error).__name__}: {error}", "problem", "reinstall: pip install -U thali")]


def _requirements() -> list[tuple[str, str]]:
    """(package, extra) of everything that thali can use; the extra is "" for what it needs."""
    found = []
    for line in metadata.requires("thali") or []:
        name = re.match(r"[\w.-]+", line)
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", line)
        if name and (extra is None or extra[1] != "dev"):
            found.append((name[0], extra[1] if extra else ""))
    return found


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _versions() -> list[Finding]:
    findings = [Finding("python", platform.python_version()), Finding("thali", metadata.version("thali"))]
    for package, extra in _requirements():
        if not extra:
            version = _version(package)
            remedy = "" if version else f"pip install {package}"
            findings.append(Finding(package, version or "missing", "ok" if version else "problem", remedy))
    return findings


def _extras() -> list[Finding]:
    findings = []
    for package, extra in _requirements():
        if extra:
            version = _version(package)
            remedy = "" if version else f'pip install "thali[{extra}]"'
            findings.append(Finding(package, version or "optional, not there", "ok" if version else "absent", remedy))
    return findings


def _cores() -> list[Finding]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return [Finding("cores", f"{usable} usable of {os.cpu_count()}")]


def _blas() -> list[Finding]:
    import scipy.linalg  # noqa: F401 (loads the library to look at)
    from threadpoolctl import threadpool_info

    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    texts = [f"{pool['internal_api']} {pool['version']}, {pool['num_threads']} threads" for pool in pools]
    return [Finding("BLAS", "; ".join(dict.fromkeys(texts)) or "none seen")]


def _cache() -> list[Finding]:
    """Without a cache every run compiles anew."""
    from thali.cli.warm_up import cache_folders

    found = cache_folders()
    if found is None:
        return [Finding("kernel cache", "compilation is off", "problem", "unset NUMBA_DISABLE_JIT")]
    if found.write is None:
        remedy = "set NUMBA_CACHE_DIR to a folder that only you can write to"
        return [Finding("kernel cache", "there is no writable folder of your own", "problem", remedy)]
    return [Finding("kernel cache", f"{_short(found.write)} is writable")]


def _short(path: Path) -> str:
    try:
        return f"~/{path.relative_to(Path.home()).as_posix()}"
    except (ValueError, RuntimeError):
        return str(path)


def _computes() -> list[Finding]:
    from thali.cli.known_answer import check
    from thali.cli.warm_up import compile_kernels

    compile_kernels()
    start = time.monotonic()
    complaints = check()
    if complaints:
        remedy = "update numpy and numba, empty the kernel cache; if it stays, report it with this output"
        return [Finding("small fit", text, "problem", remedy) for text in complaints]
    return [Finding("small fit", f"as expected ({time.monotonic() - start:.1f} s)")]
