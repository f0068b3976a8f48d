"""Image captioning with soft, hard and Bayesian attention: Table 3 of BAM (Fan et al. 2020) on one network, Att2in.

    probattn train captioning/soft --scale scenes
    probattn compare captioning --rows soft hard wc --scale flickr8k

A row is a YAML file in `recipes/configs/captioning/`, a scale one in its folder `scale/`. All rows have the same
updates; a run is resumed where it stopped. A row that is known to break may say `on_failure: report`: then a loss that
is not finite ends its run, the engine keeps what is needed to see it again, and the table says so.
"""

import sys
import warnings
from collections.abc import Mapping
from typing import Any

from probattn.metrics.captions import has_caption_scores
from probattn.recipes.captioning_data import CaptionCorpus, load_corpus
from probattn.recipes.captioning_report import write_report
from probattn.recipes.captioning_settings import SITE, CaptioningSettings
from probattn.recipes.captioning_task import CaptioningTask
from probattn.recipes.captioning_writer import CaptionWriter, load_writer
from probattn.recipes.engine_run import announce, last_logged, row_result, selecting, train_to_end, validation_curves
from probattn.recipes.recipe import Recipe, Run
from probattn.recipes.results import RowResult
from probattn.training import CollapseWarning, TrainingFailure, TrainResult, warn_of_collapse

_LEAST_KL = 0.01  # nats a word
NUM_EXAMPLES = 6
"""Test pictures whose captions and attention are kept for the report."""


def train(run: Run) -> RowResult:
    """Train a row (or go on with it), keep its best model in `model/` and evaluate that on the test split."""
    settings: CaptioningSettings = run.settings
    trainer = selecting(settings.trainer, {"bleu4": "max", "ppl": "min"})
    corpus = load_corpus(settings.corpus)
    announce(corpus, run)
    if not has_caption_scores():
        print("CIDEr and ROUGE-L are left out; they need: pip install 'probattn[vision]'", file=sys.stderr)
    task = CaptioningTask(settings, corpus, plain=run.plain)
    try:
        result = train_to_end(task, run, settings=trainer, stages=[settings.stage()], seed=settings.seed)
    except TrainingFailure as error:
        if settings.on_failure == "raise":
            raise
        return _failed(run, str(error))
    held_out = corpus.splits["test"].images.names
    writer = CaptionWriter(task.model, corpus.tokenizer, settings=settings, held_out=held_out)
    writer.save(run.output / "model", run.plain, inputs=task.inputs)
    metrics = writer.evaluate(corpus)
    warn_if_collapsed(metrics)
    return row_result(
        settings,
        result,
        model=task.model,
        facts=_facts(settings, result),
        metrics=metrics | last_logged(result.log, "effective_kl_gradient"),
        curve="ppl",
        examples=caption_examples(writer, corpus),
    )


def warn_if_collapsed(metrics: Mapping[str, float]) -> None:
    """Say that the weights have fallen onto their prior: less than a hundredth of a nat a word, as Gaussian ones do."""
    words = metrics["greedy_words"] + 1.0  # and the end
    if "kl_per_word" in metrics:
        for message in warn_of_collapse({SITE: words * metrics["kl_per_word"]}, min_kl=_LEAST_KL * words):
            warnings.warn(message, CollapseWarning, stacklevel=2)


def caption_examples(writer: CaptionWriter, corpus: CaptionCorpus) -> list[dict[str, Any]]:
    """Test pictures with a reference, the beam's caption and, for each of its words, prior and posterior weights."""
    split = corpus.splits["test"]
    step = max(1, len(split.images) // NUM_EXAMPLES)
    rows = list(range(0, len(split.images), step))[:NUM_EXAMPLES]
    names = [split.images.names[row] for row in rows]
    found = []
    for row, name, best in zip(rows, names, writer.caption(split.features, names), strict=True):
        words = writer.attention(split.features, name, best[0].text)
        found.append(
            {
                "picture": name,
                "references": list(split.images.captions[row]),
                "caption": best[0].text,
                "words": [one.word for one in words],
                "grid": split.features.grid,
                "posterior": [_rounded(one.posterior) for one in words],
                "prior": [_rounded(one.prior) for one in words if one.prior is not None],
            }
        )
    return found


def _rounded(weights: Any) -> list[float]:
    return [round(float(weight), 3) for weight in weights]


def _failed(run: Run, message: str) -> RowResult:
    """The result of a row whose training broke."""
    settings: CaptioningSettings = run.settings
    log = run.output / "log.jsonl"
    updates = last_logged(log, "update") if log.exists() else {}
    reason = message.split(". ")[0]
    return RowResult(
        row=settings.row,
        source=settings.source,
        seed=settings.seed,
        facts={**_row_facts(settings), "failed": reason, "failure_report": "failure/ in the run's folder"},
        metrics={"failed_after": updates.get("update", 0.0)},
        curves=validation_curves(log) if log.exists() else {},
    )


def _row_facts(settings: CaptioningSettings) -> dict[str, Any]:
    return {
        "bound": "Elbo",
        "train_estimator": repr(settings.estimator),
        "test_estimator": "Mean (plug-in weights)",
        "kl": settings.kl,
        "kl_weight": repr(settings.kl_weight) if settings.has_kl else "none",
        "kl_reduction": "sum over words and regions, divided by captions in the loss",
        "baseline": settings.baseline,
        "corpus": settings.corpus.name,
        "draws": settings.decoding.num_samples,
        "beam_size": settings.decoding.beam_size,
    }


def _facts(settings: CaptioningSettings, result: TrainResult) -> dict[str, Any]:
    missing = {} if has_caption_scores() else {"left_out": "CIDEr and ROUGE-L: pycocoevalcap is not installed"}
    return {**_row_facts(settings), "updates": result.updates, "epochs": result.epochs, **missing}


RECIPE = Recipe("captioning", CaptioningSettings, train, write_report, load_model=load_writer, default_scale="scenes")
