"""The rules of the house, checked on the source text: who may import whom, and what no file may do.

Every rule is a function from source text to a list of complaints, so each is also tried on bad text below.
"""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "thali"
REFERENCE = ROOT / "tests" / "reference"

# A unit is a module or a folder directly below thali. It may import itself and every unit further down.
ORDER = (
    "__main__",
    "cli",
    "__init__",
    "testing",  # what contributors and users check their own parts with
    "counting",
    "grouping",
    "dependence",
    "river",
    "compare",
    "reopen",
    "estimator",
    "report",
    "running",
    "storage",
    "inference",
    "truncation",
    "datasets",
    "posteriors",
    "verdicts",
    "observations",
    "priors",
    "io",
    "metrics",
    "data",
    "core",
    "kernels",
    "files",
    "numerics",
    "rng",
    "errors",
)

# Upward, and allowed for the time being (importer, imported).
EXCEPTIONS: set[tuple[str, str]] = set()

# Lower, and still out of reach.
FORBIDDEN = {
    ("inference", "priors"),
    ("inference", "observations"),
    ("observations", "priors"),
    ("testing", "estimator"),
    ("testing", "report"),
}

# Where a third-party package may be imported: folders end in a slash.
HOMES = {
    "numba": ("kernels/",),
    "sklearn": ("estimator.py", "running/fit_warnings.py", "compare.py", "datasets.py"),
    "matplotlib": ("report/",),
    "river": ("river.py",),
    "dask": ("running/cluster/",),
    "distributed": ("running/cluster/",),
    "threadpoolctl": ("numerics/blas.py", "cli/verbs/doctor.py"),  # limits that overlap would undo each other
}

HEAVY = ("sklearn", "scipy.stats", "numba", "pandas", "matplotlib", "arviz_stats")
RANDOM_NAMES = {"Generator", "SeedSequence"}
VAGUE_FILES = {"utils.py", "util.py", "helpers.py", "misc.py"}
MAX_LINES = 400

SOURCES = sorted(PACKAGE.rglob("*.py"))
DEPTH = {unit: depth for depth, unit in enumerate(ORDER)}
Function = ast.FunctionDef | ast.AsyncFunctionDef


# --- the rules ------------------------------------------------------------------------------------


def unit_of(path: str) -> str:
    """The unit of a file given relative to src/thali: 'priors/ibp.py' -> 'priors', 'run.py' -> 'run'."""
    return Path(path).parts[0].removesuffix(".py")


def imports(source: str) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything imported, also inside functions and under TYPE_CHECKING."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def wrong_directions(path: str, source: str) -> list[str]:
    importer = unit_of(path)
    if importer not in DEPTH:
        return [f"{path}: '{importer}' has no place; add it to ORDER in tests/test_architecture.py"]
    found = []
    for line, name in imports(source):
        head, *rest = name.split(".")
        if head != "thali":
            continue
        known = bool(rest) and (
            rest[0] in DEPTH or (PACKAGE / rest[0]).is_dir() or (PACKAGE / f"{rest[0]}.py").is_file()
        )
        imported = rest[0] if known else "__init__"  # `import thali` or `from thali import IBP`
        pair = (importer, imported)
        if imported not in DEPTH:
            found.append(f"{path}:{line}: imports thali.{imported}, which has no place; add it to ORDER")
        elif pair in FORBIDDEN:
            found.append(f"{path}:{line}: {importer} must not import {imported}")
        elif DEPTH[imported] < DEPTH[importer] and pair not in EXCEPTIONS:
            found.append(f"{path}:{line}: {importer} imports {imported}, which lies above it")
    return list(dict.fromkeys(found))  # `from thali.core.spec import a, b` is one complaint


def strayed_packages(path: str, source: str) -> list[str]:
    found = []
    for line, name in imports(source):
        package = name.split(".")[0]
        homes = HOMES.get(package)
        if homes and not any(path == home or (home.endswith("/") and path.startswith(home)) for home in homes):
            found.append(f"{path}:{line}: {package} belongs only in {', '.join(homes)}")
    return found


def relative_imports(path: str, source: str) -> list[str]:
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom) and node.level > 0)
    return [f"{path}:{node.lineno}: relative import" for node in nodes]


def global_randomness(path: str, source: str) -> list[str]:
    """Random numbers come from a Generator handed in; only rng.py may make one."""
    if path == "rng.py":
        return []
    found = []
    for line, name in imports(source):
        from_numpy = name.startswith("numpy.random") and name.removeprefix("numpy.random.") not in RANDOM_NAMES
        if name.split(".")[0] == "random" or from_numpy:
            found.append(f"{path}:{line}: import of {name}; take a numpy Generator as an argument")

    tree = ast.parse(source)
    numpy_names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "numpy"
    } | {"np", "numpy"}
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    harmless = {id(node.value) for node in attributes if node.attr in RANDOM_NAMES}
    for node in attributes:
        of_numpy = isinstance(node.value, ast.Name) and node.value.id in numpy_names
        if of_numpy and node.attr == "random" and id(node) not in harmless:
            found.append(f"{path}:{node.lineno}: numpy.random; take a numpy Generator as an argument")

    for node in ast.walk(tree):  # scipy's rvs falls back on the global state
        is_rvs = isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "rvs"
        if is_rvs and all(keyword.arg != "random_state" for keyword in node.keywords):
            found.append(f"{path}:{node.lineno}: rvs() without random_state draws from the global state")
    return found


