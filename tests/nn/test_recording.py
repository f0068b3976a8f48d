"""Receipts from modules that cannot return them."""

import threading

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from probattn import (
    Draw,
    GammaPrior,
    KeyPrior,
    Latent,
    MultiheadAttention,
    Weibull,
    make_stochastic,
    record_latents,
    sampling,
)
from probattn.nn.recording import note_latent

B, T, E, H = 3, 4, 8, 2


def attention(name: str = "attention") -> MultiheadAttention:
    return MultiheadAttention(
        E, H, batch_first=True, family=Weibull(2.0), prior=KeyPrior(E // H, GammaPrior()), name=name
    )


class Two(nn.Module):
    """Two layers; the second runs twice, as a shared module does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.shared = attention("one"), attention("two")

    def forward(self, x: Tensor) -> Tensor:
        for module in (self.first, self.shared, self.shared):
            x = x + module(x, x, x, need_weights=False)[0]
        return x


def test_one_receipt_per_call_in_order() -> None:
    model = Two()
    with record_latents(model) as record:
        model(torch.randn(B, T, E))
    assert record.names == ["first", "shared", "shared"]
    assert [latent.name for latent in record.latents] == ["one", "two", "two"]
    assert not torch.equal(record.latents[1].kl, record.latents[2].kl)


def test_kl_is_summed_per_example() -> None:
    model, x = Two(), torch.randn(B, T, E)
    with record_latents(model) as record:
        model(x)
    expected = torch.zeros(B)
    for latent in record.latents:
        assert latent.kl.shape == (B, H, T)
        for b in range(B):
            expected[b] += latent.kl[b].sum()
    torch.testing.assert_close(record.kl(), expected)


def test_rows_of_graphs_are_summed_to_their_example() -> None:
    """Layers of graphs have a row for each node, and pooling changes their number; the receipt says whose they are."""
    draw = Draw(value=None, index=None, log_weight=torch.zeros(1, 1))
    kls = torch.rand(4, H), torch.rand(3, H)
    examples = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1])
    with record_latents() as record:
        for kl, example in zip(kls, examples, strict=True):
            latent = Latent("graph", "example", True, draw, kl, torch.tensor(0), example=example)
            note_latent(nn.Identity(), latent)
    first, second = (kl.sum(dim=-1) for kl in kls)
    expected = [first[0] + first[1] + second[0], first[2] + second[1] + second[2], first[3]]
    torch.testing.assert_close(record.kl(), torch.stack(expected))


def test_kl_is_differentiable() -> None:
    """BAM's released code detached it: then no prior learns."""
    model = Two()
    with record_latents(model) as record:
        model(torch.randn(B, T, E))
    record.kl().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_the_receipt_is_the_one_that_forward_with_latents_returns() -> None:
    module, x = attention(), torch.randn(B, T, E)
    with sampling(module, seed=1):
        with record_latents() as record:
            module(x, x, x)
        _, result = module.forward_with_latents(x, x, x)
    assert torch.equal(record.latents[0].kl, result.kl)
    assert record.names == ["MultiheadAttention"]  # no model was given to look the name up in


def test_forward_with_latents_does_not_record() -> None:
    """It returns its receipt; counting it here too would double the KL."""
    module, x = attention(), torch.randn(B, T, E)
    with record_latents() as record:
        module.forward_with_latents(x, x, x)
    assert record.latents == []


def test_nothing_is_recorded_outside_the_block() -> None:
    module, x = attention(), torch.randn(B, T, E)
    with record_latents() as record:
        pass
    module(x, x, x)
    assert record.latents == []
    with pytest.raises(ValueError, match="no receipt was recorded: did the forward pass of a stochastic module run"):
        record.kl()


def test_blocks_can_be_nested() -> None:
    module, x = attention(), torch.randn(B, T, E)
    with record_latents() as outer:
        module(x, x, x)
        with record_latents() as inner:
            module(x, x, x)
    assert (len(outer.latents), len(inner.latents)) == (2, 1)
    assert outer.latents[1] is inner.latents[0]


def test_a_block_that_raises_is_closed() -> None:
    module, x = attention(), torch.randn(B, T, E)
    with pytest.raises(RuntimeError, match="stop"), record_latents() as record:
        raise RuntimeError("stop")
    module(x, x, x)
    assert record.latents == []


@pytest.mark.parametrize("backward_inside", [True, False])
def test_checkpointing(backward_inside: bool) -> None:
    """Recomputation adds no receipt, also when the backward pass runs inside the block; gradients are identical."""
    model, x = Two(), torch.randn(B, T, E)
    grads, counts = [], []
    for is_checkpointed in (False, True):
        model.zero_grad()
        torch.manual_seed(3)
        with record_latents(model) as record:
            output = checkpoint(model, x, use_reentrant=False) if is_checkpointed else model(x)
            loss = output.square().sum() + record.kl().sum()
            if backward_inside:
                loss.backward()
        if not backward_inside:
            loss.backward()
        counts.append(len(record.latents))
        grads.append([parameter.grad.clone() for parameter in model.parameters()])
    assert counts == [3, 3]
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_checkpointing_each_layer() -> None:
    class Checkpointed(Two):
        def forward(self, x: Tensor) -> Tensor:
            for module in (self.first, self.shared, self.shared):
                x = x + checkpoint(lambda y, m=module: m(y, y, y, need_weights=False)[0], x, use_reentrant=False)
            return x

    plain, checkpointed, x = Two(), Checkpointed(), torch.randn(B, T, E)
    checkpointed.load_state_dict(plain.state_dict())
    results = []
    for model in (plain, checkpointed):
        torch.manual_seed(3)
        with record_latents(model) as record:
            loss = model(x).square().sum() + record.kl().sum()
            loss.backward()
        results.append((record.names, loss, [parameter.grad for parameter in model.parameters()]))
    assert results[0][0] == results[1][0]
    assert torch.equal(results[0][1], results[1][1])
    assert all(torch.equal(a, b) for a, b in zip(results[0][2], results[1][2], strict=True))


def test_without_a_family_the_receipt_is_there_and_costs_nothing() -> None:
    module, x = MultiheadAttention(E, H, batch_first=True), torch.randn(B, T, E)
    with record_latents() as record:
        module(x, x, x)
    assert torch.equal(record.kl(), torch.zeros(B))


def test_calls_with_different_numbers_of_examples_are_named() -> None:
    module = attention()
    with record_latents(module) as record:
        for size in (3, 2):
            x = torch.randn(size, T, E)
            module(x, x, x)
    with pytest.raises(ValueError, match=r"one number of examples, got calls with \[2, 3\].*record\.latents"):
        record.kl()


def test_a_record_is_of_its_thread() -> None:
    start, counts = threading.Barrier(2), {}

    def work(name: str) -> None:
        module, x = attention(name), torch.randn(B, T, E)
        with record_latents(module) as record:
            start.wait()  # both blocks are open
            module(x, x, x)
            start.wait()
        counts[name] = [latent.name for latent in record.latents]

    threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == {"a": ["a"], "b": ["b"]}


def test_a_checkpoint_that_another_thread_repeats_takes_the_same_way() -> None:
    """Autograd has a thread for each device."""
    model = make_stochastic(nn.TransformerEncoderLayer(E, H, batch_first=True, dropout=0.0), Weibull(2.0, "softmax"))
    x = torch.randn(B, T, E, requires_grad=True)
    errors: list[BaseException] = []
    with sampling(model, False), record_latents(model) as record:
        loss = checkpoint(model, x, use_reentrant=False).sum() + record.kl().sum()

        def backward() -> None:
            try:
                loss.backward()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=backward)
        thread.start()
        thread.join()
    assert not errors and x.grad is not None
