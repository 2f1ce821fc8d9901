"""Deliberately wrong kernels: a copy of the package's kernels with one line changed, compiled.

Every exactness test must fail on its mutants; a change that does not apply any more fails here.
"""

import functools
import importlib
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import thali.kernels

SOURCE = Path(thali.kernels.__file__).parent

# name -> (file, (text, replacement), ...)
MUTANTS = {
    "drop singletons first": (
        "collapsed_rows.py",
        ("q + own_var, s,", "q, s,"),
        ("                q -= own_var\n", ""),
    ),
    "append-order scan": ("row_draws.py", ("j = i + int(u[2 * i] * (K - i))", "j = i")),
    "missing D/2": ("row_draws.py", ("half = 0.5 * n_dims", "half = 0.0 * n_dims")),
    "no factorial in new columns": (
        "row_draws.py",
        ("s / v + n_terms * log_rate - log_factorial", "s / v + n_terms * log_rate"),
    ),
    "imputation without feature variance": (
        "collapsed_rows.py",
        ("math.sqrt(noise_var * (1.0 + q + n_new / ridge))", "math.sqrt(noise_var * (1.0 + n_new / ridge))"),
    ),
    "missing cells used as data": ("collapsed_rows.py", ("used_dims = n_dims - cells.size", "used_dims = n_dims")),
}


@functools.cache
def mutant(name: str) -> dict[str, ModuleType]:
    """The kernel modules with the mutation, by file name without suffix."""
    file, *changes = MUTANTS[name]
    folder = Path(tempfile.mkdtemp(prefix="thali-mutant-"))
    package = f"mutant_{abs(hash(name))}"
    shutil.copytree(SOURCE, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (folder / package).glob("*.py"):
        text = path.read_text().replace("from thali.kernels", f"from {package}")
        if path.name == file:
            for old, new in changes:
                assert text.count(old) == 1, f"mutant {name!r}: {old!r} stands {text.count(old)} times in {file}"
                text = text.replace(old, new)
        path.write_text(text)
    sys.path.insert(0, str(folder))
    try:
        return {stem: importlib.import_module(f"{package}.{stem}") for stem in ("collapsed_rows", "replicates")}
    finally:
        sys.path.remove(str(folder))