def too_long(path: str, source: str) -> list[str]:
    n_lines = len(source.splitlines())
    return [f"{path}: {n_lines} lines, at most {MAX_LINES}"] if n_lines > MAX_LINES else []


def functions(source: str) -> dict[str, Function]:
    return {node.name: node for node in ast.parse(source).body if isinstance(node, Function)}


def argument_names(function: Function) -> list[str]:
    a = function.args
    stars = [star.arg for star in (a.vararg, a.kwarg) if star]
    return [argument.arg for argument in (*a.posonlyargs, *a.args, *a.kwonlyargs)] + stars


def is_jit(node: ast.expr) -> bool:
    """Is this `jit`, `parallel_jit`, `_jit.jit`, or a call of one of them?"""
    node = node.func if isinstance(node, ast.Call) else node
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name in {"jit", "parallel_jit", "inlined"}


def kernels(source: str) -> dict[str, list[str] | None]:
    """Public name -> argument names of each compiled function (None if its plain form is not in the file)."""
    plain = functions(source)
    found: dict[str, list[str] | None] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and is_jit(node.value):
            first = node.value.args[0] if node.value.args else None
            function = plain.get(first.id) if isinstance(first, ast.Name) else None
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found[target.id] = argument_names(function) if function else None
        elif isinstance(node, Function) and any(map(is_jit, node.decorator_list)):
            found[node.name] = argument_names(node)
    return {name: arguments for name, arguments in found.items() if not name.startswith("_")}


def missing_twins(path: str, source: str, reference: str) -> list[str]:
    """Each public kernel has a readable twin with the same arguments in tests/reference."""
    twins = functions(reference)
    found = []
    for name, arguments in kernels(source).items():
        if arguments is None:
            found.append(f"{path}: {name} must be jit(_plain_function_of_this_file)")
        elif name not in twins:
            found.append(f"{path}: {name} has no twin in tests/reference/{path.removeprefix('kernels/')}")
        elif argument_names(twins[name]) != arguments:
            found.append(f"{path}: {name}({', '.join(arguments)}) has a twin with other arguments")
    return found


# --- the rules hold in src/thali ------------------------------------------------------------------


def complain(found: list[str]) -> None:
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.mark.parametrize(
    "rule",
    [wrong_directions, strayed_packages, relative_imports, global_randomness, too_long],
    ids=lambda r: r.__name__,
)
def test_sources_keep_the_rule(rule) -> None:
    assert SOURCES, f"no sources below {PACKAGE}"
    complain([c for p in SOURCES for c in rule(p.relative_to(PACKAGE).as_posix(), p.read_text(encoding="utf-8"))])


def test_every_kernel_has_a_twin() -> None:
    found = []
    for path in sorted((PACKAGE / "kernels").rglob("*.py")):
        if path.name.startswith("_"):
            continue
        where = path.relative_to(PACKAGE / "kernels")
        twin = REFERENCE / where
        reference = twin.read_text(encoding="utf-8") if twin.exists() else ""
        found += missing_twins(f"kernels/{where.as_posix()}", path.read_text(encoding="utf-8"), reference)
    complain(found)


def test_no_file_has_a_vague_name() -> None:
    folders = [ROOT / name for name in ("src", "tests", "benchmarks", "docs", "examples")]
    files = [*ROOT.glob("*.py"), *(path for folder in folders for path in folder.rglob("*.py"))]
    complain([f"{path.relative_to(ROOT)}: say what it holds" for path in files if path.name in VAGUE_FILES])


@pytest.mark.parametrize("module", ["thali", "thali.cli.main"])
def test_import_is_light(module: str) -> None:
    code = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    heavy = sorted(set(HEAVY) & set(json.loads(result.stdout)))
    assert not heavy, f"`import {module}` also imports {heavy}: import them where they are used"


# --- the table is sound ---------------------------------------------------------------------------


def test_each_unit_has_one_place_and_exceptions_are_used() -> None:
    assert len(DEPTH) == len(ORDER)
    used = set()
    for path in SOURCES:
        importer = unit_of(path.relative_to(PACKAGE).as_posix())
        used |= {(importer, name.split(".")[1]) for _, name in imports(path.read_text()) if name.startswith("thali.")}
    assert used >= EXCEPTIONS
    assert all(DEPTH[imported] < DEPTH[importer] for importer, imported in EXCEPTIONS)


# --- each rule can see ----------------------------------------------------------------------------

