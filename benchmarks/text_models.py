"""Text models: sampling of the autoregressive prior, and training steps over a language model's.

    python benchmarks/text_models.py --output runs/bench/text_models.json

A prior of gated causal convolutions draws T codes one after another. "cached" is `ancestral`, which keeps the last
inputs of every layer; "prefix" runs the network over all codes drawn so far at every position, "whole" over all T
positions. All three draw the same codes. A training step is forward, backward, clipping, Adam and the codebook's
update, as the engine does them, on random words; the stage `prior` trains that alone, but reads the sentences
too. The scale rounds factors of the readout to bfloat16 where the processor is faster with it; lines "float32" do not.
Times are ratios, interleaved in one run (see `interleaved`).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmark_table import render_benchmark
from interleaved import Contestants, ratios
from jsonargparse import auto_cli
from meter import Meter, Row
from torch import Tensor

from probattn.core import Dense, fold_seed
from probattn.data.text import EncodedSentences
from probattn.data.words import train_words
from probattn.distributions import MaskedOneHot
from probattn.nn import AutoregressiveCategorical, CausalConvolutions
from probattn.recipes.text_data import TextCorpus
from probattn.recipes.text_settings import TextSettings, engine_stages
from probattn.recipes.text_task import TextTask
from probattn.recipes.text_vae import RECIPE
from probattn.training.optim import build_optimizer, set_trainable
from probattn.training.stage import matches

SPEED_UP = 10.0
"""Of cached sampling over the prefix recomputed, at T = 50."""
TARGET_LENGTH = 50
CODE_DIM = 32
SAMPLING = (
    (
        "Sampling codes, sizes of the scale ptb",
        (512, 128, 6, 64),
        [*((way, length) for length in (10, 25, 50) for way in ("cached", "prefix")), ("whole", 50)],
    ),
    ("Sampling codes, the paper's sizes", (512, 512, 16, 8), [("cached", 50), ("prefix", 50)]),
)
"""Title; codes, channels, layers and sequences; what is timed."""
ROWS = {"lstm-lm": "lstm-lm", "vae": "vae-anneal", "gavam": "gavam", "davam": "davam-512"}
"""By name in the table; a row with several stages has a line for each."""
FLOAT_ROWS = ("lstm-lm", "davam")
"""Those that are timed with a float32 readout too, whatever the scale has; stages without words have none."""
TINY_NETWORK = (
    "{embedding_dim: 8, hidden_dim: 8, latent_dim: 4, attention_dim: 8, prior_channels: 8, prior_layers: 2, dropout: 0}"
)


def convolution_prior(num_codes: int, *, channels: int, layers: int) -> AutoregressiveCategorical:
    """A prior with random weights."""
    torch.manual_seed(0)
    network = CausalConvolutions(CODE_DIM, num_codes, channels=channels, num_layers=layers)
    return AutoregressiveCategorical(network, torch.randn(num_codes, CODE_DIM)).eval()


@torch.no_grad()
def recomputed(prior: AutoregressiveCategorical, batch: int, length: int, *, seed: Tensor, is_whole: bool) -> Tensor:
    """(B, T, D) codes as `ancestral` draws them, by a pass over the prefix, or over all positions, for each of them."""
    inputs = prior.start.new_zeros(batch, length + 1, CODE_DIM)
    inputs[:, 0] = prior.start
    for position in range(length):
        seen = inputs[:, :-1] if is_whole else inputs[:, : position + 1]
        logits = prior.network(seen)[:, position].unsqueeze(1)
        index = MaskedOneHot(logits, Dense()).draw_index(1, fold_seed(seed, position))[0, :, 0]
        inputs[:, position + 1] = prior.codes[index]
    return inputs[:, 1:]


@torch.no_grad()
def cached(prior: AutoregressiveCategorical, batch: int, length: int, *, seed: Tensor) -> Tensor:
    """(B, T, D) codes by the library."""
    return prior.ancestral(batch, length, seed=seed)


def samplers(prior: AutoregressiveCategorical, batch: int, plan: Sequence[tuple[str, int]]) -> Contestants:
    """Draws by some ways and of some lengths; the first is the reference.

    Args:
        prior: To sample from.
        batch: Sequences at once.
        plan: (way, length) of every contestant.

    Raises:
        ValueError: If the ways do not draw the same codes.
    """
    seed = torch.tensor(0)
    ways: dict[str, Callable[[int], Tensor]] = {
        "cached": lambda length: cached(prior, batch, length, seed=seed),
        "prefix": lambda length: recomputed(prior, batch, length, seed=seed, is_whole=False),
        "whole": lambda length: recomputed(prior, batch, length, seed=seed, is_whole=True),
    }
    expected = ways["cached"](4)
    if not all(torch.equal(way(4), expected) for way in ways.values()):
        raise ValueError("cached and recomputed sampling draw different codes, so their times cannot be compared")
    return {f"{way}, T = {length}": partial(ways[way], length) for way, length in plan}


def sampler_rows(seconds: Mapping[str, Sequence[float]]) -> list[Row]:
    """Time over the first contestant's, and for recomputed ones the gain of the cache at the same length."""
    found: list[Row] = []
    for name, ratio in ratios(seconds, next(iter(seconds))).items():
        way, _, length = name.partition(", T = ")
        row: Row = {"name": name, "ratio": ratio.median, "lower": ratio.lower, "upper": ratio.upper}
        if way != "cached":
            row["over_cached"] = ratios(seconds, f"cached, T = {length}")[name].median
        if way == "prefix" and int(length) == TARGET_LENGTH:
            row["target_over_cached"] = SPEED_UP
        found.append(row)
    return found


