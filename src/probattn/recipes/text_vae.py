"""Text models with a latent variable: DAVAM, its ablations, and the text VAEs that it is measured against.

    probattn train text_vae/davam-128
    probattn compare text_vae --rows lstm-lm vae-anneal gavam davam-512 --scale ptb

A row is a YAML file in `recipes/configs/text_vae/`, a scale one in its folder `scale/`. All rows have the same updates;
a run is resumed where it stopped.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from probattn.data.bpe import Tokenizer
from probattn.kernels import has_half_products
from probattn.models import MemoryVae, SentenceVae
from probattn.recipes.engine_run import announce, row_result, train_to_end, training_curves
from probattn.recipes.recipe import Recipe, Run
from probattn.recipes.results import RowResult
from probattn.recipes.text_data import TextCorpus, load_corpus
from probattn.recipes.text_drawing import draws_words
from probattn.recipes.text_eval import evaluate_model
from probattn.recipes.text_network import build_model
from probattn.recipes.text_report import write_report
from probattn.recipes.text_settings import SITE, TextSettings, engine_stages
from probattn.recipes.text_task import TextTask
from probattn.recipes.text_writer import LENGTHS_FILE, TOKENIZER_FILE, TextWriter
from probattn.training import TrainResult, load_weights

LOGGED = {"reconstruction": "train_reconstruction", f"kl_{SITE}": "train_kl", "is_burst": "is_burst"}
"""What the training steps log, and how its curves are called beside those of validations."""


def train(run: Run) -> RowResult:
    """Train a row (or go on with it), keep its last model in `model/` and evaluate that on the test split."""
    settings: TextSettings = run.settings
    corpus = load_corpus(settings.corpus)
    announce(corpus, run)
    task = TextTask(settings, corpus, plain=run.plain)
    result = train_to_end(task, run, settings=settings.trainer, stages=engine_stages(settings), seed=settings.seed)
    writer = TextWriter(task.model, corpus.tokenizer, settings=settings, lengths=corpus.length_counts)
    writer.save(run.output / "model", run.plain, text=corpus.digest)
    curves = training_curves(result.log, LOGGED)
    bursts = curves.pop("is_burst", [])
    last = max((update for update, share in bursts if share > 0.0), default=0)
    moved = {"decoder_updates": outside_bursts(bursts, updates=result.updates), "bursts_until": last} if bursts else {}
    found = row_result(
        settings,
        result,
        model=task.model,
        facts={**_facts(settings, result, corpus), "readout": _readout(settings, task.model)},
        metrics={**evaluate_model(writer, corpus), **moved},
        curve="reconstruction",
        examples=writer.examples(corpus),
    )
    return replace(found, curves={**found.curves, **curves})


def load_writer(settings: TextSettings, folder: Path) -> TextWriter:
    """Open the folder that `TextWriter.save` wrote.

    Raises:
        ValueError: If a file is damaged.
    """
    path = folder / LENGTHS_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        counts, digest = [int(number) for number in content["counts"]], str(content["digest"])
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} holds no lengths of sentences, or was cut off ({error!r})") from error
    tokenizer = Tokenizer.load(folder / TOKENIZER_FILE, digest=digest)
    model: SentenceVae | MemoryVae = build_model(settings, tokenizer.vocabulary_size)
    load_weights(model, folder)
    return TextWriter(model, tokenizer, settings=settings, lengths=counts)


def outside_bursts(shares: Sequence[tuple[int, float]], *, updates: int) -> float:
    """Updates that moved the decoder, to the length of a line of the log.

    Args:
        shares: (update, share of bursts since the line of the log before); a stage without bursts has no such lines.
        updates: Of the whole training.

    Example:
        >>> outside_bursts([(50, 0.9), (100, 0.5)], updates=300)
        230.0
    """
    starts = [0, *(update for update, _ in shares[:-1])]
    moved = sum((1.0 - share) * (update - start) for start, (update, share) in zip(starts, shares, strict=True))
    return float(round(moved)) + updates - shares[-1][0]


def _facts(settings: TextSettings, result: TrainResult, corpus: TextCorpus) -> dict[str, Any]:
    sampling, has_weights = settings.sampling, settings.latent is not None and settings.latent.posterior != "codes"
    few = min(sampling.num_weighted, len(corpus.encoded["test"]))
    importance = f"{sampling.num_importance} draws, {few} test sentences from all over the split"
    return {
        **({"importance": importance} if has_weights else {}),
        "bound": "Elbo",
        "train_estimator": "Pathwise (one draw)" if settings.latent else "none",
        "kl_reduction": "sum over positions, divided by sentences in the loss; davam_ppl averages over positions",
        "words": "drawn" if draws_words(settings.latent) else "most probable",
        "stages": [stage.name for stage in settings.stages],
        "corpus": settings.corpus.name,
        "updates": result.updates,
        "epochs": result.epochs,
    }


def _readout(settings: TextSettings, model: SentenceVae | MemoryVae) -> str:
    can_round = model.device.type == "cpu" and model.readout.in_features % 2 == 0 and has_half_products()
    if settings.readout_precision == "bf16" and can_round:
        return "factors of products rounded to bfloat16 in training, float32 in evaluation"
    return "float32"


RECIPE = Recipe("text_vae", TextSettings, train, write_report, load_model=load_writer, default_scale="generated")
