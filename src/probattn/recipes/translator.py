"""A trained translation model: translate, align, score; a folder on disk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from probattn.core import Estimator
from probattn.data.batches import EncodedText
from probattn.data.bpe import UNK
from probattn.data.parallel import ParallelText, split_words
from probattn.data.subwords import Subwords
from probattn.data.text import require_sentences
from probattn.models.seq2seq import Seq2Seq
from probattn.recipes.storage import without_paths
from probattn.recipes.translation_alignment import (
    Aligner,
    Links,
    aligner_by_name,
    alignment_weights,
    available_aligners,
    word_links,
)
from probattn.recipes.translation_data import Corpus, lowercased
from probattn.recipes.translation_eval import evaluate_model, predictive_log_lik
from probattn.recipes.translation_run import batches_of, run
from probattn.recipes.translation_search import DecodingSettings, SamplingSettings, Translation, draw, search
from probattn.recipes.translation_settings import TranslationSettings, build_model
from probattn.training import load_weights, save_model_folder
from probattn.training.randomness import EVALUATION, seeded


@dataclass(frozen=True)
class Alignment:
    """Links of one sentence pair.

    Attributes:
        weights: (T, S) between subwords, end of sentence included.
        links: (source word, target word).
    """

    weights: Tensor
    links: Links


class Translator:
    """A model with its subwords and settings; `probattn.load(folder)` gives one.

    Text is split at spaces: hand it over tokenised as the training text was.

    Args:
        model: The network; it is put into evaluation mode.
        subwords: Its tokenizer and output types.
        settings: Of the row it was trained with.
    """

    def __init__(self, model: Seq2Seq, subwords: Subwords, *, settings: TranslationSettings):
        self.model = model.eval()
        self.subwords = subwords
        self.settings = settings

    def translate(
        self,
        sentences: Sequence[str],
        *,
        num_best: int = 1,
        estimator: Estimator | None = None,
        decoding: DecodingSettings | None = None,
        show_progress: bool = False,
    ) -> list[list[Translation]]:
        """The best translations of each sentence, best first; none of an empty sentence.

        Where the estimator draws (relaxed rows), scores are estimates that depend on which sentences are translated
        together; the same call gives the same ones.

        Args:
            sentences: Source text.
            num_best: Translations of a sentence, at most the beam size.
            estimator: How the next word is predicted: exact mixing `Enumerate()`, K-max `Enumerate(5)`, soft attention
                `Mean()`, ...; what the row was meant to be tested with by default.
            decoding: Search settings; those of training by default.
            show_progress: Whether to show a progress bar.
        """
        with seeded(EVALUATION, 0):
            return search(
                self.model,
                self.subwords,
                self._ids(sentences),
                estimator=estimator or self.settings.test_estimator,
                settings=decoding or self.settings.decoding,
                num_best=num_best,
                show_progress=show_progress,
            )

    def sample(
        self,
        sentences: Sequence[str],
        settings: SamplingSettings,
        *,
        estimator: Estimator | None = None,
        first: int = 0,
    ) -> list[list[Translation]]:
        """Translations that are drawn from the model, word by word; none of an empty sentence.

        Args:
            sentences: Source text.
            settings: How many, and from which law.
            estimator: As for `translate`.
            first: Number of the first sentence, where these are part of a longer text.
        """
        with seeded(EVALUATION, settings.seed):  # of draws of the attention, where the estimator makes them
            return draw(
                self.model,
                self.subwords,
                self._ids(sentences),
                estimator=estimator or self.settings.test_estimator,
                settings=settings,
                first=first,
            )

    def align(
        self,
        source: Sequence[str],
        target: Sequence[str],
        *,
        aligner: Aligner | str | None = None,
        threshold: float | None = None,
        show_progress: bool = False,
    ) -> list[Alignment]:
        """Word alignments of sentence pairs.

        Args:
            source: One sentence a pair.
            target: Their translations.
            aligner: "prior", "posterior" (the inference network's) or "exact"; by default the posterior, else exact,
                else the prior, whichever the model has first.
            threshold: None: each target subword links to its largest weight. Else all links between words whose weight,
                summed over the subwords of the source word, is at least this.
            show_progress: Whether to show a progress bar.

        Raises:
            ValueError: If the threshold is no weight, or the model has no such aligner.
        """
        if threshold is not None and not 0.0 < threshold <= 1.0:
            raise ValueError(f"threshold is a weight, above 0 and at most 1, got {threshold:g}")
        chosen = available_aligners(self.model)[0] if aligner is None else aligner_by_name(aligner)
        text = self._encoded(source, target)
        found: dict[int, Alignment] = {}
        with tqdm(total=len(text), desc="aligning", disable=not show_progress) as progress:
            for batch in batches_of(text, self.subwords):
                weights = alignment_weights(self.model, batch, chosen).cpu()
                for row, matrix in zip(batch.index.tolist(), weights, strict=True):
                    inside = matrix[: len(text.target[row]) + 1, : len(text.source[row])]
                    links = word_links(inside, self.subwords, text.source[row], text.target[row], threshold=threshold)
                    found[row] = Alignment(inside, links)
                progress.update(len(batch.index))
        return [found[row] for row in range(len(text))]

    def evaluate(self, corpus: Corpus, *, split: str = "test") -> Mapping[str, float | str]:
        """All metrics on a split of a corpus, as after training."""
        return evaluate_model(
            self.model,
            corpus,
            estimator=self.settings.test_estimator,
            decoding=self.settings.decoding,
            train_estimator=self.settings.stages[-1].estimators[self.model.weights.name],
            split=split,
        )

    @torch.no_grad()
    def score(self, source: Sequence[str], target: Sequence[str], *, estimator: Estimator | None = None) -> list[float]:
        """Log-probability of each target sentence given its source, in nats, end of sentence included.

        An estimate where the estimator draws; see `translate`.
        """
        text = self._encoded(source, target)
        chosen = estimator or self.settings.test_estimator
        scores = [0.0] * len(text)
        with seeded(EVALUATION, 0):
            for batch in batches_of(text, self.subwords):
                values = predictive_log_lik(run(self.model, batch, chosen, bound=None, use_posterior=False))
                for row, value in zip(batch.index.tolist(), values.tolist(), strict=True):
                    scores[row] = value
        return scores

    def encode(self, text: ParallelText) -> EncodedText:
        """A parallel text in the model's subwords."""
        cased = lowercased(text) if self.settings.corpus.lowercase else text
        return EncodedText.from_text(cased, self.subwords.tokenizer)

    def save(self, folder: Path, plain: Mapping[str, Any], *, text: str | None = None) -> Path:
        """Write config.json, model.safetensors, tokenizer.json and outputs.json; all or nothing.

        Args:
            folder: One of that name is replaced.
            plain: The settings as plain data.
            text: Digest of the text it was trained on.
        """
        config = {"recipe": "translation", "settings": without_paths(plain), "text": text}
        return save_model_folder(self.model, folder, config=config, files=self.subwords.files())

    def count_unknown(self, sentences: Sequence[str]) -> tuple[int, int]:
        """Words of sentences with a character that the model does not know, and all their words."""
        tokenizer, unknown, total = self.subwords.tokenizer, 0, 0
        for sentence in sentences:
            words = split_words(self._cased(sentence))
            encoded = tokenizer.encode_words(words)
            unknown += len({at for at, number in zip(encoded.word_index, encoded.ids, strict=True) if number == UNK})
            total += len(words)
        return unknown, total

    def _encoded(self, source: Sequence[str], target: Sequence[str]) -> EncodedText:
        if isinstance(source, str) or isinstance(target, str):
            raise TypeError("expected lists of sentences, got a string; put it into a list")
        return self.encode(ParallelText(tuple(source), tuple(target), name="these pairs"))

    def _ids(self, sentences: Sequence[str]) -> list[tuple[int, ...]]:
        require_sentences(sentences)
        return [self.subwords.tokenizer.encode(self._cased(sentence)) for sentence in sentences]

    def _cased(self, sentence: str) -> str:
        return sentence.lower() if self.settings.corpus.lowercase else sentence


def load_translator(settings: TranslationSettings, folder: Path) -> Translator:
    """Open the folder that `Translator.save` wrote."""
    subwords = Subwords.from_folder(folder)
    model = build_model(settings, subwords)
    load_weights(model, folder)
    return Translator(model, subwords, settings=settings)
