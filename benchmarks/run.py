"""Time of random attention as ratios to torch's own, measured interleaved in one run.

    make bench                                   # or: python benchmarks/run.py --output runs/bench/facade.json

The table shows the median ratio over rounds (see `interleaved`).
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from interleaved import interleaved, ratios
from jsonargparse import auto_cli
from torch import Tensor
from tqdm import tqdm

import probattn
from probattn.core import Draw, Enumerate
from probattn.distributions import MaskedOneHot

Forwards = Mapping[str, Callable[[], Tensor]]


def attention_contestants(length: int, *, heads: int = 4, dim: int = 32, batch: int = 2) -> Forwards:
    """Forward and backward of attention; the first is the reference."""
    query, key, value = (torch.randn(batch, heads, length, dim, requires_grad=True) for _ in range(3))
    weibull = probattn.Weibull(concentration=10.0, anchor="softmax")
    lognormal = probattn.Lognormal(sigma=0.1, anchor="softmax")
    prior = probattn.KeyPrior(dim, probattn.GammaPrior(rate=1.0))

    def ours(**options: object) -> Tensor:
        result = probattn.scaled_dot_product_attention(query, key, value, **options)
        return result.context.sum() + result.kl.sum()

    return {
        "torch SDPA": lambda: F.scaled_dot_product_attention(query, key, value).sum(),
        "soft (Mean)": ours,
        "Weibull, no prior": lambda: ours(family=weibull),
        "Weibull, contextual prior, exact KL": lambda: ours(family=weibull, prior=prior),
        "lognormal, no prior": lambda: ours(family=lognormal),
    }


def readout_contestants(slots: int = 24, *, steps: int = 24, dim: int = 128, symbols: int = 2000) -> Forwards:
    """Readout of enumerated alignments: K-max computes K branches, so its cost falls with K."""
    batch = 6
    scores = torch.randn(batch, steps, slots, requires_grad=True)
    values = torch.randn(batch, slots, dim)
    readout = torch.randn(dim, symbols, requires_grad=True)
    support = probattn.Dense()

    def run(top_k: int | None) -> Tensor:
        distribution = MaskedOneHot(scores, support)
        draw: Draw = Enumerate(top_k)(distribution, distribution, torch.tensor(0))
        logits = support.read(draw, values) @ readout
        log_lik = torch.log_softmax(logits, dim=-1)[..., 0]
        return torch.logsumexp(draw.log_weight + log_lik, dim=0).sum()

    def soft() -> Tensor:
        return torch.log_softmax((torch.softmax(scores, dim=-1) @ values) @ readout, dim=-1)[..., 0].sum()

    return {"soft": soft, "K-max 1": lambda: run(1), "K-max 5": lambda: run(5), f"all {slots}": lambda: run(None)}


def median_ratios(contestants: Forwards, *, rounds: int) -> dict[str, float]:
    """Median over rounds of each contestant's time, forward and backward, over the first one's."""

    def with_backward(forward: Callable[[], Tensor]) -> Callable[[], None]:
        return lambda: forward().backward()

    calls = {name: with_backward(forward) for name, forward in contestants.items()}
    seconds = interleaved(calls, rounds=rounds)
    return {name: ratio.median for name, ratio in ratios(seconds, next(iter(calls))).items()}


def main(output: Path = Path("runs/bench/facade.json"), rounds: int = 11, threads: int = 1) -> None:
    """Run all benchmarks.

    Args:
        output: JSON file.
        rounds: Rounds of each benchmark.
        threads: Of torch.
    """
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    tables = {f"attention, {length} keys": attention_contestants(length) for length in (64, 256, 1024)}
    tables["readout, 24 slots"] = readout_contestants()
    results = {
        name: median_ratios(contestants, rounds=rounds) for name, contestants in tqdm(tables.items(), desc="benchmarks")
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    record = {"rounds": rounds, "threads": threads, "torch": torch.__version__.split("+")[0], "ratios": results}
    output.write_text(json.dumps(record, indent=1) + "\n")
    for name, medians in results.items():
        print(f"\n{name}: forward and backward, over {next(iter(medians))}")
        for contestant, ratio in medians.items():
            print(f"  {contestant:<40} {ratio:7.2f}")
    print(f"\nwritten to {output}")


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
