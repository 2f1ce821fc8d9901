"""The contract of observation models: of the likelihood itself, and of every engine that it lists."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from thali.core.protocols.engines import calibration, chains, mean_field, particles, point, predictions, recursive
from thali.errors import InvalidParameterError
from thali.testing.contracts.chain_rows import (
    check_auxiliary_rows,
    check_chain_rows,
    check_factor_start,
    check_fresh_rows,
    check_marginal_rows,
    check_own_start,
    check_shown_rows,
    check_start_rows,
)
from thali.testing.contracts.column_moves import check_bit_entropy, check_column_moves
from thali.testing.contracts.example import Example
from thali.testing.contracts.forgetful import check_recursive_rows
from thali.testing.contracts.likelihood import check_likelihood
from thali.testing.contracts.linked_rows import check_linked_rows
from thali.testing.contracts.mean_field import (
    check_feature_draws,
    check_growing_sums,
    check_mean_field_rows,
    check_scaled_features,
)
from thali.testing.contracts.points_and_particles import check_noise_floor, check_particle_rows, check_point_rows
from thali.testing.contracts.predictions import check_cell_moments, check_predictions
from thali.testing.contracts.sweeps import (
    check_collapsed_rows,
    check_conditional_rows,
    check_grouped_rows,
    check_importance_rows,
    check_parallel_rows,
    check_proposed_rows,
    check_slice_rows,
)
from thali.testing.contracts.telling import check_stored

CONTRACTS: dict[type, Callable[[Example], None]] = {
    chains.MarginalRows: check_marginal_rows,
    chains.ChainRows: check_chain_rows,
    chains.AuxiliaryRows: check_auxiliary_rows,
    chains.StartRows: check_start_rows,
    chains.OwnStart: check_own_start,
    chains.CollapsedRows: check_collapsed_rows,
    chains.ConditionalRows: check_conditional_rows,
    chains.SliceRows: check_slice_rows,
    chains.GroupedRows: check_grouped_rows,
    chains.ProposedRows: check_proposed_rows,
    chains.FreshRows: check_fresh_rows,
    chains.ShownRows: check_shown_rows,
    chains.FactorStart: check_factor_start,
    chains.ImportanceRows: check_importance_rows,
    chains.ParallelRows: check_parallel_rows,
    chains.LinkedRows: check_linked_rows,
    chains.ColumnMoves: check_column_moves,
    chains.BitEntropy: check_bit_entropy,
    predictions.Predictions: check_predictions,
    predictions.CellMoments: check_cell_moments,
    mean_field.MeanFieldRows: check_mean_field_rows,
    mean_field.GrowingSums: check_growing_sums,
    mean_field.ScaledFeatures: check_scaled_features,
    mean_field.FeatureDraws: check_feature_draws,
    point.PointRows: check_point_rows,
    recursive.RecursiveRows: check_recursive_rows,
    particles.ParticleRows: check_particle_rows,
    calibration.NoiseFloor: check_noise_floor,
}

_WITHOUT_BITS = (mean_field.MeanFieldRows, mean_field.ScaledFeatures, chains.OwnStart)


def check_observation(observation: Any, rng: np.random.Generator, *, n_dims: int = 2, n_draws: int = 20_000) -> None:
    """A concrete observation model of any kind: its draws, densities, data checks, and each engine in its table agree.

    Data come from its own `simulate`. An AssertionError begins with the contract that is broken. `n_draws`: fewer are
    faster, and see less.
    """
    example = check_likelihood(observation, rng, n_dims, n_draws)
    for capability, check in CONTRACTS.items():
        if observation.has(capability) and (observation.has_bits or capability in _WITHOUT_BITS):
            with suppress(InvalidParameterError):  # an engine may refuse some settings, in words
                check(example)
    check_stored("An observation model", observation)
