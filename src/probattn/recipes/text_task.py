"""A text model as the training engine sees it: steps, stages, the codebook's updates, validation."""

import json
import warnings
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor, nn

from probattn.core import Bound, Constant, Elbo, Estimator, Evaluation, Mean, Pathwise, WithoutPrior, fold_seed
from probattn.data.buckets import TokenBuckets
from probattn.data.text import TextBatch
from probattn.kernels import half_products
from probattn.metrics import davam_ppl, elbo_ppl
from probattn.models import ReadText
from probattn.nn import Codebook, SoftCodebook, Unquantised
from probattn.recipes.text_data import TextCorpus
from probattn.recipes.text_eval import code_posteriors, codes_used, information_metrics, tally
from probattn.recipes.text_network import TextModel, build_model
from probattn.recipes.text_settings import SITE, TextSettings
from probattn.training import CollapseWarning, Stage, StepOutput, warn_of_collapse
from probattn.training.randomness import NOISE, seeded
from probattn.training.stage import matches

START_VECTORS = 20
"""Vectors for each code that k-means starts from."""
SETTLE_VECTORS = 2000
"""Vectors that constant centres and widths are measured on, whatever the number of codes."""
WATCHED = 1000
"""Validation sentences that active units and mutual information are measured on."""


class TextTask:
    """What the training engine sees of a row."""

    def __init__(self, settings: TextSettings, corpus: TextCorpus, *, plain: Mapping[str, Any] | None = None):
        self.settings = settings
        self.corpus = corpus
        self.plain = {} if plain is None else plain
        self.warned: set[str] = set()
        self._prepared: str | None = None
        self._model = build_model(settings, corpus.tokenizer.vocabulary_size)

    def identity(self) -> Mapping[str, Any]:
        """The text, and the settings that training depends on."""
        names = ["network", "latent", "stages", "batch_size"]
        names += ["readout_precision"] if self.settings.readout_precision != "no" else []  # it came later
        sections = {name: self.plain[name] for name in names if name in self.plain}
        return {
            "text": self.corpus.digest,
            "order": self.settings.corpus.seed,
            **{name: json.dumps(value, default=str) for name, value in sections.items()},
        }

    @property
    def model(self) -> TextModel:
        """The network."""
        return self._model

    @property
    def codebook(self) -> Codebook | None:
        """The posterior, where it takes the nearest code."""
        return self.any_codebook if isinstance(self.any_codebook, Codebook) else None

    @property
    def any_codebook(self) -> Codebook | SoftCodebook | None:
        """The posterior, where it has codes."""
        posterior = None if self.model.latent is None else self.model.latent.site.posterior
        return posterior if isinstance(posterior, Codebook | SoftCodebook) else None

    @cached_property
    def buckets(self) -> TokenBuckets:
        """Batches of sentences with equal lengths."""
        lengths = self.corpus.encoded["train"].words_lengths
        return TokenBuckets(
            lengths,
            lengths,
            max_tokens=self.settings.batch_size * max(lengths),
            max_sentences=self.settings.batch_size,
            min_sentences=max(1, self.settings.batch_size // 2) if self.settings.fills_batches else 1,
            seed=self.settings.corpus.seed,
        )

    def batches(self, epoch: int) -> Sequence[Tensor]:
        """Row numbers of every batch of an epoch."""
        return self.buckets.epoch(epoch)

    def step(self, batch: Tensor, stage: Stage, update: int) -> StepOutput:
        """Loss in nats per sentence, KL and commitment summed over positions."""
        if update == 0 and stage.name != self._prepared:
            self._prepare(stage)
        text = self.corpus.encoded["train"].batch(batch).to(self.model.device)
        is_decoded = self._trains_likelihood()
        is_free = self._is_free(stage)
        estimators: Mapping[str, Estimator] = stage.estimators
        if is_free:
            estimators = {SITE: WithoutPrior(stage.estimators[SITE])}
        read = self.model.encode(text.words, text.words_mask, estimators)
        bound: Bound = Elbo() if stage.bound is None else stage.bound
        with half_products(self.settings.readout_precision == "bf16"):
            evaluation = decoded(self.model, read, text) if is_decoded else undecoded(read, text)
        terms = bound(evaluation, stage.weights_at(update))
        sentences, tokens = len(batch), int(text.target_mask.sum())
        logs: dict[str, tuple[Tensor | float, float]] = {
            "tokens": (float(tokens), 1.0),
            **{f"kl_{name}": (float(value.sum()), sentences) for name, value in terms.kl.items() if not is_free},
        }
        if is_decoded:
            total = float(terms.log_lik.sum())
            logs |= {"log_lik": (total, tokens), "reconstruction": (-total, sentences)}
        loss, cost = terms.loss.sum() / sentences, terms.cost.sum() / sentences
        parts = {"likelihood": loss - cost, "kl": cost} if is_decoded and float(cost.detach()) != 0.0 else {}
        return StepOutput(
            loss=loss,
            weight=float(sentences),
            logs=logs,
            parts=parts,
            carry=(read, stage.name, update),
            unit_length=tokens / sentences,
        )

    def after_update(self, batch: Tensor, output: StepOutput) -> None:
        """Move the codebook, in stages that train the encoder it follows."""
        book = self.any_codebook
        if book is None:
            return
        read, stage, update = cast(tuple[ReadText, str, int], output.carry)
        if read.encoding is None:
            raise ValueError("a codebook without an encoder cannot be updated")
        settings = next(one for one in self.settings.stages if one.name == stage)
        if not settings.is_quantised or not matches("encoder.weight_ih_l0", settings.trainable):
            return
        vectors = read.encoding[read.mask].detach()
        if isinstance(book, SoftCodebook):
            book.update_(vectors)
            return
        index = torch.cdist(vectors, book.codes).argmin(dim=-1)
        seed = torch.tensor(self.settings.seed, device=vectors.device)
        book.update_(vectors, index, seed=fold_seed(seed, update))

    def validate(self) -> Mapping[str, float]:
        """Reconstruction, KL and perplexities on the validation split; what the latent carries."""
        text, book = self.corpus.encoded["valid"], self.any_codebook
        is_warming_up = book is not None and not bool(book.is_started)
        found = tally(self.model, text, WithoutPrior(Unquantised()) if is_warming_up else Pathwise())
        metrics = {
            "reconstruction": -found.log_lik / found.sentences,
            "elbo_ppl": elbo_ppl(found.log_lik - found.kl, found.tokens),
        }
        if self.settings.latent is None or is_warming_up:  # codes that are not there yet cost nothing, and say nothing
            return metrics
        metrics |= {
            "kl": found.kl / found.sentences,
            "davam_ppl": davam_ppl(found.log_lik, found.kl_over_positions, found.tokens),
        }
        if isinstance(book, Codebook):
            used = float(codes_used(self.model, text, book))
            return {**metrics, "code_perplexity": book.perplexity, "codes_used": used}
        active: dict[str, int | None] = {}
        if self.settings.latent.scope == "sentence" and self.settings.latent.posterior == "gaussian":
            carried = information_metrics(*code_posteriors(self.model, text, limit=WATCHED))
            active[SITE] = int(carried["active_units"])
            metrics |= carried
        has_choice = book is None or len(book.codes) > 1  # one code has a KL of zero by design
        for message in warn_of_collapse({SITE: metrics["kl"]}, active) if has_choice else ():
            if SITE not in self.warned:
                self.warned.add(SITE)
                warnings.warn(message, CollapseWarning, stacklevel=2)
        return metrics

    def describe_batch(self, batch: Tensor) -> Mapping[str, Any]:
        """Row numbers and texts, for the report of a failure."""
        return {"rows": batch.tolist(), "text": [self.corpus.texts["train"][row] for row in batch.tolist()]}

    def _trains_likelihood(self) -> bool:
        """Whether the stage trains more than the prior, which the words do not depend on given the latent."""
        named = self.model.named_parameters()
        return any(one.requires_grad for name, one in named if not name.startswith("latent.site.prior."))

    def _is_free(self, stage: Stage) -> bool:
        """Whether the KL has no weight in a stage, and would cost a pass of the prior's network."""
        latent = self.settings.latent
        return latent is not None and latent.prior == "autoregressive" and stage.weights[SITE] == Constant(0.0)

    def _prepare(self, stage: Stage) -> None:
        """Before the first step of a stage: draw weights anew that it resets, settle or start the codebook.

        Once, whatever the number of batches of an update, and alike on all ranks.
        """
        self._prepared = stage.name
        number, settings = next(
            (number, one) for number, one in enumerate(self.settings.stages) if one.name == stage.name
        )
        with seeded(NOISE, self.settings.seed, number):
            for name, module in self.model.named_modules():
                if any(fnmatchcase(name, pattern) for pattern in settings.resets):
                    _reset(module)
        book = self.any_codebook
        if book is None or bool(book.is_started):
            return
        if settings.is_quantised:
            seed = torch.tensor(self.settings.seed, device=self.model.device)
            vectors, per_batch = self._first_vectors(START_VECTORS * len(book.codes))
            if isinstance(book, Codebook):
                book.start_(vectors, seed=seed, per_batch=per_batch, is_warm=number > 0)
            else:
                book.start_(vectors, seed=seed, is_warm=number > 0)
        elif isinstance(book, SoftCodebook) and not bool(book.is_settled):
            book.settle_(self._first_vectors(SETTLE_VECTORS)[0])

    @torch.no_grad()
    def _first_vectors(self, count: int) -> tuple[Tensor, float]:
        """(N, Z) encoded vectors of whole memories of the first batches, N about `count`, and how many a batch has."""
        found: list[Tensor] = []
        for rows in self.batches(0):
            text = self.corpus.encoded["train"].batch(rows).to(self.model.device)
            read = self.model.encode(text.words, text.words_mask, {SITE: WithoutPrior(Mean())})
            if read.encoding is None:
                raise ValueError("this network has no encoder")
            found.append(read.encoding[read.mask])
            if sum(len(one) for one in found) >= count:
                break
        vectors = torch.cat(found)
        places = 1 if self.settings.latent is None else self.settings.latent.positions or 1
        return vectors[: -(-count // places) * places], len(vectors) / len(found)


def decoded(model: TextModel, read: ReadText, text: TextBatch) -> Evaluation:
    """The model's evaluation of a batch given what it read."""
    return model.decode(read, target_in=text.target_in, target_out=text.target_out, target_mask=text.target_mask)


def undecoded(read: ReadText, text: TextBatch) -> Evaluation:
    """The same without the words, where their likelihood is a constant: what is left is the KL."""
    nothing = torch.zeros(1, *text.target_mask.shape, device=text.target_mask.device)
    return Evaluation(log_lik=nothing, latents=tuple(read.latents), mask=text.target_mask)


def _reset(module: nn.Module) -> None:
    reset = getattr(module, "reset_parameters", None)
    if callable(reset):
        reset()
