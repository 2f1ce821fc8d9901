"""`sweep_replicates` against its twin."""

import numpy as np
import pytest
from reference.bits.replicates import sweep_replicates as twin
from thinned import thinned

from thali import IBP, BetaBernoulli
from thali.kernels.bits.replicates import sweep_replicates
from thali.testing.geweke import simulate_replicates


@pytest.mark.parametrize("prior", [IBP(mass=1.2), BetaBernoulli(mass=1.0, n_features=3)], ids=["infinite", "finite"])
@pytest.mark.parametrize(("holes", "group"), thinned([(0, 1), (2, 1), (2, 2), (0, 3)], (2, 1), (0, 3)))
def test_replicates_equal_their_twin(prior, holes, group, rng):
    n_rows, n_dims, capacity = 5, 3, 20
    Z = simulate_replicates(prior, n_rows, 40, capacity, rng)
    X = rng.standard_normal((40, n_rows, n_dims))
    K = np.full(40, 3) if isinstance(prior, BetaBernoulli) else Z.any(axis=1).sum(axis=1)
    start = np.array([0] + [min(n + 1, holes) for n in range(n_rows)])
    dims = np.arange(holes) % n_dims
    results = []
    for sweep in (sweep_replicates, twin):
        mine = [X.copy(), Z.copy(), K.astype(np.int64).copy()]
        table, rate = prior.log_odds(n_rows), prior.new_rate(n_rows)
        full = sweep(mine[0], start, dims, mine[1], mine[2], table, rate, 0.4, 1.1, group, np.random.default_rng(3))
        assert full == 0
        results.append(mine)
    assert np.allclose(results[0][0], results[1][0], atol=1e-9)
    assert np.array_equal(results[0][1], results[1][1])
    assert np.array_equal(results[0][2], results[1][2])


def test_replicates_without_room_are_counted(rng):
    Z = np.zeros((5, 3, 1), dtype=np.uint8)
    X = 100.0 * rng.standard_normal((5, 3, 2))
    K = np.zeros(5, dtype=np.int64)
    none = np.zeros(4, dtype=np.int64)
    full = sweep_replicates(X, none, none[:0], Z, K, IBP(mass=9.0).log_odds(3), 3.0, 0.1, 1.0, 1, rng)
    assert full == 5
