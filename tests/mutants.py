"""Deliberately wrong kernels: a copy of the package's kernels with one line changed, compiled.

Every exactness test must fail on its mutants; a change that does not apply any more fails here.
"""

import contextlib
import functools
import hashlib
import importlib
import inspect
import re
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import thali.kernels

MODULES = (
    "bits.collapsed_rows", "bits.replicates", "bits.move_replicates", "bits.parallel_sweep", "bits.importance_rows",
    "weights.swaps", "links.linked_replicates", "weights.sparse_replicates", "weights.class_replicates",
    "counts.poisson_sweeps",
)  # fmt: skip
SOURCE = Path(thali.kernels.__file__).parent
CACHE = Path(__file__).parents[1] / ".pytest_cache" / "mutants"

# the second column is the one that shares most members with the first
LIKE_COLUMNS = """
@jit
def like_columns(K, n_columns, gram, rng):
    columns = pick_columns(K, n_columns, rng)
    if n_columns == 2:
        best = -1.0
        for k in range(K):
            if k != columns[0] and gram[k, columns[0]] + 1e-3 * k > best:
                best = gram[k, columns[0]] + 1e-3 * k
                columns[1] = k
    return columns


"""

# preferences by the numbers of owners that classes had before these moved
STALE_PREFERENCES = """
from thali.kernels.weights.class_rows import preference_law
from thali.kernels.weights.polya_gamma import draw_polya_gamma_sum


@jit
def stale_preferences(G, precisions, classes, before, preferences, rng):
    for i in range(preferences.shape[0]):
        mine = classes == i
        for k in range(preferences.shape[1]):
            omega = draw_polya_gamma_sum(np.sum(before == i), preferences[i, k], rng)
            g = G[:, k] * mine
            mean, curve = preference_law(np.sum(mine), np.count_nonzero(g), np.sum(g), precisions[k], omega)
            preferences[i, k] = mean + rng.standard_normal() / np.sqrt(curve)


"""

