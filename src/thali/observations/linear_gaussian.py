"""X = offset + Z A + noise, with Gaussian features A integrated out (Griffiths & Ghahramani 2005)."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from thali.core.protocols.engines.chains import (
    BitEntropy,
    ChainRows,
    CollapsedRows,
    ColumnMoves,
    ConditionalRows,
    GroupedRows,
    ImportanceRows,
    LinkedRows,
    MarginalRows,
    ParallelRows,
    SliceRows,
    StartRows,
)
from thali.core.protocols.engines.mean_field import GrowingSums, MeanFieldRows
from thali.core.protocols.engines.particles import ParticleRows
from thali.core.protocols.engines.point import PointRows
from thali.core.protocols.engines.predictions import CellMoments, Predictions
from thali.core.protocols.engines.recursive import RecursiveRows
from thali.core.registry import stored
from thali.observations.gaussian.collapsed import CollapsedGaussian
from thali.observations.gaussian.column_moves import GaussianColumnMoves
from thali.observations.gaussian.conditional import ConditionalGaussian
from thali.observations.gaussian.linked import LinkedGaussian
from thali.observations.gaussian.marginal import GaussianMarginal
from thali.observations.gaussian.mean_field.bits import MeanFieldBits
from thali.observations.gaussian.noisy_model import NoisyGaussian
from thali.observations.gaussian.parallel import ParallelGaussian
from thali.observations.gaussian.particles import GaussianParticles
from thali.observations.gaussian.point import PointGaussian
from thali.observations.gaussian.prediction import BitPredictions
from thali.observations.gaussian.recursive import RecursiveGaussian
from thali.observations.gaussian.rows import BitRows
from thali.observations.gaussian.starting import GaussianStart


@stored("LinearGaussian")
@dataclass(frozen=True, eq=False)
class LinearGaussian(NoisyGaussian):
    """Binary features that add up, with Gaussian noise.

    Parameters
    ----------
    noise_var : float, array of shape (n_dims,), distribution or PerDim
        Variance of the noise: fixed, fixed for each dim, learned, or learned for each dim.
    feature_var : float, distribution or None
        Variance of the features, in units of each dim's noise where that has a level for each dim. None takes a
        vague distribution that suits the kind of noise.
    offset : None, array of shape (n_dims,) or NormalOffset
        What a row without features is on average: zero as in the papers, fixed, or learned. It is undone in
        reconstructions.
    noise_floor : float
        A learned noise variance stays above this share of the dim's variance (of the mean one, if there is one
        noise level). On real data the number of features is a function of it.
    scale : float, array of shape (n_dims,) or None
        The variance of each dim, to which relative priors and the floor refer; None takes it from the data.
    origin : array of shape (n_dims,) or None
        Numbers from which data and offset are counted, so that squares keep their digits. None takes round ones
        near the data in dims that lie 2^10 sds or more from zero, if there is an offset.
    """

    words: ClassVar[str] = "linear-Gaussian"
    engines = MappingProxyType(
        {
            ChainRows: BitRows,
            StartRows: GaussianStart,
            Predictions: BitPredictions,
            CellMoments: BitPredictions,
            MarginalRows: GaussianMarginal,
            CollapsedRows: CollapsedGaussian,
            ColumnMoves: GaussianColumnMoves,
            BitEntropy: GaussianColumnMoves,
            ConditionalRows: ConditionalGaussian,
            SliceRows: ConditionalGaussian,
            GroupedRows: ConditionalGaussian,
            ImportanceRows: ConditionalGaussian,
            ParallelRows: ParallelGaussian,
            LinkedRows: LinkedGaussian,
            MeanFieldRows: MeanFieldBits,
            GrowingSums: MeanFieldBits,
            ParticleRows: GaussianParticles,
            RecursiveRows: RecursiveGaussian,
            PointRows: PointGaussian,
        }
    )
