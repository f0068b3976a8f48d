"""Converted models of `transformers` on the C++ kernel, against the same models on plain torch: one seed, one draw."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from probattn import Lognormal, Weibull, make_stochastic, set_sampling
from probattn.kernels import native
from probattn.nn import functional
from tests.integrations.transformers_zoo import (
    LAYERS,
    PADDED,
    REAL_TARGETS,
    SEQ2SEQ,
    TEXT,
    ZOO,
    build,
    inputs_of,
    loss_of,
    result_of,
    without_dropout,
)

pytestmark = pytest.mark.filterwarnings("ignore:Version v4.12.0 introduces:FutureWarning")
TAKEN = {name: row.calls for name, row in ZOO.items()} | {"t5": LAYERS}
"""Calls in a training pass that the kernel takes. T5's self-attention has a bias that is learnt, which it does not."""
FAMILIES = {"weibull": Weibull(2.0, anchor="softmax"), "lognormal": Lognormal(0.5, anchor="softmax")}


@pytest.fixture
def fused(native_kernels: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Of every call of attention, whether the kernel took it; it is active unless a test switches it off."""
    calls: list[bool] = []
    original = functional.fused_attention

    def noted(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        calls.append(made is not None)
        return made

    monkeypatch.setattr(functional, "fused_attention", noted)
    yield calls


def converted(name: str, family: str = "weibull") -> Any:
    model = make_stochastic(build(name, scale=1.5), FAMILIES[family], kl_weight=0.1)
    without_dropout(model)
    set_sampling(model, True, seed=4)
    return model


def passed(model: Any, batch: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Outputs of one training pass and gradients of all parameters; of one that nothing reaches, zeros."""
    model.zero_grad()
    outputs = model(**batch)
    result = outputs["logits"] if "logits" in outputs else outputs["last_hidden_state"]
    (loss_of(outputs) + 0.01 * result.square().mean()).backward()
    made = {"result": result.detach(), "kl": outputs.kl.detach(), "loss": loss_of(outputs).detach()}
    gradients = {key: torch.zeros_like(p) if p.grad is None else p.grad.clone() for key, p in model.named_parameters()}
    return made, gradients


def compare(found: Any, expected: Any) -> None:
    for key, value in expected[0].items():
        torch.testing.assert_close(
            found[0][key], value, rtol=1e-4, atol=1e-4, msg=lambda text, key=key: f"{key}: {text}"
        )
    assert any(bool(gradient.any()) for key, gradient in expected[1].items() if ".stochastic." in key)
    for key, gradient in expected[1].items():
        size = float(gradient.abs().max())
        error = float((found[1][key] - gradient).abs().max())
        assert error <= 1e-3 * size + 1e-5, (key, error, size)


@pytest.mark.parametrize("name", ZOO)
def test_output_kl_and_gradients(name: str, fused: list[bool]) -> None:
    """On a batch whose second example is padded, where a model takes text."""
    model, batch = converted(name), inputs_of(name)
    found = passed(model, batch)
    assert len(fused) == ZOO[name].calls and sum(fused) == TAKEN[name]
    with native.switched(False):
        expected = passed(model, batch)
    assert sum(fused) == TAKEN[name]
    compare(found, expected)
    assert bool((expected[0]["kl"] > 0.0).all())


@pytest.mark.parametrize("name", ZOO)
def test_evaluation(name: str, fused: list[bool]) -> None:
    """Without gradients and KL the kernel takes every call, those with a bias too."""
    model, batch = converted(name).eval(), inputs_of(name, labels=False)
    with torch.no_grad():
        found = result_of(model, batch)
        assert fused == [True] * ZOO[name].calls
        with native.switched(False):
            torch.testing.assert_close(found, result_of(model, batch), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["bert", "albert", "bart"])
def test_lognormal_weights(name: str, fused: list[bool]) -> None:
    model, batch = converted(name, "lognormal"), inputs_of(name)
    found = passed(model, batch)
    assert any(fused)
    with native.switched(False):
        compare(found, passed(model, batch))


@pytest.mark.parametrize("name", TEXT)
def test_padding_changes_nothing(name: str, fused: list[bool]) -> None:
    """What stands in hidden positions enters neither loss nor KL."""
    model, batch = converted(name), inputs_of(name)
    other = {**batch, "input_ids": batch["input_ids"].clone()}
    other["input_ids"][1, PADDED:] = 7
    if name in SEQ2SEQ:
        mask = torch.ones_like(batch["labels"])
        mask[1, REAL_TARGETS:] = 0
        batch, other = {**batch, "decoder_attention_mask": mask}, {**other, "decoder_attention_mask": mask}
    found, expected = passed(model, batch), passed(model, other)
    assert sum(fused) == 2 * TAKEN[name]
    torch.testing.assert_close(found[0]["kl"], expected[0]["kl"])
    torch.testing.assert_close(found[0]["loss"], expected[0]["loss"])


@pytest.mark.parametrize("name", [name for name, row in ZOO.items() if row.checkpoints])
def test_checkpointing(name: str, fused: list[bool]) -> None:
    """The repeated pass is the kernel's, too, with the draws of the first one."""
    model, batch = converted(name), inputs_of(name)
    set_sampling(model, True)  # without a fixed seed: it has to be kept
    torch.manual_seed(3)
    expected = passed(model, batch)
    model.gradient_checkpointing_enable()
    fused.clear()
    torch.manual_seed(3)
    found = passed(model, batch)
    # T5 then asks for a gradient of the zeros that stand for the bias of its cross-attention.
    assert sum(fused) == (0 if name == "t5" else 2 * TAKEN[name])
    compare(found, expected)
    with native.switched(False):
        torch.manual_seed(3)
        compare(found, passed(model, batch))
