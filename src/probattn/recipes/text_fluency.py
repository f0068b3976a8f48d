"""Fluency of text from scratch, by a language model that is not its generator, beside DAVAM's Tables IV and V."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from probattn.loading import load
from probattn.metrics import corpus_distinct, corpus_unigram_entropy, repetition
from probattn.metrics.fluency import Scorer, fluency
from probattn.recipes.provenance import commit, trained_with
from probattn.recipes.report import as_markdown
from probattn.recipes.storage import write_atomically
from probattn.recipes.text_data import load_corpus
from probattn.recipes.text_drawing import Law
from probattn.recipes.text_published import DIVERSITY, PUBLISHED, QUALITY
from probattn.recipes.text_scorer import LanguageModelScorer
from probattn.recipes.text_writer import TextWriter

__all__ = ["Sampling", "fluency_table", "measure", "store"]

FOLDER = "fluency"
HELD_OUT = "held-out text"
NUM_EXAMPLES = 5
FEWEST = 10
"""Held-out sentences of at least a length; with fewer there is no line for them."""

Table = tuple[list[str], list[list[str]]]


@dataclass(frozen=True)
class Sampling:
    """How texts are drawn."""

    lengths: Sequence[int] = (10, 20, 30, 40, 50)
    """Words of every text; most are cut off there."""
    num_samples: int = 100
    """Of each length; the paper has 100."""
    temperature: float = 1.0
    """Of codes; nothing where there is no latent."""
    top_p: float = 1.0
    """Of codes, and of words that are drawn."""
    word_temperature: float | None = 1.0
    """Of words given the latents; 1: samples of the model; 0: the most probable ones; None: as the row has it by
    itself."""
    seed: int = 0
    """Of the draws."""

    def __post_init__(self) -> None:
        if self.num_samples < 1 or not self.lengths or min(self.lengths) < 1:
            raise ValueError(f"wanted lengths and num_samples of at least 1, got {self.lengths} and {self.num_samples}")


def measure(run: Path, scorer: Scorer, sampling: Sampling) -> dict[str, Any]:
    """Draw texts from a trained model, and judge them and held-out sentences of the same lengths.

    Raises:
        ValueError: If the folder holds another kind of model, or the scorer is the generator.
    """
    writer = load(run)
    if not isinstance(writer, TextWriter):
        raise ValueError(f"{run} holds no text model, but a {type(writer).__name__}; name a run of text_vae")
    if isinstance(scorer, LanguageModelScorer) and _is_same(writer, scorer.writer):
        raise ValueError(f"{run} would judge its own texts; take a language model of another seed as the scorer")
    latent = writer.settings.latent
    if latent is None and sampling.word_temperature is not None:  # all chance is in the words
        sampling = replace(sampling, temperature=1.0)
    found, held_out, examples = {}, {}, {}
    for length in sampling.lengths:
        drawn = writer.sample(
            sampling.num_samples,
            length=length,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            word_temperature=sampling.word_temperature,
            min_words=length,
            seed=sampling.seed,
        )
        texts = [one.text for one in drawn]
        found[str(length)] = judged(texts, scorer)
        examples[str(length)] = texts[:NUM_EXAMPLES]
        real = _held_out(writer, length, sampling.num_samples)
        if len(real) >= min(FEWEST, sampling.num_samples):
            held_out[str(length)] = judged(real, scorer)
    return {
        "row": writer.settings.row,
        "seed": writer.settings.seed,
        "corpus": writer.settings.corpus.name,
        "scorer": scorer.name,
        "sampling": asdict(sampling),
        "draws_words": Law(sampling.temperature, word_temperature=sampling.word_temperature).of_words(latent) > 0.0,
        "commit": commit(),
        "trained_with": trained_with(run),
        "lengths": found,
        "held_out": held_out,
        "examples": examples,
    }


def judged(texts: Sequence[str], scorer: Scorer) -> dict[str, float]:
    """Fluency, diversity and repetition of texts, and how many there are."""
    return {
        "texts": len(texts),
        **asdict(fluency(texts, scorer)),
        "entropy": corpus_unigram_entropy(texts),
        "dist1": corpus_distinct(texts, 1),
        "dist2": corpus_distinct(texts, 2),
        "repetition": repetition(texts, 2),
    }


def store(record: Mapping[str, Any], folder: Path) -> Path:
    """Write a record as JSON; the file is named after the row, the seed, the scorer and how texts were drawn."""
    scorer = "".join(letter if letter.isalnum() or letter == "-" else "_" for letter in str(record["scorer"]))
    kind = f"{_drawn(record, '-{}{:g}')}{_sized(record)}"
    path = folder / f"{record['row']}-seed{record['seed']}-{scorer}{kind}.json"
    write_atomically(path, json.dumps(record, indent=1) + "\n")
    return path


def _drawn(record: Mapping[str, Any], form: str) -> str:
    """How texts were drawn, where they are not samples of the model."""
    kept = {name: record["sampling"].get(name) for name in ("temperature", "top_p", "word_temperature")}
    return "".join(form.format(name, value) for name, value in kept.items() if value not in (None, 1.0))


def _sized(record: Mapping[str, Any]) -> str:
    """What else is not as it is by default, for the name of a file: one record must not replace another kind."""
    sampling, own = record["sampling"], Sampling()
    found = "-own_words" if sampling.get("word_temperature", 1.0) is None else ""
    if list(sampling.get("lengths", own.lengths)) != list(own.lengths):
        found += f"-lengths{'_'.join(map(str, sampling['lengths']))}"
    for name in ("num_samples", "seed"):
        if sampling.get(name, getattr(own, name)) != getattr(own, name):
            found += f"-{'draws' if name == 'seed' else name}{sampling[name]}"
    return found


def _words_are(record: Mapping[str, Any]) -> str:
    """Drawn, or the most probable ones given the latents; records of before that was noted drew those of `lstm-lm`."""
    return "drawn" if record.get("draws_words", record["row"] == "lstm-lm") else "most probable"


def fluency_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """A line for each row and length, held-out text last; the paper's numbers beside drawn words, which they look like.

    Diversity depends on the number of texts, so held-out text of a length has one only where there is as much of it.
    """
    header = [
        "row",
        "words are",
        "length",
        "fluency_ppl",
        "nats a token",
        "entropy",
        "Dist-1",
        "Dist-2",
        "repetition",
    ]
    rows = []
    for record in records:
        name = record["row"] if record["seed"] == 0 else f"{record['row']}, seed {record['seed']}"
        law = dict(record["sampling"])
        if law.get("word_temperature") == 0.0:  # which the next column says
            del law["word_temperature"]
        name += _drawn({"sampling": law}, ", {} {:g}")
        for length, values in record["lengths"].items():
            is_paper = record["corpus"] in PUBLISHED and not _drawn(record, "{}{}") and _words_are(record) == "drawn"
            row = record["row"] if is_paper else ""
            rows.append([name, _words_are(record), length, *_cells(values, row, int(length))])
    widest = max(records, key=lambda record: len(record["held_out"]))
    wanted = widest["sampling"]["num_samples"]
    for length, values in widest["held_out"].items():
        cells = _cells(values, "", 0)
        if values.get("texts", wanted) < wanted:
            cells[2:5] = ["-", "-", "-"]
        rows.append([HELD_OUT, "-", length, *cells])
    return header, rows


def table_text(records: Sequence[Mapping[str, Any]]) -> str:
    """The table, with the scorer above it."""
    return f"Scorer: {records[0]['scorer']}\n\n{as_markdown(*fluency_table(records))}"


def _cells(values: Mapping[str, float], row: str, length: int) -> list[str]:
    quality, diversity = QUALITY.get(row, {}).get(length), DIVERSITY.get(row, {}).get(length, {})
    nats = f"{values['nats']:.2f} ± {values['nats_spread']:.2f}"
    cells = [f"{values['fluency_ppl']:.1f}", nats + (f" ({quality[0]:g} ± {quality[1]:g})" if quality else "")]
    for name, digits in (("entropy", 2), ("dist1", 3), ("dist2", 3)):
        paper = f" ({diversity[name]:g})" if name in diversity else ""
        cells.append(f"{values[name]:.{digits}f}{paper}")
    return [*cells, f"{values['repetition']:.3f}"]


def _held_out(writer: TextWriter, length: int, count: int) -> list[str]:
    """First words of test sentences that are long enough, evenly spaced; none where the corpus is not to be had."""
    try:
        corpus = load_corpus(writer.settings.corpus, writer.tokenizer)
    except (FileNotFoundError, ValueError) as error:
        print(f"no held-out text to compare with: {error}", file=sys.stderr)
        return []
    long = [words for text in corpus.texts["test"] if len(words := text.split()) >= length]
    kept = min(count, len(long))  # from all over the text: neighbours are alike
    return [" ".join(long[number * len(long) // kept][:length]) for number in range(kept)]


def _is_same(one: TextWriter, other: TextWriter) -> bool:
    mine, theirs = one.model.state_dict(), other.model.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)
