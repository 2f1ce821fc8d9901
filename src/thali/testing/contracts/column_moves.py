"""The contracts of moves of whole columns, and of the entropy that scores modes."""

import math

import numpy as np

from thali.core.binary import left_ordered
from thali.core.odds import RowOdds
from thali.core.protocols.engines.chains import AuxiliaryRows, BitEntropy, ChainRows, ColumnMoves
from thali.testing.contracts.example import BITS, Example
from thali.testing.contracts.telling import contract, near, unchanged


def check_column_moves(example: Example) -> None:
    moves, rows = example.observation.engine(ColumnMoves), example.observation.engine(ChainRows)
    data, local = example.placed()
    weight = np.log(np.arange(1.0, len(BITS) + 2)) - 1.0  # of a column, by how many rows have it: any
    pair = np.array([0, 1])
    with contract("propose_exclusive_or must give the ratio of the joint densities, and undo itself."):
        with unchanged(local=local, weight=weight, pair=pair):
            new, ratio = moves.propose_exclusive_or(data, local, weight, pair)
        rows.check(data, new)
        wanted = np.column_stack([BITS[:, 0], BITS[:, 0] ^ BITS[:, 1]])
        assert np.array_equal(left_ordered(new.z), left_ordered(wanted)), "It is no exclusive or."
        density = rows.log_evidence(data, new) - rows.log_evidence(data, local)
        density += float(weight[new.z.sum(axis=0)].sum() - weight[BITS.sum(axis=0)].sum())
        assert near(ratio, density, 1e-6), f"The ratio is {ratio}, the densities say {density}."
        kept = int(np.argmax((new.z == BITS[:, :1]).all(axis=0)))  # columns may change places
        back, undone = moves.propose_exclusive_or(data, new, weight, np.array([kept, 1 - kept]))
        assert np.array_equal(left_ordered(back.z), left_ordered(BITS)), "Twice, it gives other bits."
        assert near(ratio + undone, 0.0, 1e-6), f"The ratios are {ratio} there and {undone} back."
    table = np.array([[0, 1], [1, 1]], dtype=np.uint8)
    with contract("Proposals must leave their arguments as they were and give row variables that check accepts."):
        for n_new in (1, 2):
            with unchanged(local=local, weight=weight, pair=pair):
                new, ratio = moves.propose_rebirth(example.rng, data, local, weight, pair[:1], n_new)
            rows.check(data, new)
            assert not math.isnan(ratio), "The ratio is not a number."
        with unchanged(local=local, weight=weight, pair=pair, table=table):
            new, ratio = moves.propose_recoding(example.rng, data, local, weight, pair, table)
        rows.check(data, new)
        assert not math.isnan(ratio), "The ratio is not a number."
    with contract("likeness must be symmetric and between 0 and 1."), unchanged(local=local):
        like = moves.likeness(local)
        assert like.shape == (2, 2), f"Got shape {like.shape}."
        assert near(like, like.T), "It is not symmetric."
        assert np.all((like >= 0) & (like <= 1 + 1e-9)), "It is not between 0 and 1."


def check_bit_entropy(example: Example) -> None:
    data, local = example.placed()
    odds = RowOdds(np.full(len(BITS), -0.4), 0.0)
    with contract("bit_entropy must be a number of nats, at most log 2 for each bit without a weight."):
        engine = example.observation.engine(BitEntropy)
        with unchanged(local=local):
            entropy = engine.bit_entropy(data, local, odds)
        assert math.isfinite(entropy), f"Got {entropy}."
        assert engine.bit_entropy(data, local, odds) == entropy, "It was another the second time."
        if example.observation.code_kind == "bits" and not example.observation.has(AuxiliaryRows):
            assert 0.0 <= entropy <= BITS.size * math.log(2.0), f"Got {entropy}."
