"""What the study of augmentation trains, and how: sizes, budgets, stages.

Small corpora are learned by heart, so when a run ends matters as much as what it is trained on:

- A **language model**, judged or generating, is trained until its validation no longer improves; the rate is halved
  whenever it has not for two validations. A rate that falls over a fixed number of updates would make a difference of
  its own: on 1,000 captions the best validation comes early, at a high rate, and with text added later, at a low one.
  Here lower rates come when the full one has done what it can. They hardly matter then: validation perplexity is best
  at the full rate on 1,000 captions (70.8 after 550 updates) and with 4,000 further ones (36.8 after 2,050), and from
  those weights a quarter of the rate gives no better ones (73.0 and 37.1); a rate that falls to zero over 600 updates
  ends at 75.8 on 1,000 captions. Trials of one seed by hand, without result files.
- A **generator with codes** cannot end so: its commitment rises over a number of updates that must be known, and
  validation may get worse before the decoder finds out how to copy, so neither a plateau nor an early end would mean
  anything. Its stages have fixed lengths, with rates that fall to zero after the warm-up, and each goes on from the
  best weights of the one before it, since the last ones know a small corpus by heart.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from probattn.recipes.text_cells import stages_of

__all__ = ["GENERATORS", "JUDGED", "ROWS", "SEE_ALL", "STUDIES", "Generator", "Study"]

Generator = Literal["davam-small", "davam-all", "lstm-small", "lstm-all", "real"]
GENERATORS: tuple[Generator, ...] = ("davam-small", "davam-all", "lstm-small", "lstm-all", "real")
SEE_ALL: frozenset[str] = frozenset({"davam-all", "lstm-all"})
"""Generators that saw all text, whatever the size of the small corpus."""
JUDGED = "lstm-lm"
_CODES = "davam-128-places"
ROWS: Mapping[str, str] = {"davam-small": _CODES, "davam-all": _CODES, "lstm-small": JUDGED, "lstm-all": JUDGED}
"""Of generators that are trained."""


@dataclass(frozen=True)
class Study:
    """Sizes of the study at a scale."""

    sizes: Sequence[int] = (1000, 2000, 4000)
    """Sentences of the small corpora, the first ones of the training text."""
    times: Sequence[float] = (0.5, 1.0, 2.0, 4.0)
    """Generated sentences for each sentence."""
    vocabulary_size: int = 4000
    """Most frequent words of all training text."""
    test_size: int = 1000
    """Sentences each for validation and test."""
    updates: int = 8000
    """Of a language model at most; validation ends nearly all of them before."""
    validate_every: int = 50
    """Updates between validations of a language model."""
    decay_patience: int = 1
    """Validations of a language model without improvement that are forgiven before its rate is halved."""
    early_stop: int = 6
    """Validations in a row without improvement that end the training of a language model."""
    davam_updates: int = 3000
    """Of a generator with codes that sees the small corpus, all stages."""
    all_updates: int = 4000
    """Of a generator with codes that sees all text."""
    davam_validations: int = 8
    """Of every stage of a generator with codes."""
    warmup_updates: int = 50
    """Over which the learning rate rises, at the start of every stage."""
    all_size: int | None = None
    """How many sentences all text is, the first ones; None: the whole training text."""
    word_temperature: float = 1.0
    """Of generated words given the latents: 1 for samples of the generator, 0 for the most probable words."""
    network: Mapping[str, Any] = field(default_factory=dict)
    """Sizes that differ from the scale's."""

    def overrides(self, row: str, scale: str, *, sees_all: bool = False) -> dict[str, Any]:
        """How a row is trained, as overrides of its settings.

        Args:
            row: lstm-lm or a row with codes.
            scale: Of the recipe.
            sees_all: Whether it is trained on all text.
        """
        shared = {
            "trainer.select_by": "elbo_ppl",
            "trainer.warmup_updates": self.warmup_updates,
            "trainer.kl_gradient_every": 0,
            "trainer.tensorboard": "false",
            "fills_batches": "true",  # else more text would mean many more sentences in the same updates
            **{f"network.{name}": value for name, value in self.network.items()},
        }
        if row == JUDGED:
            return {
                **shared,
                "updates": self.updates,
                "trainer.lr_schedule": "plateau",
                "trainer.decay_patience": self.decay_patience,
                "trainer.validate_every": self.validate_every,
                "trainer.early_stop": self.early_stop,
            }
        updates = self.all_updates if sees_all else self.davam_updates
        return {**shared, "updates": updates, "stages": json.dumps(self._coded(row, scale))}

    def _coded(self, row: str, scale: str) -> list[dict[str, Any]]:
        """The stages of a row with codes, each of which hands over its best weights.

        They are chosen by `elbo_ppl`. In the warm-up that is the perplexity of the reconstruction, since there are no
        codes; in the stage of the codes nearly the same: its prior is not trained yet, and takes log K nats a position
        whatever the codes are (65.15 to 65.17 nats a sentence in four validations, 2 nats of reconstruction apart).
        """
        own = {"hand_over": "best", "num_validations": self.davam_validations}
        return [{**stage, **own} for stage in stages_of(row, scale)]


STUDIES: dict[str, Study] = {
    "captions": Study(all_size=27_262),  # Multi30k's, as the small corpora and the test captions are
    "generated": Study(
        sizes=(60,),
        times=(0.5, 1.0),
        vocabulary_size=500,
        test_size=40,
        updates=60,
        validate_every=5,
        early_stop=3,
        davam_updates=20,
        all_updates=20,
        davam_validations=2,
        warmup_updates=2,
        network={"embedding_dim": 12, "hidden_dim": 16, "latent_dim": 4, "attention_dim": 8, "prior_channels": 8},
    ),
}