# name -> (file, (text, replacement), ...)
MUTANTS = {
    "links: the likelihood of one row": (
        "links/link_sweep.py",
        ("part, K, tree.stack, n_moved, sign, visit)", "part, K, tree.stack, 1, sign, visit)"),
    ),
    "links: births with a binomial factor": (
        "links/ownership.py",
        ("        # eq: DD.ownership-ratio\n", "        gain += math.log(n_born + 1.0) - math.log(n_dead + 1.0)\n"),
    ),
    "links: the owner stays": ("links/trees.py", ("if u >= ratio:", "if u >= 1e9:")),
    "links: a shift without the other rows": (
        "links/owner_shift.py",
        ("ratio += log_shift(graph, tree, row, owner, sign)", "log_shift(graph, tree, row, owner, sign)"),
    ),
    "own factors dropped first": (
        "weights/sparse_rows.py",
        ("n_own = independent_own(own, n_own, most,", "n_own = independent_own(own, 0, most,"),
    ),
    "number of factors frozen": (
        "weights/sparse_rows.py",
        ("is_stale = np.zeros(capacity, np.bool_)", "K_before = K\n    is_stale = np.zeros(capacity, np.bool_)"),
        (
            "            else:\n                order[n_others] = k",
            "            elif k < K_before:\n                order[n_others] = k",
        ),
    ),
    "factors in memory order": (
        "weights/sparse_rows.py",
        ("k = next_of(order, i, n_others, rng.random())", "k = order[i]"),
    ),
    "a factor (2 pi)^(n / 2) for each new one": (
        "weights/own_factors.py",
        (
            "    ratio += log_proposed(n_own, boost * new_rate, share)",
            "    ratio += 0.5 * n_seen * (n_new - n_own) * math.log(2.0 * math.pi)\n"
            "    ratio += log_proposed(n_own, boost * new_rate, share)",
        ),
    ),
    "born of noise without its prior": (
        "weights/own_factors.py",
        ("ratio = log_noise(more, noise_law) - now + math.log(n_own / new_rate)", "ratio = math.log(n_own / new_rate)"),
    ),
    "loadings kept where bits are off": (  # the same law (Hadamard form): it must pass
        "weights/sparse_replicates.py",
        (
            "square += G[i, n, k] * G[i, n, k]",
            "square += G[i, n, k] ** 2 if G[i, n, k] != 0.0 else rng.standard_normal() ** 2 / precisions[i, k]",
        ),
        ("0.5 * counts[k]", "0.5 * n_rows"),
    ),
    "precisions by loadings that are off": (
        "weights/sparse_replicates.py",
        ("0.5 * counts[k]", "0.5 * n_rows"),
    ),
    "preferences without the Polya-Gamma variable": (
        "weights/class_rows.py",
        ("curve = 1.0 + omega + precision * n_on", "curve = 1.0 + precision * n_on"),
    ),
    "Polya-Gamma variables of classes as they were": (
        "weights/class_replicates.py",
        ("        draw_loadings(Y[i]", "        before = classes[i].copy()\n        draw_loadings(Y[i]"),
        (
            "draw_preferences(G[i], precisions[i], classes[i], preferences[i], rng)",
            "stale_preferences(G[i], precisions[i], classes[i], before, preferences[i], rng)",
        ),
        ("def _class_replicates(", STALE_PREFERENCES + "def _class_replicates("),
    ),
    "classes given Polya-Gamma variables of classes": (
        "weights/class_rows.py",
        ("total -= max(v, 0.0) + math.log1p(math.exp(-abs(v)))", "total -= 0.5 * v + 0.5 * omega[k] * v * v"),
        ("def _log_class(g, precisions, preference):", "def _log_class(g, precisions, preference, omega):"),
        ("log_class(G[n], precisions, preferences[i])", "log_class(G[n], precisions, preferences[i], omegas[i])"),
        (
            "    log_weights = np.zeros(n_classes)\n",
            "    log_weights = np.zeros(n_classes)\n    omegas = np.zeros(preferences.shape)\n"
            "    for n in range(G.shape[0]):\n        for k in range(G.shape[1]):\n"
            "            omegas[classes[n], k] += draw_polya_gamma_sum(1, preferences[classes[n], k], rng)\n",
        ),
    ),
    "classes without the bits that are off": (
        "weights/class_rows.py",
        ("total -= max(v, 0.0) + math.log1p(math.exp(-abs(v)))", "total -= 0.0"),
    ),
    "drop singletons first": (
        "bits/collapsed_rows.py",
        ("own_var = n_own / ridge", "own_var = 0.0"),
    ),
    "append-order scan": ("bits/row_draws.py", ("next_of(order, i, K, u[2 * i])", "order[i]")),
    "missing D/2": (
        "bits/row_draws.py",
        (
            "half = 0.5 * n_dims\n    scale = 0.5 * precision\n    u, u_bit",
            "half = 0.0\n    scale = 0.5 * precision\n    u, u_bit",
        ),
    ),
    "groups without prior odds": ("bits/row_draws.py", ("odds += step * log_odds[others[k]]", "odds += 0.0")),
    "groups without the cross term": ("bits/row_draws.py", ("(1.0 if o == i else 2.0)", "1.0")),
    "no K! in the target": ("bits/column_moves.py", ("total = -math.lgamma(K + 1.0)", "total = 0.0")),
    "no proposal density": (
        "bits/column_moves.py",
        ("return K, after - before + log_backward - log_forward", "return K, after - before"),
    ),
    "no launch for the way back": (
        "bits/column_moves.py",
        (
            "        log_q = launch_columns(X, Z, first, K, gram",
            "        log_q = pattern_log_probs(X, Z, first, K, gram",
        ),
        (
            "cross, R, noise_var, feature_var, rng)\n        log_backward",
            "cross, noise_var, feature_var)\n        log_backward",
        ),
    ),
    "partner by likeness": (
        "bits/move_replicates.py",
        ("columns = pick_columns(K[i], old, rng)", "columns = like_columns(K[i], old, gram, rng)"),
        (
            "pair = pick_columns(K[i], 2, rng)\n        log_ratio = propose_recoding(",
            "pair = like_columns(K[i], 2, gram, rng)\n        log_ratio = propose_recoding(",
        ),
        ("def _rebirth_replicates(", LIKE_COLUMNS + "def _rebirth_replicates("),
    ),
    "recoding without its backward part": (
        "bits/column_moves.py",
        ("return after - before + log_backward - log_forward", "return after - before - log_forward"),
    ),
    "no factorial in new columns": (
        "bits/row_draws.py",
        ("s / v + n_terms * log_rate - log_factorial", "s / v + n_terms * log_rate"),
    ),
    "imputation without feature variance": (
        "bits/collapsed_rows.py",
        ("math.sqrt(noise_var * (1.0 + q + n_new / ridge))", "math.sqrt(noise_var * (1.0 + n_new / ridge))"),
    ),
    "own columns not in the variance": (
        "bits/conditional_rows.py",
        ("half_precision = 0.5 / (noise_var + n_own * feature_var)", "half_precision = 0.5 / noise_var"),
    ),
    "uncollapsed scan in column order": (
        "bits/conditional_rows.py",
        ("next_of(order, i, K, rng.random())", "order[i]"),
    ),
    "new features independent": (
        "bits/conditional_rows.py",
        ("(shrink * total if is_seen[d] else 0.0)", "0.0"),
    ),
    "own weights not in the variance": (
        "weights/scaled_rows.py",
        ("tau = 1.0 / (noise_var + power * feature_var)", "tau = 1.0 / noise_var"),
    ),
    "weights' prior left out": ("weights/slabs.py", ("0.5 * b * b / curve - log_norm", "0.5 * b * b / curve")),
    "cells left as they were before a swap": ("weights/swaps.py", ("            chosen = True\n", "")),
    "swaps without the prior": ("weights/swaps.py", ("log_odds[others] + log_slab(", "log_slab(")),
    "births without the present state": (
        "weights/slabs.py",
        ("    total = 1.0\n    chosen, n_chosen", "    top, total = -1e300, 0.0\n    chosen, n_chosen"),
    ),
    "births without their proposal": (
        "weights/slabs.py",
        ("(math.log(new_rate) + math.log1p(1.0 / mean))", "math.log(new_rate)"),
    ),
    "parallel: streams": (
        "bits/parallel_rows.py",
        ("start_stream(key, n)", "start_stream(key, 0)"),
    ),
    "parallel: own variance": (
        "bits/parallel_rows.py",
        ("half_precision[r] = 0.5 / (noise_var + n_own * feature_var)", "half_precision[r] = 0.5 / noise_var"),
    ),
    "importance without the present columns": (
        "bits/importance_rows.py",
        ("log_total = log_fit(e, own, is_seen, half_precision)", "log_total = -np.inf"),
    ),
    "counts: bits without their proposal": (
        "counts/poisson_sweeps.py",
        ("- c * math.log(new) + scale - math.log(chance)", "+ scale - math.log(chance)"),
    ),
    "counts: births without their number": (
        "counts/poisson_sweeps.py",
        ("ratio + math.log(new_rate / (n_own + 1.0))", "ratio + math.log(new_rate)"),
    ),
    "counts: births without the dims that have none": (
        "counts/poisson_sweeps.py",
        ("    total += n_seen * a_shape * math.log(a_rate / (a_rate + w))\n", ""),
    ),
    "counts: weights without the allocation": (
        "counts/poisson_sweeps.py",
        ("rng.standard_gamma(shape + parts[k])", "rng.standard_gamma(shape)"),
    ),
    "counts: exposure of missing cells": (
        "counts/poisson_sweeps.py",
        ("    for d in hidden:\n        total -= A[k, d]\n", ""),
    ),
    "missing cells used as data": ("bits/collapsed_rows.py", ("used_dims = n_dims - cells.size", "used_dims = n_dims")),
}


