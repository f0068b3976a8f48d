"""The sampling switch."""

import copy

import pytest
import torch
from torch import Tensor, nn

from probattn import Categorical, MultiheadAttention, NoBaseline, ScoreFunction, Weibull, sampling, set_sampling

E, H = 8, 2


def attention() -> MultiheadAttention:
    return MultiheadAttention(E, H, batch_first=True, family=Weibull(2.0))


def model() -> nn.Sequential:
    class Self(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = attention()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x, x, x, need_weights=False)[0]

    return nn.Sequential(Self(), nn.Linear(E, E), Self())


X = torch.randn(2, 5, E, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("enabled", [True, False])
def test_the_switch_is_independent_of_train_and_eval(is_training: bool, enabled: bool) -> None:
    net = model()
    set_sampling(net, enabled)
    net.train(is_training)
    assert torch.equal(net(X), net(X)) == (not enabled)


def test_modules_are_born_drawing() -> None:
    net = model().eval()
    assert not torch.equal(net(X), net(X))


def test_without_sampling_the_weights_are_those_of_soft_attention() -> None:
    reference = nn.MultiheadAttention(E, H, batch_first=True)
    stochastic = MultiheadAttention.from_torch(reference, family=Weibull(2.0))
    with sampling(stochastic, False):
        torch.testing.assert_close(stochastic(X, X, X)[0], reference(X, X, X)[0])


def test_a_hard_module_too_is_soft_without_sampling() -> None:
    reference = nn.MultiheadAttention(E, H, batch_first=True)
    hard = MultiheadAttention.from_torch(
        reference, family=Categorical(), estimator=ScoreFunction(1, baseline=NoBaseline())
    )
    _, weights = hard(X, X, X, average_attn_weights=False)
    assert torch.equal(weights.amax(dim=-1), torch.ones(2, H, 5))
    with sampling(hard, False):
        torch.testing.assert_close(hard(X, X, X)[0], reference(X, X, X)[0])


def test_a_seed_fixes_the_draw() -> None:
    net = model()
    with sampling(net, seed=1):
        first, again = net(X), net(X)
    with sampling(net, seed=2):
        other = net(X)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_seed_does_not_touch_the_generator_of_torch() -> None:
    net = model()
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    with sampling(net, seed=1):
        net(X)
    assert torch.equal(torch.rand(3), expected)


def test_the_generator_of_torch_governs_without_a_seed() -> None:
    net = model()
    torch.manual_seed(0)
    first = net(X)
    torch.manual_seed(0)
    assert torch.equal(first, net(X))
    assert not torch.equal(first, net(X))


def test_modules_with_equal_weights_draw_differently() -> None:
    net = nn.ModuleList([attention(), attention()])
    net[1].load_state_dict(net[0].state_dict())
    with sampling(net, seed=1):
        assert not torch.equal(net[0].sampling_seed, net[1].sampling_seed)
        assert not torch.equal(net[0](X, X, X)[0], net[1](X, X, X)[0])


def test_the_block_restores_what_was_there() -> None:
    net = model()
    set_sampling(net[0], False)
    set_sampling(net[2], True, seed=5)
    seed = net[2].inner.sampling_seed
    with sampling(net, True, seed=1):
        assert net[0].inner.is_sampling
        assert not torch.equal(net[2].inner.sampling_seed, seed)
    assert not net[0].inner.is_sampling
    assert net[0].inner.sampling_seed is None
    assert net[2].inner.is_sampling
    assert torch.equal(net[2].inner.sampling_seed, seed)


def test_the_block_restores_after_an_error() -> None:
    net = model()
    with pytest.raises(RuntimeError, match="stop"), sampling(net, False, seed=1):
        raise RuntimeError("stop")
    assert net[0].inner.is_sampling
    assert net[0].inner.sampling_seed is None


def test_blocks_can_be_nested() -> None:
    net = model()
    with sampling(net, False):
        with sampling(net, True, seed=1):
            drawn = net(X)
        assert torch.equal(net(X), net(X))
        assert not torch.equal(net(X), drawn)


def test_the_seed_is_not_saved_but_copied() -> None:
    """A checkpoint holds parameters only; a copy of a model draws like the model."""
    net = model()
    keys = set(net.state_dict())
    set_sampling(net, True, seed=1)
    assert set(net.state_dict()) == keys
    assert torch.equal(copy.deepcopy(net)(X), net(X))


def test_the_seed_follows_the_module_to_its_device() -> None:
    net = attention()
    set_sampling(net, True, seed=1)
    assert net.to("meta").sampling_seed.device.type == "meta"
    fresh = attention().to("meta")
    set_sampling(fresh, True, seed=1)
    assert fresh.sampling_seed.device.type == "meta"


def test_casting_a_module_keeps_the_seed() -> None:
    net = attention()
    set_sampling(net, True, seed=1)
    assert net.double().sampling_seed.dtype == torch.int64


@pytest.mark.parametrize("net", [nn.Linear(E, E), nn.MultiheadAttention(E, H)], ids=lambda m: type(m).__name__)
def test_a_model_without_random_attention(net: nn.Module) -> None:
    with pytest.raises(ValueError, match=rf"{type(net).__name__} has no random attention to switch; build it with"):
        set_sampling(net, True)
    with pytest.raises(ValueError, match="has no random attention to switch"), sampling(net):
        pass
