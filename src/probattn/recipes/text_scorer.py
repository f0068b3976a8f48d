"""Language models that judge generated text: a trained row `lstm-lm`, or SmolLM2."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

from probattn.data.bpe import EOS, UNK
from probattn.data.text import EncodedSentences
from probattn.loading import load
from probattn.metrics.fluency import Scorer, TextScore, smollm2
from probattn.recipes.text_eval import batches_of
from probattn.recipes.text_writer import TextWriter

__all__ = ["LanguageModelScorer", "open_scorer"]

_MOST_UNKNOWN = 0.3
"""Share of unknown words above which a scorer is warned of."""


class LanguageModelScorer:
    """A trained row `lstm-lm` as a scorer of words, each given that the text goes on with a word it knows.

    Texts of a given length are cut off, and may not end before. So their ends are not scored, and no word pays for
    standing where another text would have ended. Nor does it pay for the unknown word, which generators never write;
    rare words of real text are read and not scored.

    Args:
        writer: The model.
        folder: Where it came from.

    Raises:
        ValueError: If the model has a latent.
    """

    def __init__(self, writer: TextWriter, folder: Path):
        if writer.settings.latent is not None:
            raise ValueError(
                f"a scorer gives exact probabilities, but row '{writer.settings.row}' in {folder} has a latent; name a "
                "model of text_vae/lstm-lm"
            )
        self.writer = writer
        self.folder = folder

    @property
    def name(self) -> str:
        """Row, corpus and seed."""
        settings = self.writer.settings
        return f"{settings.row}-{settings.corpus.name}-seed{settings.seed}"

    @torch.no_grad()
    def score(self, texts: Sequence[str]) -> list[TextScore]:
        """One score for each text, without the words that the model does not know; many of them are warned of."""
        unknown, total = self.writer.count_unknown(texts)
        if unknown > _MOST_UNKNOWN * total:
            warnings.warn(
                f"{unknown} of {total} words of the texts are unknown to the scorer {self.folder}, so its perplexities "
                "say little of them; take a language model of the same text and case as that of the generator",
                stacklevel=2,
            )
        lines = [text.lower() if self.writer.settings.corpus.lowercase else text for text in texts]
        encoded = EncodedSentences.from_lines(lines, self.writer.tokenizer, name="generated texts")
        model, found = self.writer.model, {}
        for batch in batches_of(encoded):
            moved = batch.to(model.device)
            read = model.encode(moved.words, moved.words_mask, {})
            given = {"target_in": moved.target_in, "target_mask": moved.target_mask}
            words = model.decode(read, target_out=moved.target_out, **given).log_lik[0]
            others = [
                model.decode(read, target_out=torch.full_like(moved.target_out, number), **given).log_lik[0]
                for number in (EOS, UNK)
            ]
            is_word = moved.target_mask & (moved.target_out != EOS) & (moved.target_out != UNK)
            left_out = torch.where(is_word, torch.stack(others).double().logsumexp(dim=0), -torch.inf)
            going_on = left_out.expm1().neg().log()  # log(1 - P(end) - P(unknown))
            log_probs, tokens = torch.where(is_word, words - going_on, 0.0).sum(dim=-1), is_word.sum(dim=-1)
            for row, log_prob, count in zip(batch.index.tolist(), log_probs.tolist(), tokens.tolist(), strict=True):
                found[row] = TextScore(log_prob, count)
        return [found[row] for row in range(len(texts))]


def open_scorer(name: str) -> Scorer:
    """The scorer `smollm2`, or the language model in a folder."""
    if name == "smollm2" and not Path(name).is_dir():
        return smollm2()
    writer = load(name)
    if not isinstance(writer, TextWriter):
        raise ValueError(f"{name} holds no text model, but a {type(writer).__name__}; name a model of text_vae/lstm-lm")
    return LanguageModelScorer(writer, Path(name))
