"""Time of random attention as ratios to torch's own, measured interleaved in one run.

    make bench                                   # or: python benchmarks/run.py --output runs/bench/attention.json

Each round runs every contestant once, in random order, and divides by the round's reference time; the table shows the
median ratio. Absolute times of a shared machine mean little and are not reported.
"""

import json
import random
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from jsonargparse import auto_cli
from torch import Tensor
from tqdm import tqdm

import probattn
from probattn.core import Draw, Enumerate
from probattn.distributions import MaskedOneHot

Contestants = Mapping[str, Callable[[], Tensor]]


def attention_contestants(length: int, *, heads: int = 4, dim: int = 32, batch: int = 2) -> Contestants:
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


def readout_contestants(slots: int = 24, *, steps: int = 24, dim: int = 128, symbols: int = 2000) -> Contestants:
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


def interleaved(contestants: Contestants, *, rounds: int, seed: int = 0) -> dict[str, float]:
    """Median over rounds of each contestant's time over the first one's."""
    order = list(contestants)
    reference = order[0]
    shuffle = random.Random(seed)
    ratios: dict[str, list[float]] = {name: [] for name in contestants}
    for round_number in range(rounds + 1):
        shuffle.shuffle(order)
        times = {}
        for name in order:
            started = time.perf_counter()
            contestants[name]().backward()
            times[name] = time.perf_counter() - started
        if round_number > 0:  # the first round warms up
            for name in contestants:
                ratios[name].append(times[name] / times[reference])
    return {name: statistics.median(values) for name, values in ratios.items()}


def main(output: Path = Path("runs/bench/attention.json"), rounds: int = 11, threads: int = 1) -> None:
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
        name: interleaved(contestants, rounds=rounds) for name, contestants in tqdm(tables.items(), desc="benchmarks")
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    record = {"rounds": rounds, "threads": threads, "torch": torch.__version__.split("+")[0], "ratios": results}
    output.write_text(json.dumps(record, indent=1) + "\n")
    for name, ratios in results.items():
        print(f"\n{name}: forward and backward, over {next(iter(ratios))}")
        for contestant, ratio in ratios.items():
            print(f"  {contestant:<40} {ratio:7.2f}")
    print(f"\nwritten to {output}")


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
