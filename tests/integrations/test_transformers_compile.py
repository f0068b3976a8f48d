"""Converted models in one compiled graph: the same draws, KL and gradients."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from probattn import Linear, Weibull, make_stochastic, set_sampling
from tests.integrations.transformers_zoo import build, inputs_of, loss_of, without_dropout

from probattn.integrations.transformers import set_kl_step  # isort: skip

FAMILY = Weibull(2.0, anchor="softmax")


@pytest.fixture(autouse=True)
def no_graph_stays() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def gradients(model: Any, batch: dict[str, Tensor]) -> tuple[Any, dict[str, Tensor]]:
    model.zero_grad()
    torch.manual_seed(5)
    outputs = model(**batch)
    loss_of(outputs).backward()
    found = {
        key.removeprefix("_orig_mod."): p.grad.clone() for key, p in model.named_parameters() if p.grad is not None
    }
    return outputs, found


def check(name: str, backend: str, *, rtol: float, atol: float) -> None:
    model = make_stochastic(build(name, scale=1.5), FAMILY, kl_weight=Linear(0.5, 1.0, steps=2))
    without_dropout(model)
    batch = inputs_of(name)
    set_sampling(model, True, seed=1)
    expected, plain = gradients(model, batch)
    compiled: Any = torch.compile(model, fullgraph=True, backend=backend)
    outputs, traced = gradients(compiled, batch)
    torch.testing.assert_close(outputs.logits, expected.logits, rtol=rtol, atol=atol)
    torch.testing.assert_close(outputs.kl, expected.kl, rtol=rtol, atol=atol)
    torch.testing.assert_close(outputs.loss, expected.loss, rtol=rtol, atol=atol)
    assert plain.keys() == traced.keys() and any(".stochastic." in key for key in plain)
    for key, gradient in plain.items():
        torch.testing.assert_close(
            traced[key], gradient, rtol=rtol, atol=atol * float(1.0 + gradient.abs().max()), msg=key
        )
    set_kl_step(compiled, 2)
    with torch._dynamo.config.patch(error_on_recompile=True):  # another weight is no other program
        torch.testing.assert_close(compiled(**batch).kl_cost, 2.0 * outputs.kl_cost)


@pytest.mark.parametrize("name", ["bert", "albert", "llama", "t5"])
def test_compiled_in_one_graph(name: str) -> None:
    """A backend that compiles nothing shows whether dynamo gets through."""
    check(name, "eager", rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch._prims_common.check` is deprecated:FutureWarning")  # of inductor itself
def test_compiled_by_inductor() -> None:
    check("bert", "inductor", rtol=1e-3, atol=1e-4)