@functools.cache
def mutant(name: str) -> dict[str, ModuleType]:
    """The replicated kernels of a package in which this mistake was made, and compiled, by their file's name.

    Compiling one takes half a minute, so its folder stays: the other tests of the mutant find the machine code there.
    """
    return package("mutant", mutated(kernel_files(), *MUTANTS[name]), MODULES)


def kernel_files() -> dict[str, str]:
    """The text of each file of the package's kernels."""
    return {path.relative_to(SOURCE).as_posix(): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}


def package(kind: str, files: dict[str, str], modules: tuple[str, ...]) -> dict[str, ModuleType]:
    """These modules of a package of its own made of the files, by their file's name."""
    name = f"{kind}_" + hashlib.sha256(repr(files).encode()).hexdigest()[:16]
    if not (CACHE / name).exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=CACHE))
        for file, text in files.items():
            (made / file).parent.mkdir(exist_ok=True)
            (made / file).write_text(text.replace("from thali.kernels", f"from {name}"))
        with contextlib.suppress(OSError):  # another process was faster
            made.rename(CACHE / name)
    sys.path.insert(0, str(CACHE))
    try:
        return {path.rpartition(".")[2]: importlib.import_module(f"{name}.{path}") for path in modules}
    finally:
        sys.path.remove(str(CACHE))


def plain_mutant(module: ModuleType, old: str, new: str) -> dict[str, Any]:
    """What a module of kernels defines with a piece of it replaced, as plain Python, beside compiled other modules."""
    source = inspect.getsource(module)
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {module.__name__}"
    imports = re.compile(r"^from thali.kernels._jit import .*$", re.MULTILINE)
    source, n = imports.subn("inlined = jit = lambda f: f", source.replace(old, new))
    assert n == 1
    names: dict[str, Any] = {}
    exec(source, names)
    return names


def mutated(files: dict[str, str], file: str, *changes: tuple[str, str]) -> dict[str, str]:
    """The files with these pieces of one of them replaced."""
    text = files[file]
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {file}"
        text = text.replace(old, new)
    return files | {file: text}