def random_text(count: int, words: int, *, vocabulary: int) -> TextCorpus:
    """Sentences of equal length with words drawn evenly."""
    draw = torch.Generator().manual_seed(1)
    numbers = torch.randint(vocabulary, (count, words), generator=draw).tolist()
    lines = tuple(" ".join(f"w{number}" for number in row) for row in numbers)
    tokenizer = train_words([" ".join(f"w{number}" for number in range(vocabulary))], vocabulary_size=vocabulary + 4)
    encoded = EncodedSentences.from_lines(lines, tokenizer, name="random words")
    return TextCorpus({"train": lines, "valid": lines}, {"train": encoded, "valid": encoded}, tokenizer)


def steps(corpus: TextCorpus, overrides: Mapping[str, Any]) -> Contestants:
    """Training steps of rows, stage by stage; the first is the reference."""
    found: dict[str, Callable[[], None]] = {}
    for title, row in ROWS.items():
        settings, _ = RECIPE.load(RECIPE.configs(row, "ptb"), overrides)
        exact = replace(settings, readout_precision="no")
        for number, stage in enumerate(settings.stages):
            name = title if len(settings.stages) == 1 else f"{title}, {stage.name}"
            found[name] = training_step(settings, corpus, number)
            if title in FLOAT_ROWS and matches("readout.weight", stage.trainable):
                found[f"{name}, float32"] = training_step(exact, corpus, number)
    return found


def training_step(settings: TextSettings, corpus: TextCorpus, number: int) -> Callable[[], None]:
    """One update of a stage, on the same batch every time."""
    task, stage = TextTask(settings, corpus), engine_stages(settings)[number]
    task.model.train()
    parameters = set_trainable(task.model, stage)
    optimizer = build_optimizer(parameters, stage, settings.trainer)
    for group in optimizer.param_groups:
        group["lr"] = 0.0  # weights stay as they are, the work is the same
    batch = task.batches(0)[0]
    task.step(batch, stage, 0)  # starts the codebook

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        output = task.step(batch, stage, 1)
        output.loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), 5.0)
        optimizer.step()
        task.after_update(batch, output)

    return run


def main(
    output: Path = Path("runs/bench/text_models.json"), rounds: int = 3, threads: int = 1, quick: bool = False
) -> None:
    """Run the benchmark.

    Args:
        output: JSON file.
        rounds: How often each is timed.
        threads: Of torch.
        quick: One round at tiny sizes, to see that it runs; the numbers mean nothing.
    """
    meter = Meter.with_threads(threads, rounds=1 if quick else rounds)
    tables: list[dict[str, Any]] = []
    for title, sizes, plan in SAMPLING:
        codes, channels, layers, batch = (16, 8, 2, 2) if quick else sizes
        prior = convolution_prior(codes, channels=channels, layers=layers)
        seconds = meter.seconds(samplers(prior, batch, plan))
        about = {"codes": codes, "channels": channels, "layers": layers, "sequences": batch}
        tables.append({"title": title, "sizes": about, "rows": sampler_rows(seconds)})
    vocabulary, words, batch = (30, 5, 4) if quick else (10_000, 21, 32)
    overrides: dict[str, Any] = {"batch_size": batch} | ({"network": TINY_NETWORK} if quick else {})
    contestants = steps(random_text(max(batch, 1000), words, vocabulary=vocabulary), overrides)
    found = ratios(meter.seconds(contestants), "lstm-lm")
    rows = [{"name": name, "ratio": one.median, "lower": one.lower, "upper": one.upper} for name, one in found.items()]
    about = {"sentences": batch, "words": words, "vocabulary": vocabulary}
    tables.append({"title": "Training step, sizes of the scale ptb", "sizes": about, "rows": rows})
    record = {
        "command": f"python benchmarks/text_models.py --rounds {meter.rounds}",
        "corpus": "random codes and words",
        **meter.about(threads),
        "tables": tables,
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(record, indent=1) + "\n")
    print(render_benchmark(record))
    print(f"written to {output}")


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
