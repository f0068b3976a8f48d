"""One row per prior or posterior, and the inputs that all of them can be tried on.

A new conditional is one row here; every test of test_conditionals.py that takes a row then runs on it.

Sizes: B examples, T steps, S positions, D features, C codes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from probattn.core import Dense, Given, Memory
from probattn.distributions import (
    Categorical,
    Dirichlet,
    DirichletPrior,
    GammaPrior,
    GumbelSoftmax,
    Lognormal,
    LognormalPrior,
    Weibull,
)
from probattn.nn import (
    AutoregressiveCategorical,
    AutoregressiveGaussian,
    Bilinear,
    Conditional,
    Fixed,
    FromContext,
    FromScores,
    GaussianHead,
    InferenceNetwork,
    KeyPrior,
    MeanMemory,
    SoftCodebook,
    StandardNormal,
    Uniform,
)
from probattn.nn.answer_posterior import AnswerPosterior

__all__ = ["CONDITIONALS", "JUNK", "B", "C", "CausalSum", "D", "Row", "S", "T", "make_given"]

B, T, S, D, C = 2, 3, 4, 5, 6
# What stands at padded positions; large enough to be seen wherever it is not masked.
JUNK = 1e4


class CausalSum(nn.Module):
    """A causal network: position s sees the sum of positions up to s, and s itself."""

    def __init__(self, input_dim: int, output_dim: int):
        super().__init__()
        self.hidden = nn.Linear(input_dim, 8)
        self.out = nn.Linear(8, output_dim)

    def forward(self, x: Tensor) -> Tensor:
        """(B, S, input_dim) gives (B, S, output_dim)."""
        return self.out(torch.tanh(self.hidden(x)).cumsum(dim=1))


@dataclass(frozen=True)
class Row:
    """A conditional and what is expected of it.

    Attributes:
        build: Makes it.
        shape: Shape of its plug-in value on `make_given()`; KeyPrior has one row for all queries.
        reads: Which tensors of `make_given()` it is a differentiable function of.
        needs: What it declares to read beyond memory, query, scores and context.
        event: "weights" and "memory" values have an axis of positions, "vector" values have not.
    """

    build: Callable[[], Conditional]
    shape: tuple[int, ...]
    reads: frozenset[str]
    needs: frozenset[str] = frozenset()
    event: str = "weights"


WEIGHTS, VECTOR = (B, T, S), (B, T, D)
NOTHING: frozenset[str] = frozenset()
SCORES, KEYS, CONTEXT = frozenset({"scores"}), frozenset({"keys"}), frozenset({"context"})

CONDITIONALS = {
    "from-scores-categorical": Row(lambda: FromScores(Categorical()), WEIGHTS, SCORES),
    "from-scores-weibull": Row(lambda: FromScores(Weibull(2.0)), WEIGHTS, SCORES),
    "from-scores-lognormal-softmax": Row(lambda: FromScores(Lognormal(0.5, anchor="softmax")), WEIGHTS, SCORES),
    "from-scores-dirichlet": Row(lambda: FromScores(Dirichlet()), WEIGHTS, SCORES),
    "from-scores-concrete": Row(lambda: FromScores(GumbelSoftmax(0.7)), WEIGHTS, SCORES),
    "fixed-dirichlet": Row(lambda: Fixed(DirichletPrior(), 1.0), WEIGHTS, NOTHING),
    "fixed-gamma": Row(lambda: Fixed(GammaPrior(rate=0.5), 2.0), WEIGHTS, NOTHING),
    "fixed-lognormal": Row(lambda: Fixed(LognormalPrior(sigma=2.0), 0.1), WEIGHTS, NOTHING),
    "key-prior-gamma": Row(lambda: KeyPrior(D, GammaPrior(), hidden_dim=8), (B, 1, S), KEYS),
    "key-prior-lognormal": Row(lambda: KeyPrior(D, LognormalPrior(location="log_psi"), hidden_dim=8), (B, 1, S), KEYS),
    "key-prior-categorical": Row(lambda: KeyPrior(D, Categorical(), hidden_dim=8), (B, 1, S), KEYS),
    "key-prior-per-set": Row(
        lambda: KeyPrior(D, GammaPrior(concentration="psi_rate"), hidden_dim=8, normalises="set"), (B, 1, S), KEYS
    ),
    "key-prior-scaled": Row(lambda: KeyPrior(D, GammaPrior(), hidden_dim=8, scale=50.0), (B, 1, S), KEYS),
    "key-prior-detached": Row(lambda: KeyPrior(D, GammaPrior(), hidden_dim=8, detaches_keys=True), (B, 1, S), NOTHING),
    "uniform-gamma": Row(lambda: Uniform(GammaPrior(concentration="psi_rate")), WEIGHTS, NOTHING),
    "standard-normal": Row(lambda: StandardNormal(D), VECTOR, NOTHING, event="vector"),
    "mean-memory": Row(MeanMemory, VECTOR, frozenset({"values"}), event="vector"),
    "from-context": Row(lambda: FromContext(D, 7), VECTOR, CONTEXT, event="vector"),
    "gaussian-head": Row(lambda: GaussianHead(D, 3), (B, T, 3), CONTEXT, event="vector"),
    "soft-codebook": Row(lambda: SoftCodebook(C, D).eval(), VECTOR, CONTEXT, event="vector"),
    "inference-network": Row(
        lambda: InferenceNetwork(
            Bilinear(D, D),
            Categorical(),
            target_encoder=nn.Linear(D, D),
            memory_encoder=nn.Linear(D, D, bias=False),  # a bias there moves all scores of a query alike
        ),
        WEIGHTS,
        frozenset({"target", "inputs"}),
        needs=frozenset({"target"}),
    ),
    "answer-posterior": Row(
        lambda: AnswerPosterior(D, D, answer_dim=D, hidden_dim=8, family=Categorical()),
        WEIGHTS,
        frozenset({"target", "query", "keys"}),
        needs=frozenset({"target"}),
    ),
    "autoregressive-categorical": Row(
        lambda: AutoregressiveCategorical(CausalSum(D, C), torch.randn(C, D), detaches_value=False),
        (B, S, C),
        frozenset({"value"}),
        needs=frozenset({"value"}),
        event="memory",
    ),
    "autoregressive-gaussian": Row(
        lambda: AutoregressiveGaussian(CausalSum(D, 2 * D), D),
        (B, S, D),
        frozenset({"value"}),
        needs=frozenset({"value"}),
        event="memory",
    ),
}


def make_given(extra: int = 0, *, junk: float = JUNK) -> Given:
    """Everything a conditional may look at; the second example has S - 1 positions.

    Args:
        extra: Padded positions behind the last one.
        junk: What they hold.
    """
    generator = torch.Generator().manual_seed(3)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    keys, values, inputs, scores = random(B, S, D), random(B, S, D), random(B, S, D), random(B, T, S)
    query, context, target, value = random(B, T, D), random(B, T, D), random(B, T, D), random(1, B, S, D)
    mask = torch.ones(B, 1, S, dtype=torch.bool)
    mask[1, 0, -1] = False
    pad = nn.functional.pad
    memory = Memory(
        keys=pad(keys, (0, 0, 0, extra), value=junk),
        values=pad(values, (0, 0, 0, extra), value=junk),
        support=Dense(pad(mask, (0, extra), value=False)),
        inputs=pad(inputs, (0, 0, 0, extra), value=junk),
    )
    return Given(
        memory=memory,
        query=query,
        scores=pad(scores, (0, extra), value=junk),
        context=context,
        target=target,
        value=pad(value, (0, 0, 0, extra), value=junk),
    )