BAD = [
    (wrong_directions, "kernels/bits/rows.py", "from thali.running.runner import run"),
    (wrong_directions, "priors/ibp.py", "from thali.observations.ica import ICA"),
    (wrong_directions, "observations/ica.py", "import thali.priors.ibp"),
    (wrong_directions, "inference/gibbs.py", "from thali.priors import IBP"),
    (wrong_directions, "inference/gibbs.py", "def f():\n    from thali import observations"),
    (wrong_directions, "testing/sbc.py", "from thali.estimator import LatentFeatures"),
    (wrong_directions, "testing/sbc.py", "from thali.report import page"),
    (wrong_directions, "report/page.py", "from thali.cli import main"),
    (wrong_directions, "numerics/series.py", "from thali.core.spec import Spec"),
    (wrong_directions, "running/chains.py", "from thali import LatentFeatures"),
    (wrong_directions, "running/chains.py", "import thali"),
    (wrong_directions, "errors.py", "from thali.rng import spawn"),
    (wrong_directions, "novelty.py", "x = 1"),
    (strayed_packages, "inference/gibbs.py", "import numba"),
    (strayed_packages, "core/model.py", "def f():\n    from sklearn.base import clone"),
    (strayed_packages, "inference/estimator.py", "import sklearn"),
    (strayed_packages, "posteriors/draws.py", "import matplotlib.pyplot as plt"),
    (strayed_packages, "running/chains.py", "import dask.array"),
    (relative_imports, "running/chains.py", "from . import model"),
    (relative_imports, "priors/ibp.py", "from ..spec import Spec"),
    (global_randomness, "running/chains.py", "import random"),
    (global_randomness, "running/chains.py", "from random import choice"),
    (global_randomness, "running/chains.py", "import numpy as np\nnp.random.seed(1)"),
    (global_randomness, "running/chains.py", "import numpy as np\nr = np.random.default_rng(1)"),
    (global_randomness, "running/chains.py", "import numpy as np\nr = np.random"),
    (global_randomness, "running/chains.py", "import numpy as xp\nxp.random.normal()"),
    (global_randomness, "running/chains.py", "from numpy.random import default_rng"),
    (global_randomness, "running/chains.py", "from numpy import random"),
    (global_randomness, "running/chains.py", "import numpy.random as r"),
    (global_randomness, "inference/rng.py", "import random"),
    (global_randomness, "running/chains.py", "x = norm.rvs(size=3)"),
    (too_long, "running/chains.py", "x = 1\n" * (MAX_LINES + 1)),
]

GOOD = [
    (wrong_directions, "cli/main.py", "import thali\nfrom thali import IBP, datasets"),
    (wrong_directions, "estimator.py", "from thali.posteriors.draws import Draws\nfrom thali.report import page"),
    (
        wrong_directions,
        "inference/gibbs.py",
        "from thali.inference.samplers.column_moves import split\nfrom thali.core.protocols.prior import P",
    ),
    (wrong_directions, "priors/ibp.py", "import thalia\nfrom thali.errors import ThaliError"),
    (wrong_directions, "testing/sbc.py", "from thali import priors, running\nfrom thali.core.model import Model"),
    (strayed_packages, "kernels/_jit.py", "import numba"),
    (strayed_packages, "report/figures.py", "import matplotlib.pyplot as plt"),
    (strayed_packages, "estimator.py", "from sklearn.base import BaseEstimator"),
    (global_randomness, "rng.py", "import numpy as np\nr = np.random.default_rng(1)"),
    (
        global_randomness,
        "running/chains.py",
        "import numpy as np\ndef f(r: np.random.Generator, s: np.random.SeedSequence): ...",
    ),
    (
        global_randomness,
        "running/chains.py",
        "from numpy.random import Generator\nx = norm.rvs(size=3, random_state=rng)",
    ),
    (too_long, "running/chains.py", "x = 1\n" * MAX_LINES),
]


@pytest.mark.parametrize(("rule", "path", "source"), BAD)
def test_rule_fires(rule, path: str, source: str) -> None:
    assert rule(path, source)


@pytest.mark.parametrize(("rule", "path", "source"), GOOD)
def test_rule_lets_pass(rule, path: str, source: str) -> None:
    assert rule(path, source) == []


KERNEL = "def _sweep(X, Z, u):\n    pass\nsweep = jit(_sweep)\n"


@pytest.mark.parametrize(
    ("source", "reference"),
    [
        (KERNEL, ""),
        (KERNEL, "def _sweep(X, Z, u): ..."),
        (KERNEL, "def sweep(X, Z): ..."),
        (KERNEL, "def sweep(Z, X, u): ..."),
        (KERNEL.replace("jit", "_jit.parallel_jit"), ""),
        ("sweep = jit(imported)", "def sweep(): ..."),
        ("@jit\ndef sweep(X): ...", ""),
    ],
)
def test_missing_twin_is_seen(source: str, reference: str) -> None:
    assert missing_twins("kernels/rows.py", source, reference)


@pytest.mark.parametrize("source", [KERNEL, KERNEL.replace("sweep =", "_private ="), "table = build()"])
def test_twin_is_accepted(source: str) -> None:
    assert missing_twins("kernels/rows.py", source, "def sweep(X, Z, u): ...") == []
