"""Generation with a cache from prompts of different lengths, padded on the left as language models want it."""

from typing import Any

import pytest
import torch
from torch import Tensor

from probattn import Weibull, make_stochastic, record_latents, sampling
from tests.integrations.transformers_zoo import CAUSAL, LENGTH, PADDED, build, inputs_of

NEW = 4


def prompts(name: str) -> tuple[dict[str, Tensor], list[dict[str, Tensor]]]:
    """A batch of two, the second padded on the left, and each prompt by itself."""
    ids = inputs_of(name)["input_ids"]
    ids[1, : LENGTH - PADDED] = 1
    mask = torch.ones_like(ids)
    mask[1, : LENGTH - PADDED] = 0
    alone = [
        {"input_ids": ids[i : i + 1, -n:], "attention_mask": mask[i : i + 1, -n:]}
        for i, n in ((0, LENGTH), (1, PADDED))
    ]
    return {"input_ids": ids, "attention_mask": mask}, alone


def generated(model: Any, inputs: dict[str, Tensor], cache: str | None) -> tuple[Tensor, Tensor]:
    """(B, NEW) words and (B, NEW, V) logits."""
    made = model.generate(
        **inputs,
        **{"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "cache_implementation": cache},
        **{"return_dict_in_generate": True, "output_logits": True},
    )
    return made.sequences[:, -NEW:], torch.stack(made.logits, dim=1)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", CAUSAL)
class TestLeftPadding:
    def test_each_row_is_its_own_run(self, name: str, cache: str) -> None:
        model = make_stochastic(build(name), Weibull(2.0, anchor="softmax"))
        batch, alone = prompts(name)
        with torch.no_grad(), sampling(model, False):
            words, logits = generated(model, batch, cache)
            for row, prompt in enumerate(alone):
                expected, expected_logits = generated(model, prompt, cache)
                assert torch.equal(words[row : row + 1], expected)
                torch.testing.assert_close(logits[row : row + 1], expected_logits, atol=1e-5, rtol=1e-5)
        assert not torch.equal(words[0], words[1])

    def test_kl_of_each_row_is_that_of_its_own_run(self, name: str, cache: str) -> None:
        """With next to no noise, since another batch has other noise. One receipt for a layer and a step."""
        model = make_stochastic(build(name), Weibull(1e5, anchor="softmax"))
        batch, alone = prompts(name)
        with torch.no_grad(), record_latents(model) as record:
            generated(model, batch, cache)
        kls = [latent.kl.sum(dim=(1, 2)) for latent in record.latents]
        assert len(kls) == 2 * NEW
        for row, prompt in enumerate(alone):
            with torch.no_grad(), record_latents(model) as single:
                generated(model, prompt, cache)
            expected = [latent.kl.sum() for latent in single.latents]
            for number, (kl, other) in enumerate(zip(kls, expected, strict=True)):
                torch.testing.assert_close(
                    kl[row], other, rtol=1e-3, atol=1e-2, msg=f"row {row}, call {number}: {kl[row]}, {other}"
                )
