"""The KL that a converted model reports, against the formula of the paper on the weights of eager attention.

With the softmax anchor E[S] is what eager attention computes, so `output_attentions` of a pass without noise has all
that the posterior depends on. The prior is made again from its parameters and the keys that it was given.

Size letters: B batch, H heads, T queries, S keys.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from probattn import Weibull, make_stochastic, record_latents, sampling
from tests.integrations.transformers_zoo import (
    CAUSAL,
    HEADS,
    LENGTH,
    PADDED,
    REAL_TARGETS,
    SEQ2SEQ,
    TARGET_LENGTH,
    ZOO,
    build,
    inputs_of,
    sites,
    without_dropout,
)

pytestmark = pytest.mark.filterwarnings("ignore:Version v4.12.0 introduces:FutureWarning")
RATE = 1e-2  # of the default prior
EULER = 0.5772156649015329


def batch_of(name: str) -> dict[str, Tensor]:
    """Two examples; of the second, source and target are padded."""
    batch = inputs_of(name, labels=False)
    if name in SEQ2SEQ:
        mask = torch.ones_like(batch["decoder_input_ids"])
        mask[1, REAL_TARGETS:] = 0
        batch["decoder_attention_mask"] = mask
    return batch


def pairs(name: str, site: Any, num_keys: int) -> Tensor:
    """(B, 1, T, S) True for pairs that count: of a query that is no padding and a key that it may see."""
    source, target = torch.tensor([LENGTH, PADDED]), torch.tensor([TARGET_LENGTH, REAL_TARGETS])
    if ZOO[name].inputs == "image":
        return torch.ones(2, 1, num_keys, num_keys, dtype=torch.bool)
    queries = (
        torch.arange(TARGET_LENGTH) < target[:, None] if site.is_decoder else torch.arange(LENGTH) < source[:, None]
    )
    is_own = site.place.kind == "self"
    keys = queries if is_own else torch.arange(LENGTH) < source[:, None]
    found = queries[:, :, None] & keys[:, None, :]
    is_causal = is_own and (name in CAUSAL or site.is_decoder)
    return (found.tril() if is_causal else found).unsqueeze(1)


def kl_by_hand(means: Tensor, log_psi: Tensor, k: float) -> Tensor:
    """KL(Weibull || Gamma) of every weight (BAM, Sec. 3.2): shape k and mean E[S], against shape Psi and rate beta."""
    psi = log_psi.exp()
    log_lambda = means.log() - math.lgamma(1.0 + 1.0 / k)
    return (
        (EULER * psi / k - psi * log_lambda + math.log(k))
        + (RATE * means - EULER - 1.0)
        + (torch.lgamma(psi) - psi * math.log(RATE))
    )


def log_psi_by_hand(site: Any, keys: Tensor, seen: Tensor) -> Tensor:
    """(B, H, T, S) of the two layers and the softmax of Sec. 3.3; over what a query sees in causal attention."""
    prior = site.prior.double()
    hidden = (keys.double() @ prior.hidden_weight[0] + prior.hidden_bias[0]).clamp(min=0.0)
    logits = (hidden @ prior.out_weight[0]).unsqueeze(-2)  # (B, H, 1, S)
    allowed = seen if site.place.is_causal else seen.any(dim=-2, keepdim=True)
    return logits.masked_fill(~allowed, -torch.inf).log_softmax(dim=-1)


def means_of(outputs: Any, site: Any) -> tuple[Tensor, ...]:
    """Weights of the layers that the site serves."""
    if "attentions" in outputs:
        return tuple(outputs.attentions)
    kind = "cross" if site.place.kind == "cross" else "decoder" if site.is_decoder else "encoder"
    return tuple(outputs[f"{kind}_attentions"])


@torch.no_grad()
def expected(name: str, model: Any, site: Any, keys: list[Tensor], k: float) -> list[Tensor]:
    """(B) KL of each call of the site, in float64."""
    with sampling(model, False):
        weights = means_of(model(**batch_of(name), output_attentions=True), site)
    layers = range(len(weights)) if name == "albert" else [site.place.number]
    found = []
    for layer, given in zip(layers, keys, strict=True):
        means = weights[layer].double()
        seen = pairs(name, site, means.shape[-1])
        given = given.repeat_interleave(means.shape[1] // given.shape[1], dim=1)  # grouped heads
        entries = kl_by_hand(means, log_psi_by_hand(site, given, seen), k)
        found.append(torch.where(seen, entries, 0.0).sum(dim=(1, 2, 3)))
    site.prior.float()
    return found


def with_keys(site: Any) -> list[Tensor]:
    """The keys that its prior is given, call by call."""
    found: list[Tensor] = []
    logits = site.prior.logits

    def noted(keys: Tensor, **kwargs: Any) -> Tensor:
        found.append(keys.detach())
        made: Tensor = logits(keys, **kwargs)
        return made

    site.prior.logits = noted
    return found


@pytest.mark.parametrize("name", ZOO)
def test_each_site(name: str) -> None:
    """One site draws at a time, so what comes before it is what eager attention gives; with as much noise as you like.

    ALBERT's site is called several times, and only the first call has no noise before it.
    """
    k = 2.0
    model = make_stochastic(build(name, scale=1.5), Weibull(k, anchor="softmax"))
    without_dropout(model)
    for site in sites(model):
        keys = with_keys(site)
        with sampling(model, False), record_latents(model) as record:
            site.is_sampling = True
            reported = model(**batch_of(name)).kl
        del site.prior.logits
        assert len(keys) == len(record.latents) == (ZOO[name].calls if name == "albert" else 1)
        if name == "albert":
            reported = record.latents[0].kl.sum(dim=(1, 2))
        torch.testing.assert_close(reported.double(), expected(name, model, site, keys, k)[0], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", ZOO)
def test_the_whole_model(name: str) -> None:
    """All sites draw, with so little noise that the weights of every layer are those of eager attention."""
    k = 1e5
    model = make_stochastic(build(name, scale=1.5), Weibull(k, anchor="softmax"))
    without_dropout(model)
    keys = [(site, with_keys(site)) for site in sites(model)]
    outputs = model(**batch_of(name))
    for site, _ in keys:
        del site.prior.logits
    by_hand = sum(sum(expected(name, model, site, given, k)) for site, given in keys)
    num_weights = sum(
        len(given) * HEADS * pairs(name, site, given[0].shape[-2]).sum(dim=(1, 2, 3)) for site, given in keys
    )
    torch.testing.assert_close(outputs.kl.double(), by_hand, rtol=1e-4, atol=1e-2)
    torch.testing.assert_close(outputs.kl_cost.double(), (by_hand / num_weights).mean(), rtol=1e-4, atol=1e-4)
