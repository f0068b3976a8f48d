"""The mechanism: supports, records, estimators, bounds, schedules and noise. Imports torch alone."""

from probattn.core.baselines import Baseline, LeaveOneOut, NoBaseline, RunningMean, SoftAttention
from probattn.core.bounds import Bound, Elbo, ImportanceWeighted, Marginal, WakeSleep
from probattn.core.checks import content_checks
from probattn.core.estimators import Enumerate, Estimator, Mean, Pathwise, ScoreFunction, TopKAndSample, WithoutPrior
from probattn.core.free_bits import FreeBits
from probattn.core.noise import fold_seed, fresh_seed
from probattn.core.protocols import DiscreteDistribution, LatentDistribution
from probattn.core.records import Draw, Evaluation, Given, Latent, Memory, Terms, Unit
from probattn.core.schedules import Constant, Cyclical, Linear, Logistic, Schedule, Sigmoid
from probattn.core.support import Dense, Segments, Support

__all__ = [
    "Baseline",
    "Bound",
    "Constant",
    "Cyclical",
    "Dense",
    "DiscreteDistribution",
    "Draw",
    "Elbo",
    "Enumerate",
    "Estimator",
    "Evaluation",
    "FreeBits",
    "Given",
    "ImportanceWeighted",
    "Latent",
    "LatentDistribution",
    "LeaveOneOut",
    "Linear",
    "Logistic",
    "Marginal",
    "Mean",
    "Memory",
    "NoBaseline",
    "Pathwise",
    "RunningMean",
    "Schedule",
    "ScoreFunction",
    "Segments",
    "Sigmoid",
    "SoftAttention",
    "Support",
    "Terms",
    "TopKAndSample",
    "Unit",
    "WakeSleep",
    "WithoutPrior",
    "content_checks",
    "fold_seed",
    "fresh_seed",
]
