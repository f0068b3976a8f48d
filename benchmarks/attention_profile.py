"""Where the time of dense attention goes, by leaving parts out: nanoseconds a score.

Products, and random numbers of plain torch, are measured alone, on tiles that stay in the processor's cache as those of
the kernel do. The other parts are differences of whole calls of the same round, so what overlaps on the processor is
counted once, where it is added. A difference that is below zero is within the error.
"""

import statistics
from collections.abc import Callable
from typing import Any

import torch
from attention_contestants import Call, Inputs, Pass, Sizes, deterministic, sdpa, weibull, weibull_kl
from meter import Meter

from probattn.core.noise import uniform
from probattn.kernels import native

__all__ = ["profile_table"]

_ROWS, _COLUMNS = 256, 512
# Products of queries x features x keys: two forward; backward makes the scores again and has four gradients.
_PRODUCTS: dict[Pass, int] = {"forward": 2, "train step": 7}
# Noise is made again in the backward pass.
_NOISES: dict[Pass, int] = {"forward": 1, "train step": 2}


def profile_table(meter: Meter, sizes: Sizes) -> dict[str, Any]:
    """Parts of a forward pass and of a train step."""
    columns: dict[str, dict[str, float]] = {kind: _parts(meter, sizes, kind) for kind in _PRODUCTS}
    names = list(columns["forward"])
    rows = [{"name": name, "nanoseconds": {kind: columns[kind][name] for kind in columns}} for name in names]
    measures = {"batch": sizes.batch, "heads": sizes.heads, "features": sizes.dim, "n": sizes.length}
    return {"title": "Where the time goes", "sizes": measures, "rounds": meter.rounds, "rows": rows}


def _parts(meter: Meter, sizes: Sizes, kind: Pass) -> dict[str, float]:
    """By part; medians over rounds."""
    inputs = Inputs(sizes)
    tiles = max(1, sizes.scores // (_ROWS * _COLUMNS))
    computes = {"sdpa": sdpa, "plain": deterministic, "noisy": weibull, "all": weibull_kl}
    calls: dict[str, Callable[[], None]] = {name: Call(one, inputs, kind=kind) for name, one in computes.items()}
    calls["products"] = _products(sizes.dim, _PRODUCTS[kind] * tiles)
    calls["torch"] = Call(weibull_kl, inputs, kind=kind, has_kernel=False)
    calls["torch bits"] = _random_numbers(_NOISES[kind] * tiles)
    seconds = meter.seconds(calls)
    # Of whole calls per score; of tiles per score of a tile, of which the sizes may hold a fraction more.
    per_score = {name: 1e9 / sizes.scores for name in calls}
    per_score |= dict.fromkeys(("products", "torch bits"), 1e9 / (tiles * _ROWS * _COLUMNS))
    times = {name: [per_score[name] * one for one in found] for name, found in seconds.items()}

    def median(*signed: tuple[int, str]) -> float:
        rounds = range(len(times["sdpa"]))
        return statistics.median(sum(sign * times[name][number] for sign, name in signed) for number in rounds)

    return {
        "products": median((1, "products")),
        "exponentials, sums, the rest": median((1, "plain"), (-1, "products")),
        "noise": median((1, "noisy"), (-1, "plain")),
        "KL": median((1, "all"), (-1, "noisy")),
        "Weibull, KL, in all": median((1, "all")),
        "torch SDPA, in all": median((1, "sdpa")),
        "plain torch: random numbers": median((1, "torch bits")),
        "plain torch: the rest": median((1, "torch"), (-1, "torch bits")),
    }


def _products(dim: int, count: int) -> Callable[[], None]:
    """As many products of a tile."""
    query, key, scores = torch.randn(_ROWS, dim), torch.randn(_COLUMNS, dim), torch.empty(_ROWS, _COLUMNS)

    def run() -> None:
        for _ in range(count):
            torch.mm(query, key.T, out=scores)

    return run


def _random_numbers(count: int) -> Callable[[], None]:
    """As many tiles of uniform numbers, in plain torch."""
    seed = torch.tensor(1)

    def run() -> None:
        with native.switched(False):
            for _ in range(count):
                uniform(seed, (_ROWS, _COLUMNS))

    return run
