"""The convolutional prior: causal, the same step by step as at once, and sampled in linear time."""

import pytest
import torch
from torch import Tensor, nn

from probattn.nn import AutoregressiveCategorical, AutoregressiveGaussian, CausalConvolutions, Incremental
from probattn.nn.autoregressive import truncated_logits

D, OUT = 3, 5


def network(output_dim: int = OUT, **sizes: int) -> CausalConvolutions:
    torch.manual_seed(0)
    return CausalConvolutions(D, output_dim, **{"channels": 8, "num_layers": 3, "kernel_size": 3, **sizes}).double()


def test_an_output_sees_its_receptive_field_and_nothing_else() -> None:
    net = network()
    x = torch.randn(1, 20, D, dtype=torch.float64, requires_grad=True)
    net(x)[0, 12].sum().backward()
    assert x.grad is not None
    seen = x.grad[0].abs().sum(dim=-1).nonzero().squeeze(-1).tolist()
    assert net.receptive_field == 7
    assert seen == list(range(12 - 6, 13))


def test_padding_behind_a_sequence_changes_nothing_before_it() -> None:
    net, x = network(), torch.randn(2, 9, D, dtype=torch.float64)
    longer = torch.cat([x, torch.full((2, 4, D), 7.0, dtype=torch.float64)], dim=1)
    torch.testing.assert_close(net(longer)[:, :9], net(x))


@pytest.mark.parametrize("kernel_size", [1, 2, 5])
def test_steps_equal_the_whole(kernel_size: int) -> None:
    net, x = network(kernel_size=kernel_size), torch.randn(4, 11, D, dtype=torch.float64)
    assert isinstance(net, Incremental)
    cache, outputs = net.begin(4), []
    for position in range(11):
        output, cache = net.step(x[:, position], cache)
        outputs.append(output)
    torch.testing.assert_close(torch.stack(outputs, dim=1), net(x))


class Whole(nn.Module):
    """The same network, without steps."""

    def __init__(self, net: CausalConvolutions):
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x)
        return out


@pytest.mark.parametrize("kind", ["codes", "gaussian"])
def test_cached_sampling_draws_what_recomputation_draws(kind: str) -> None:
    codes = torch.randn(OUT, D, dtype=torch.float64)
    priors = []
    for wrap in (Whole, lambda net: net):
        if kind == "codes":
            prior: AutoregressiveCategorical | AutoregressiveGaussian = AutoregressiveCategorical(
                wrap(network()), codes
            )
        else:
            prior = AutoregressiveGaussian(wrap(network(2 * D)), D)
        priors.append(prior.double())
    seed = torch.tensor(5)
    expected, found = (prior.ancestral(6, 10, seed=seed) for prior in priors)
    torch.testing.assert_close(found, expected)
    assert found.shape == (6, 10, D)
    assert not torch.equal(found, priors[1].ancestral(6, 10, seed=torch.tensor(6)))
    assert priors[1].ancestral(1, 0, seed=seed).shape == (1, 0, D)
    assert priors[1].ancestral(1, 4, seed=seed).shape == (1, 4, D)  # a batch of one


def test_temperature_zero_takes_the_most_probable_value() -> None:
    codes = torch.randn(OUT, D, dtype=torch.float64)
    prior = AutoregressiveCategorical(network(), codes).double()
    first, second = (prior.ancestral(3, 8, seed=torch.tensor(number), temperature=0.0) for number in (1, 2))
    assert torch.equal(first, second)
    gaussian = AutoregressiveGaussian(network(2 * D), D).double()
    first, second = (gaussian.ancestral(3, 8, seed=torch.tensor(number), temperature=0.0) for number in (1, 2))
    assert torch.equal(first, second)
    with pytest.raises(ValueError, match="temperature"):
        prior.ancestral(1, 1, temperature=-1.0)
    with pytest.raises(ValueError, match="top_p"):
        prior.ancestral(1, 1, top_p=0.0)


def test_top_p_keeps_the_most_probable_codes_and_always_one() -> None:
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05], [0.05, 0.15, 0.3, 0.5]]).log()
    kept = truncated_logits(logits, 0.7) > -100
    assert kept.tolist() == [[True, True, False, False], [False, False, True, True]]
    assert (truncated_logits(logits, 1e-6) > -100).sum(dim=-1).tolist() == [1, 1]
    assert torch.equal(truncated_logits(logits, 1.0), logits)
    codes = torch.eye(4)[:, :3].contiguous()
    prior = AutoregressiveCategorical(network(4).float(), codes)
    greedy = prior.ancestral(4, 5, seed=torch.tensor(0), temperature=0.0)
    assert torch.equal(prior.ancestral(4, 5, seed=torch.tensor(0), top_p=1e-6), greedy)


def test_sizes_are_checked() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        CausalConvolutions(3, 4, channels=0)
