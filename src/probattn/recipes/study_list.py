"""Which comparisons stand behind the tables of the documentation: rows, seeds, scales and settings, by folder."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probattn.recipes.comparison import Comparison, recipe_by_name

__all__ = ["STUDIES", "Study"]


@dataclass(frozen=True)
class Study:
    """One folder of results.

    Attributes:
        folder: Inside `results/`.
        recipe: Its name.
        seeds: How many seeds which rows have, the most wanted ones first; "*" for all that are not named before.
        scale: Of the recipe, or None for its default.
        overrides: Settings of all rows.
        scorer: Run whose language model judges what the first seeds of all rows write; None for no such table.
    """

    folder: str
    recipe: str
    seeds: Sequence[tuple[str, int]]
    scale: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    scorer: str | None = None

    def comparisons(self, results: Path) -> Iterator[Comparison]:
        """The comparisons that make it up, in the order they are run."""
        recipe = recipe_by_name(self.recipe)
        named = {row for rows, _ in self.seeds for row in rows.split()}
        for rows, num_seeds in self.seeds:
            chosen = [row for row in recipe.rows if row not in named] if rows == "*" else rows.split()
            yield Comparison(
                recipe,
                chosen,
                num_seeds=num_seeds,
                scale=self.scale,
                overrides=self.overrides,
                output=results / self.folder,
            )


STUDIES = (
    Study("recall", "recall", [("*", 3)]),
    Study(
        "nmt_generated",
        "translation",
        [
            ("soft marginal hard-enum variational-enum variational-sample bayesian-wc", 3),
            ("variational-loo variational-topk", 3),
        ],
    ),
    Study("nmt_longer", "translation", [("soft marginal variational-enum", 2)], overrides={"epochs": 20}),
    Study(
        "nmt_multi30k",
        "translation",
        [
            ("*", 1),
            ("soft marginal variational-enum variational-sample", 3),
            ("variational-loo variational-topk", 1),
        ],
        scale="multi30k",
    ),
    Study("nmt_wmt10k", "translation", [("soft variational-topk", 1)], scale="wmt10k"),
    Study("gat/cora", "gat", [("*", 20)], scale="cora"),
    Study("gat/citeseer", "gat", [("*", 20)], scale="citeseer"),
    Study("gat/pubmed", "gat", [("*", 10)], scale="pubmed"),
    *(
        Study(
            f"glue/{task}",
            "glue",
            # what a KL at weight one does is shown once
            [("soft no-kl wc lc", 3), *([("wc-exp wc-full", 1)] if task == "cola" else [])],
            scale=task,
            # CoLA was drawn before draws with dropout had a precision of their own
            overrides={"optimiser.precision": "bf16"}
            | ({} if task == "cola" else {"evaluation.dropout_precision": "bf16"}),
        )
        for task in ("cola", "stsb", "mrpc", "rte")  # the cheapest first; a run on RTE takes as long as several on CoLA
    ),
    Study(
        "question_generation",
        "question_generation",
        [("ved-dattn ved-vattn-0 ved-vattn-h", 2), ("*", 1)],
        scale="squad",
    ),
    *(
        Study(
            f"question_generation/gamma/{value:g}",
            "question_generation",
            [("ved-vattn-h", 1)],
            scale="squad",
            overrides={"weights": f"{{code: 1.0, attention: {value}}}"},
        )
        for value in (0.01, 1.0, 0.001)
    ),
    Study("dialogue", "dialogue", [("ded-dattn ved-dattn ved-vattn-0 ved-vattn-h", 1)], scale="cornell"),
    Study("pilot_vae", "pilot_vae", [("*", 1)], scale="captions"),
    Study(
        "text_ptb",
        "text_vae",
        [
            ("lstm-lm", 2),  # the second one judges fluency
            ("vae gavam davam-512 vae-pretraining-fbp davam-128", 1),
            ("vae-anneal vae-cyclic vae-aggressive vae-fbp vae-attn davam-q", 1),
            ("davam-512-places gavam-places davam-128-places", 1),  # ours
            ("lstm-lm-peak-35", 1),  # what the learning rate of rows with a warm-up does by itself
        ],
        scale="ptb",
        scorer="lstm-lm-seed1",
    ),
    Study(
        "text_captions",
        "text_vae",
        [
            ("lstm-lm vae-anneal vae-pretraining-fbp vae-attn gavam davam-128 davam-512 davam-512-places", 1),
            ("lstm-lm-peak-35", 1),
        ],
        scale="captions",
    ),
    Study(
        "text_yahoo",
        "text_vae",
        [("lstm-lm", 2), ("vae-pretraining-fbp vae-attn gavam davam-512 davam-512-places", 1), ("lstm-lm-peak-35", 1)],
        scale="yahoo",
        scorer="lstm-lm-seed1",
    ),
    Study(
        "text_bounds",
        "text_vae",
        [
            ("lstm-lm davam-short-joint davam-short-control davam-short-constant", 3),
            ("davam-128 davam-stochastic davam-joint davam-short lstm-lm-peak-75", 3),
        ],
        overrides={"updates": 800},
    ),
    Study(  # beside lstm-lm of text_ptb
        "text_bounds_ptb",
        "text_vae",
        [("davam-short-joint davam-short-control davam-short-constant lstm-lm-peak-75", 1)],
        scale="ptb",
    ),
    *(
        Study(
            f"vqa_{scale}",
            "vqa",
            [("question-only soft marginal variational-enum mcan-soft mcan-wc mcan-wc-acting", 3), ("*", 1)],
            scale,
        )
        for scale in ("daquar", "scenes")
    ),
    Study(
        "captioning_flickr8k",
        "captioning",
        [("soft lc wc", 3), ("*", 1)],
        scale="flickr8k",
        overrides={"decoding.has_meteor": "true"},
    ),
    Study("captioning_scenes", "captioning", [("soft hard lc wc wc-acting", 3)], scale="scenes"),
)
