"""Many small problems of linked features at once: exact posterior draws, and draws of model and data together."""

import itertools
from typing import Any, NamedTuple

import numpy as np

from thali import Gamma, LinearGaussian
from thali.core.model import Model
from thali.kernels.links import linked_replicates as right
from thali.kernels.links.layout import Columns, work_space
from thali.kernels.links.reach import reach_owners
from thali.testing.enumerate import ExactPosterior, enumerate_posterior, exact_statistics
from thali.testing.geweke import matrix_statistics
from thali.testing.zscores import z_scores

Array = np.ndarray
NOISE, FEATURE = 0.16, 1.21


MASS = Gamma(6.0, 8.0)  # where it is learned


class Problems(NamedTuple):
    X: Array
    Z: Array
    links: Array
    K: Array
    mass: Array

    def copied(self) -> "Problems":
        return Problems(*(part.copy() for part in self))


def all_links(prior: Any, has: Array) -> tuple[Array, Array]:
    """Every tree of links of the rows that have a feature, with its probability."""
    a, h = prior.link_probs().toarray(), 1.0 / (prior.owner_rates() / prior.mass)
    rows, n_rows = np.flatnonzero(has), len(has)
    found, weight = [], []
    for owner in rows:
        others = [i for i in rows if i != owner]
        for targets in itertools.product(rows, repeat=len(others)):
            links = np.full(n_rows, -1)
            links[owner] = owner
            links[others] = targets
            at = np.array(others, dtype=int)
            for _ in range(n_rows):
                at = links[at]
            if (at == owner).all():
                found.append(links)
                weight.append(np.prod([a[i, j] for i, j in zip(others, targets, strict=True)]) / h[owner])
    return np.array(found), np.array(weight) / np.sum(weight)


def posterior_draws(prior: Any, X: Array, n: int, rng: np.random.Generator, most: int = 7, capacity: int = 16):
    """(the exact posterior, n draws of it with links)."""
    exact = enumerate_posterior(
        Model(prior, LinearGaussian(noise_var=NOISE, feature_var=FEATURE)), X, max_features=most
    )
    picked = np.sort(rng.choice(len(exact.matrices), size=n, p=exact.probability))
    Z = np.zeros((n, len(X), capacity), dtype=np.uint8)
    links = np.full((n, capacity, len(X)), -1)
    K = np.zeros(n, dtype=np.int64)
    trees: dict[bytes, Any] = {}
    for index, first, size in zip(*np.unique(picked, return_index=True, return_counts=True), strict=True):
        some, matrix = slice(first, first + size), exact.matrices[index]
        K[some], Z[some, :, : matrix.shape[1]] = matrix.shape[1], matrix
        for k, has in enumerate(matrix.T):
            options, weight = trees.setdefault(has.tobytes(), all_links(prior, has))
            links[some, k] = options[rng.choice(len(weight), size=size, p=weight)]
    return exact, Problems(np.repeat(X[None], n, axis=0), Z, links, K, np.full(n, float(prior.mass)))


def joint_draws(prior: Any, n_dims: int, n: int, rng: np.random.Generator, capacity: int = 24) -> Problems:
    """The mass, Z with its links, and X from the model."""
    mass = rng.gamma(MASS.shape, 1.0 / MASS.rate, n)
    rates = prior.owner_rates() / prior.mass
    owned = rng.poisson(np.outer(mass, rates))
    K = owned.sum(axis=1)
    assert K.max() <= capacity
    replicate = np.repeat(np.arange(n), K)
    column = np.arange(len(replicate)) - np.repeat(np.cumsum(K) - K, K)
    owners = np.repeat(np.tile(np.arange(len(rates)), n), owned.ravel())
    drawn = prior._graph.draw_links(rng, len(owners))
    has = reach_owners(owners, drawn).T
    drawn[np.arange(len(owners)), owners] = owners
    Z = np.zeros((n, len(rates), capacity), dtype=np.uint8)
    links = np.full((n, capacity, len(rates)), -1)
    Z[replicate, :, column], links[replicate, column] = has, np.where(has == 1, drawn, -1)
    A = np.sqrt(FEATURE) * rng.standard_normal((n, capacity, n_dims))
    X = Z @ A + np.sqrt(NOISE) * rng.standard_normal((n, len(rates), n_dims))
    return Problems(X, Z, links, K, mass)


def move(
    prior: Any, problems: Problems, kinds: str, rng: np.random.Generator, kernels: Any = right, *, capped: bool = False
) -> Any:
    """Sweeps over the links (L), proposals by row (O) or jointly (J), new masses (M), in this order. Returns (proposed,
    accepted).

    With `capped`, what has no room is refused: the law that stays is that of at most so many features.
    """
    X, Z, links, K, mass = problems
    capacity, n_dims = Z.shape[2], X.shape[2]

    def room() -> Columns:
        squares = [np.zeros((capacity, capacity)) for _ in range(2)]
        tall = [np.zeros((capacity, n_dims)) for _ in range(2)]
        return Columns(X[0], Z[0], links[0], squares[0], tall[0], squares[1], tall[1])

    one, other, graph, ridge = room(), room(), prior.kernel_graph(), NOISE / FEATURE
    part, tree = work_space(one)
    counts = np.zeros(2, dtype=int)
    rates = prior.owner_rates() / prior.mass
    for kind in kinds:
        if kind == "M":
            mass[:] = rng.gamma(MASS.shape + K) / (MASS.rate + rates.sum())
        elif kind == "L":
            kernels.link_replicates(graph, X, Z, links, K, one, part, tree, 2, NOISE, ridge, rng)
        else:
            full, *some = kernels.ownership_replicates(
                graph, X, Z, links, K, one, other, part, tree, np.outer(mass, rates), kind == "J", NOISE, ridge, rng
            )
            assert capped or full == 0
            counts += some
    return counts


def exact_scores(exact: ExactPosterior, problems: Problems, most: int = 7) -> Array:
    """z-scores of P(K) and E[ZZ'] against enumeration of at most so many features."""
    dense, n_rows = problems.Z.astype(float), problems.Z.shape[1]
    pairs = np.tril_indices(n_rows)
    shared = (dense @ dense.transpose(0, 2, 1))[:, *pairs]
    estimates = np.hstack([problems.K[:, None] == np.arange(most + 1), shared]).astype(float)
    expected = exact_statistics(exact, n_rows, most)
    keep = np.append(exact.p_k(most + 1) * len(dense) >= 40, np.ones(len(pairs[0]), dtype=bool))
    return z_scores(estimates[:, keep], expected[keep])


def paired_scores(before: Problems, after: Problems) -> dict[str, float]:
    """z-scores of the changes of what `matrix_statistics` has, and of how rows link."""
    old, new = (matrix_statistics(p.Z, p.X) | _link_statistics(p) for p in (before, after))
    return {name: float(z_scores(new[name] - old[name], np.zeros(()))) for name in old}


def _link_statistics(p: Problems) -> dict[str, Array]:
    rows = np.arange(p.links.shape[2])
    used = (np.arange(p.links.shape[1]) < p.K[:, None])[:, :, None]
    own = used & (p.links == rows)
    on = used & (p.links >= 0)
    return {
        "mass": p.mass,
        "mass x K": p.mass * p.K,
        "features of row 0": own[:, :, 0].sum(axis=1).astype(float),
        "features of the last row": own[:, :, -1].sum(axis=1).astype(float),
        "steps": np.where(on, np.abs(p.links - rows), 0).sum(axis=(1, 2)).astype(float),
        "backward": (on & (p.links < rows)).sum(axis=(1, 2)).astype(float),
    }
