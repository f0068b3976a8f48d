"""Speed and memory of translation: training steps, the output layer, decoding.

    python benchmarks/translation.py --output runs/bench/translation.json      # `make bench` runs it too
    PROBATTN_DATA=... python benchmarks/translation.py --corpus multi30k

Times are ratios to a reference, interleaved in one run (see `interleaved`). With one thread the clock counts the
processor's time, so that other programs disturb less. Memory is what torch's allocator holds at the peak above what it
held before, from the memory events of torch's profiler (see `peak_memory`): exact for tensors, blind to the rest.

Networks have the sizes of the scale `multi30k` and random weights. Enumerated rows that skip negligible alignments get
their scores scaled up first, because nearly uniform weights have no negligible alignments; the column "alignments
kept" says how many were left.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from benchmark_table import render_benchmark
from interleaved import ratios
from jsonargparse import auto_cli
from meter import Meter
from output_layer import OutputLayer, OutputLayerSizes
from torch import Tensor
from translation_decoding import decoders
from translation_steps import ENUMERATED, row_settings, training_steps, typical_batch

from probattn.kernels import native
from probattn.recipes.translation import TranslationTask
from probattn.recipes.translation_data import load_corpus

Table = dict[str, Any]

CORPORA: Mapping[str, Mapping[str, Any]] = {
    "generated": {"corpus.name": "generated", "corpus.train_size": 4000, "corpus.test_size": 1},
    "multi30k": {},
}
"""Changes of the scale `multi30k`, by corpus."""

TARGETS: Mapping[str, Mapping[str, float]] = {
    "enumeration": {"target_ratio": 19, "target_megabytes": 60},
    "enumeration, peaked, skipping": {"target_ratio": 10, "target_megabytes": 60},
}
"""What the output layer is to reach, by contestant."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    overrides: Mapping[str, Any]
    """Of the settings of the scale `multi30k`."""
    output_layer: OutputLayerSizes = field(default_factory=OutputLayerSizes)
    """Of the output layer that is measured alone."""
    skip_below: float = 1e-3
    """Of training steps that skip."""
    sigma: float = 4.0
    """Spread of the log-weights of an alignment in enumerated training steps that skip, in nats."""
    sentences: int = 32
    """That are decoded together."""
    num_words: int = 20
    """Of every translation."""
    beam_size: int = 10
    """Of the beam search."""


TINY = Sizes(
    overrides={
        "corpus.name": "generated",
        "corpus.train_size": 60,
        "corpus.test_size": 1,
        "corpus.vocabulary_size": 900,
        "max_tokens": 200,
        "network.embedding_dim": 8,
        "network.encoder_dim": 4,
        "network.decoder_dim": 8,
        "network.attention_dim": 4,
    },
    output_layer=OutputLayerSizes(sentences=2, source_length=5, target_length=3, width=8, vocabulary=50),
    sentences=2,
    num_words=3,
    beam_size=2,
)


def step_table(task: TranslationTask, batch: Tensor, *, sizes: Sizes, meter: Meter) -> Table:
    """Whole training steps on one batch, over soft attention's."""
    steps = training_steps(
        task.corpus, batch, overrides=sizes.overrides, skip_below=sizes.skip_below, sigma=sizes.sigma
    )
    rows = meter.rows(steps, meter.seconds(steps))
    for row in rows:
        if row["name"] in {f"{name}, skipping" for name in ENUMERATED}:
            row["kept"] = steps[row["name"]].kept_share()
    pairs = task.corpus.encoded["train"].batch(batch)
    measures = {
        "sentences": len(batch),
        "source_length": pairs.source.shape[1],
        "target_length": pairs.target_in.shape[1],
        "width": task.settings.network.embedding_dim,
        "vocabulary": task.model.readout.embedding.num_embeddings,
    }
    return {"title": "Training step", "sizes": measures, "skip_below": sizes.skip_below, "rows": rows}


def output_table(*, sizes: Sizes, meter: Meter) -> Table:
    """The output layer alone, over soft attention's."""
    layer = OutputLayer(sizes.output_layer)
    contestants = layer.contestants()
    rows = meter.rows(contestants, meter.seconds(contestants))
    for row in rows:
        row |= TARGETS.get(row["name"].removesuffix(", C++"), {})
        if row["name"].startswith("enumeration, peaked, skipping"):
            row["kept"] = layer.kept_share()
    return {"title": "Output layer", "sizes": asdict(sizes.output_layer), "skip_below": layer.skip_below, "rows": rows}


def decoding_table(task: TranslationTask, batch: Tensor, *, sizes: Sizes, meter: Meter) -> Table:
    """Greedy and beam search of sentences of equal length, over greedy decoding with soft attention."""
    pairs = task.corpus.encoded["train"].batch(batch[: sizes.sentences])
    searches = decoders(task.model.eval(), pairs, beam_size=sizes.beam_size, num_words=sizes.num_words)
    contestants = {f"{search}, {name}": call for search, calls in searches.items() for name, call in calls.items()}
    seconds = meter.seconds(contestants)
    rows = meter.rows(contestants, seconds)
    for row in rows:
        search, name = row["name"].split(", ")
        if search != "greedy":
            both = {"greedy": seconds[f"greedy, {name}"], search: seconds[row["name"]]}
            row["over_greedy"] = ratios(both, "greedy")[search].median
    measures = {
        "sentences": len(pairs.source),
        "source_length": pairs.source.shape[1],
        "target_length": sizes.num_words,
        "width": task.settings.network.embedding_dim,
        "vocabulary": task.model.readout.embedding.num_embeddings,
    }
    return {"title": "Decoding", "sizes": measures, "rows": rows}


def main(
    output: Path = Path("runs/bench/translation.json"),
    corpus: Literal["generated", "multi30k"] = "generated",
    rounds: int = 9,
    threads: int = 1,
    quick: bool = False,
) -> None:
    """Run the benchmark.

    Args:
        output: JSON file.
        corpus: Text of training steps and decoding; multi30k is read from PROBATTN_DATA.
        rounds: Rounds of each table.
        threads: Of torch.
        quick: One round at tiny sizes, to see that it runs; the numbers mean nothing.
    """
    torch.manual_seed(0)
    sizes = TINY if quick else Sizes(overrides=CORPORA[corpus])
    meter = Meter.with_threads(threads, rounds=1 if quick else rounds)
    settings = row_settings("soft", sizes.overrides)
    task = TranslationTask(settings, load_corpus(settings.corpus))
    batch = typical_batch(task)
    record = {
        "command": f"python benchmarks/translation.py --corpus {corpus} --rounds {meter.rounds}",
        "corpus": settings.corpus.name,
        **meter.about(threads),
        "kernels": native.status().reason.split(":")[0],
        "tables": [
            step_table(task, batch, sizes=sizes, meter=meter),
            output_table(sizes=sizes, meter=meter),
            decoding_table(task, batch, sizes=sizes, meter=meter),
        ],
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(record, indent=1) + "\n")
    print(render_benchmark(record))
    print(f"written to {output}")


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
