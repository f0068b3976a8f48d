"""The contestants of the output layer compute the same thing."""

import pytest
import torch
from torch import Tensor

from benchmarks.output_layer import OutputLayer, OutputLayerSizes


@pytest.fixture
def layer() -> OutputLayer:
    sizes = OutputLayerSizes(sentences=2, source_length=5, target_length=3, width=8, vocabulary=20)
    return OutputLayer(sizes, peaked_sigma=10.0, skip_below=1e-6)


def gradients(layer: OutputLayer, name: str, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Of all leaves that a contestant used."""
    found: list[Tensor] = []

    def backward(bound: Tensor) -> None:
        leaves = [layer.one, layer.two, layer.all, layer.query, layer.memory, layer.weight, layer.bias]
        found.extend(grad for grad in torch.autograd.grad(bound, leaves, allow_unused=True) if grad is not None)

    monkeypatch.setattr(layer, "_backward", backward)
    layer.contestants()[name]()
    return found


@pytest.mark.parametrize("name", ["enumeration", "enumeration, recomputing"])
def test_enumeration(layer: OutputLayer, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = gradients(layer, "enumeration, keeping all logits", monkeypatch)
    torch.testing.assert_close(gradients(layer, name, monkeypatch), expected)


def test_one_function(layer: OutputLayer, monkeypatch: pytest.MonkeyPatch) -> None:
    (query, memory, weight, bias) = gradients(layer, "one function", monkeypatch)
    hidden = torch.tanh(layer.query.unsqueeze(2) + layer.memory.unsqueeze(1))  # (B, T, K, D)
    layer.all = hidden.flatten(0, 1).transpose(0, 1).detach().requires_grad_()
    of_hidden, *expected = gradients(layer, "enumeration, keeping all logits", monkeypatch)
    torch.testing.assert_close([weight, bias], expected)
    of_inputs = torch.autograd.grad(
        hidden, [layer.query, layer.memory], of_hidden.transpose(0, 1).reshape(hidden.shape)
    )
    torch.testing.assert_close([query, memory], list(of_inputs))


def test_peaked_enumeration(layer: OutputLayer, monkeypatch: pytest.MonkeyPatch) -> None:
    found = gradients(layer, "enumeration, peaked, skipping", monkeypatch)
    layer.flat = layer.peaked
    expected = gradients(layer, "enumeration, keeping all logits", monkeypatch)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert 0.0 < layer.kept_share() < 0.9


def test_soft(layer: OutputLayer, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = gradients(layer, "soft", monkeypatch)
    torch.testing.assert_close(gradients(layer, "soft, in chunks", monkeypatch), expected)


def test_sample(layer: OutputLayer, monkeypatch: pytest.MonkeyPatch) -> None:
    sample, *weight_and_bias = gradients(layer, "one sample, soft baseline, skipping", monkeypatch)
    expected_sample, *expected = gradients(layer, "soft", monkeypatch)
    torch.testing.assert_close(sample[:1], expected_sample)
    assert not sample[1].any()
    torch.testing.assert_close(weight_and_bias, expected)


def test_gradients_are_released(layer: OutputLayer) -> None:
    layer.soft()
    assert layer.weight.grad is None
