"""Time of 20 draws of `probattn.predict` in deterministic forward passes, with and without a shared prefix.

    python benchmarks/predict_draws.py --output runs/bench/predict_draws.json

The model is a stack of encoder layers whose upper ones draw their attention weights; noise is part of the time. Times
are ratios, interleaved in one run (see `interleaved`).
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from benchmark_table import render_benchmark
from interleaved import ratios
from jsonargparse import auto_cli
from meter import Meter
from torch import Tensor, nn

import probattn
from probattn.kernels import native
from probattn.predict import draw_outputs

DRAWS = 20


class Classifier(nn.Module):
    """Encoder layers and a linear readout.

    Args:
        width: Features; there is a head for every 32.
        layers: Number of layers.
        random: How many of the upper ones draw their weights.
    """

    def __init__(self, width: int, layers: int, *, random: int):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, width // 32, 4 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        family = probattn.Weibull(concentration=10.0, anchor="softmax")
        for number, one in enumerate(self.encoder.layers):  # all are ours, so that a pass costs the same in all models
            is_random = number >= layers - random
            one.self_attn = probattn.MultiheadAttention.from_torch(one.self_attn, family=family if is_random else None)
        self.head = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.encoder(x)[:, 0])
        return result


def contestants(width: int, layers: int, x: Tensor) -> dict[str, Callable[[], object]]:
    """The first is a deterministic pass, the reference."""
    found: dict[str, Callable[[], object]] = {}
    for random in (layers, max(1, layers // 3), 1):
        model = Classifier(width, layers, random=random).eval()
        found.setdefault("one deterministic pass", lambda model=model: draw_outputs(model, x, noise=False))
        for share in (True, False):
            name = f"{DRAWS} draws, {random} of {layers} layers random, {'shared' if share else 'not shared'}"
            found[name] = lambda model=model, share=share: draw_outputs(model, x, draws=DRAWS, share=share)
    return found


def main(
    output: Path = Path("runs/bench/predict_draws.json"), rounds: int = 5, threads: int = 1, quick: bool = False
) -> None:
    """Run the benchmark.

    Args:
        output: JSON file.
        rounds: How often each is timed.
        threads: Of torch.
        quick: One round at tiny sizes, to see that it runs; the numbers mean nothing.
    """
    meter = Meter.with_threads(threads, rounds=1 if quick else rounds)
    torch.manual_seed(0)
    width, layers, batch, length = (32, 3, 2, 4) if quick else (384, 6, 8, 64)
    seconds = meter.seconds(contestants(width, layers, torch.randn(batch, length, width)))
    rows: list[dict[str, Any]] = [
        {"name": name, "ratio": ratio.median, "lower": ratio.lower, "upper": ratio.upper}
        for name, ratio in ratios(seconds, next(iter(seconds))).items()
    ]
    sizes = {"batch": batch, "positions": length, "width": width, "layers": layers}
    record = {
        "command": f"python benchmarks/predict_draws.py --rounds {meter.rounds}",
        "corpus": "random numbers",
        **meter.about(threads),
        "kernels": native.status().reason.split(":")[0],
        "tables": [{"title": "Draws of predict", "sizes": sizes, "rows": rows}],
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(record, indent=1) + "\n")
    print(render_benchmark(record))
    print(f"written to {output}")


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
