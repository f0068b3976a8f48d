"""Models made of torch's attention: conversion in place, plug-in weights, receipts, and back."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from probattn import (
    GammaPrior,
    KeyPrior,
    MultiheadAttention,
    Weibull,
    make_stochastic,
    predict,
    record_latents,
    sampling,
    undo,
)
from probattn.integrations.torch_modules import ConvertedMultiheadAttention

FAMILY = Weibull(2.0, anchor="softmax")
E, H, S, T = 16, 2, 5, 4


class Own(nn.Module):
    """A model of someone who calls torch's attention, one module of it twice."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(E, H, kdim=E, vdim=E, dropout=0.1, batch_first=True)
        self.again = self.attention
        self.cross_attention = nn.MultiheadAttention(E, H, bias=False, batch_first=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x, _ = self.attention(target, target, target, need_weights=False)
        x, _ = self.again(x, x, x)
        return self.cross_attention(x, source, source)[0]


class Stack(nn.Module):
    """Only an encoder, with a mask of padding."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(E, H, 24, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        padding = torch.tensor([[False] * S, [False] * 3 + [True] * 2])
        encoded: Tensor = self.encoder(source, src_key_padding_mask=padding)
        return encoded


ZOO: dict[str, Any] = {
    "transformer": lambda: nn.Transformer(E, H, 2, 2, 24, dropout=0.1, batch_first=True),
    "own": Own,
    "encoder": Stack,
}
SITES = {"transformer": 6, "own": 3, "encoder": 2}


@pytest.fixture(params=ZOO)
def name(request: pytest.FixtureRequest) -> Any:
    return request.param


def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(2, S, E, generator=generator), torch.randn(2, T, E, generator=generator)


def seeded(model: nn.Module) -> Tensor:
    torch.manual_seed(4)
    result: Tensor = model(*inputs())
    return result


class TestConversion:
    def test_switched_off_it_is_torch(self, name: str) -> None:
        model = ZOO[name]()
        expected = seeded(model)
        assert make_stochastic(model, FAMILY) is model
        with sampling(model, False):
            assert torch.equal(seeded(model), expected)
            model.eval()
            assert torch.equal(seeded(model), seeded(undo(copy.deepcopy(model))))

    def test_draws(self, name: str) -> None:
        model = make_stochastic(ZOO[name](), FAMILY).eval()
        with sampling(model, False):
            soft = seeded(model)
        assert not torch.allclose(seeded(model), soft, atol=1e-4)
        assert torch.equal(seeded(model), seeded(model))
        with sampling(model, True, seed=1):
            assert torch.equal(model(*inputs()), model(*inputs()))

    def test_receipts_and_gradients(self, name: str) -> None:
        model = make_stochastic(ZOO[name](), FAMILY)
        with record_latents(model) as record:
            model(*inputs())
        assert len(record.latents) == SITES[name] and record.kl().shape == (2,)
        record.kl().sum().backward()
        priors = {key: p.grad for key, p in model.named_parameters() if ".prior." in key}
        assert priors and all(grad is not None and grad.abs().max() > 0 for grad in priors.values())

    def test_an_optimizer_from_before_stays_valid(self, name: str) -> None:
        model = ZOO[name]()
        before = {key: id(parameter) for key, parameter in model.named_parameters()}
        make_stochastic(model, FAMILY)
        after = {key: id(parameter) for key, parameter in model.named_parameters()}
        assert before.items() <= after.items()

    def test_undo(self, name: str) -> None:
        model = ZOO[name]()
        keys, modules = list(model.state_dict()), dict(model.named_modules(remove_duplicate=False))
        make_stochastic(model, FAMILY)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.01)
        with sampling(model, False):
            expected = seeded(model)
        undo(model.to(torch.float64).to(torch.float32))
        assert list(model.state_dict()) == keys
        assert dict(model.named_modules(remove_duplicate=False)) == modules
        torch.testing.assert_close(seeded(model), expected)

    def test_copies(self, name: str) -> None:
        model = make_stochastic(ZOO[name](), FAMILY).eval()
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert torch.equal(seeded(twin), seeded(model))
            with sampling(twin, False), sampling(model, False):
                assert torch.equal(seeded(twin), seeded(model))
            with torch.no_grad():
                next(twin.parameters()).add_(1.0)
            assert not torch.equal(seeded(undo(twin)), seeded(undo(copy.deepcopy(model))))


class TestParts:
    def test_the_original_follows_train_and_device(self) -> None:
        model = make_stochastic(Own(), FAMILY)
        model.eval().to("meta")
        assert not model.attention.original.training
        assert all(parameter.is_meta for parameter in model.attention.original.parameters())
        assert model.attention.original.out_proj is model.attention.out_proj

    def test_the_prior_has_the_dtype_of_the_model(self) -> None:
        model = make_stochastic(Own().double(), FAMILY)
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}

    def test_a_module_in_two_places_stays_one(self) -> None:
        model = make_stochastic(Own(), FAMILY)
        assert isinstance(model.attention, ConvertedMultiheadAttention) and model.again is model.attention
        undo(model)
        assert type(model.attention) is nn.MultiheadAttention and model.again is model.attention

    def test_a_decoder_looks_at_no_later_key(self) -> None:
        model = make_stochastic(ZOO["transformer"](), FAMILY)
        assert model.decoder.layers[0].self_attn.prior.normalises == "set"
        assert model.decoder.layers[0].multihead_attn.prior.normalises == "memory"


class TestSelection:
    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ({"only": "cross"}, ["decoder.layers.0.multihead_attn", "decoder.layers.1.multihead_attn"]),
            ({"only": "self", "layers": [-1]}, ["encoder.layers.1.self_attn", "decoder.layers.1.self_attn"]),
            ({"only": "cross", "layers": [0]}, ["decoder.layers.0.multihead_attn"]),
        ],
    )
    def test_places(self, arguments: dict[str, Any], expected: list[str]) -> None:
        model = make_stochastic(ZOO["transformer"](), FAMILY, **arguments)
        assert [key for key, module in model.named_modules() if isinstance(module, MultiheadAttention)] == expected

    def test_names_tell_cross_attention(self) -> None:
        model = make_stochastic(Own(), FAMILY, only="cross")
        assert isinstance(model.cross_attention, MultiheadAttention)
        assert not isinstance(model.attention, MultiheadAttention)

    def test_a_function_of_the_place(self) -> None:
        seen = []

        def prior(place: Any) -> KeyPrior:
            seen.append((place.path, place.number))
            return KeyPrior(place.head_dim, GammaPrior())

        make_stochastic(ZOO["encoder"](), FAMILY, prior)
        assert seen == [("encoder.layers.0.self_attn", 0), ("encoder.layers.1.self_attn", 1)]


class TestErrors:
    def test_no_attention(self) -> None:
        with pytest.raises(ValueError, match="Linear has no torch.nn.MultiheadAttention and is no model of transf"):
            make_stochastic(nn.Linear(2, 2))

    def test_itself(self) -> None:
        with pytest.raises(ValueError, match="a MultiheadAttention cannot be replaced inside itself"):
            make_stochastic(nn.MultiheadAttention(E, H))

    def test_twice(self) -> None:
        with pytest.raises(ValueError, match=r"Own has stochastic attention already; undo\(model\) first"):
            make_stochastic(make_stochastic(Own()))

    def test_undo_of_nothing(self) -> None:
        with pytest.raises(ValueError, match="Own was not converted: there is nothing to undo"):
            undo(Own())

    @pytest.mark.parametrize("arguments", [{"kl_weight": 1.0}, {"kl_per": "example"}])
    def test_what_only_transformers_models_take(self, arguments: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="can be chosen for models of transformers only; Own returns no loss"):
            make_stochastic(Own(), FAMILY, **arguments)


class TestHeads:
    """Some heads draw, the others stay as they are."""

    @pytest.mark.parametrize("per_head", [False, True])
    def test_only_the_chosen_ones_draw(self, per_head: bool) -> None:
        torch.manual_seed(0)
        model = nn.Sequential(nn.MultiheadAttention(E, 4, batch_first=True))
        x = torch.randn(2, S, E)
        hidden = torch.rand(8, S, S) > 0.6 if per_head else torch.rand(S, S) > 0.6
        hidden[..., 0] = False
        options: dict[str, Any] = {"attn_mask": hidden, "average_attn_weights": False}
        expected = model[0](x, x, x, **options)[1]
        make_stochastic(model, FAMILY, heads=[2, 0])
        weights = model[0](x, x, x, **options)[1]
        is_alike = ((weights - expected).abs() < 1e-6).flatten(2).all(dim=-1)  # (2, 4)
        assert is_alike.tolist() == [[False, True, False, True]] * 2
        assert torch.allclose(weights.sum(dim=-1), torch.ones(2, 4, S))
        output = model[0](x, x, x, attn_mask=hidden, need_weights=False)[0]
        assert output.shape == (2, S, E)  # and without a matrix of weights
        with sampling(model, False):
            assert torch.equal(model[0](x, x, x, **options)[1], expected)

    def test_the_context_is_woven_in_order(self) -> None:
        """With noise that is next to nothing, the output is the original's."""
        torch.manual_seed(0)
        model = nn.Sequential(nn.MultiheadAttention(E, 4, batch_first=True))
        x = torch.randn(2, S, E)
        expected = model[0](x, x, x)[0]
        make_stochastic(model, Weibull(1e5, anchor="softmax"), heads=[1, 2])
        with record_latents(model) as record:
            assert torch.allclose(model[0](x, x, x)[0], expected, atol=1e-4)
        assert record.latents[0].kl.shape == (2, 2, S)  # of two heads

    def test_priors_and_gradients_are_theirs(self, name: str) -> None:
        model = make_stochastic(ZOO[name](), FAMILY, heads=[1])
        with record_latents(model) as record:
            output = seeded(model)
        (output.square().sum() + record.kl().sum()).backward()
        assert all(one.grad is not None for key, one in model.named_parameters() if ".prior." in key)
        undo(model)
        assert not any(isinstance(one, ConvertedMultiheadAttention) for one in model.modules())

    def test_all_by_number_are_all(self) -> None:
        drawn = []
        for heads in (None, range(H)):
            torch.manual_seed(0)
            drawn.append(seeded(make_stochastic(Own(), FAMILY, heads=heads)))
        assert torch.equal(*drawn)

    def test_numbers_that_name_none(self) -> None:
        with pytest.raises(ValueError, match="heads must be numbers from 0 to 1, at least one; got"):
            make_stochastic(Own(), FAMILY, heads=[2])


@pytest.mark.parametrize("as_float", [False, True])
def test_padded_targets_cost_nothing_in_cross_attention(as_float: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(E, H, 24, dropout=0.0, batch_first=True)
    model = nn.TransformerDecoder(layer, 2)
    make_stochastic(model, FAMILY)
    target, source = torch.randn(1, T, E), torch.randn(1, S, E)
    totals = []
    for count in (0, 3):
        padded = torch.cat([target, torch.randn(1, count, E)], dim=1)
        padding = (torch.arange(T + count) >= T).unsqueeze(0)
        given = torch.zeros(1, T + count).masked_fill(padding, -torch.inf) if as_float else padding
        with sampling(model, False), record_latents(model) as found:
            model(padded, source, tgt_key_padding_mask=given)
        totals.append(found.kl().detach())
    torch.testing.assert_close(totals[0], totals[1])
    with sampling(model, False), record_latents(model) as found:  # what one call was told is forgotten in the next
        model(torch.cat([target, target], dim=1), source)
    assert float(found.kl().detach()) > 1.5 * float(totals[0])
    copied = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    undo(copied)
    undo(model)
    assert not model.layers[0]._forward_pre_hooks and not copied.layers[0]._forward_hooks


def attentive() -> nn.Module:
    """Attention has dropout, nothing else."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(E, H, 24, dropout=0.0, batch_first=True)
    layer.self_attn.dropout = 0.5
    return make_stochastic(nn.Sequential(layer, nn.Flatten(), nn.Linear(S * E, 3)), FAMILY)


@pytest.mark.parametrize("is_training", [False, True])
def test_predictions_switch_the_dropout_of_attention(is_training: bool) -> None:
    model, x = attentive().train(is_training), torch.randn(4, S, E)
    plain = [predict(model, x, noise=False, seed=seed).probabilities for seed in (0, 1)]
    torch.testing.assert_close(*plain)
    drawn = predict(model, x, noise=False, dropout=True, draws=8)
    assert bool((drawn.mutual_information > 0).all())
    assert model.training is is_training


def test_switched_off_it_has_weights_that_were_replaced() -> None:
    x, model = torch.randn(2, S, E), attentive().eval()
    plain = copy.deepcopy(model)
    undo(plain)
    weights = {name: 3.0 * one if "in_proj_weight" in name else one for name, one in plain.state_dict().items()}
    plain.load_state_dict(weights)
    plain.eval()
    converted = {**{name: one for name, one in model.state_dict().items() if "prior" in name}, **weights}
    with sampling(model, False), torch.no_grad():
        expected = plain(x)
        torch.testing.assert_close(torch.func.functional_call(model, converted, (x,)), expected)
        model.load_state_dict(converted, assign=True)
        torch.testing.assert_close(model(x), expected)


class Adapter(nn.Module):
    """Adds something to a projection, as low-rank adapters do."""

    def __init__(self, base: nn.Linear):
        super().__init__()
        self.base = base
        self.added = nn.Linear(base.in_features, base.out_features)

    @property
    def weight(self) -> Tensor:
        return self.base.weight

    @property
    def bias(self) -> Tensor:
        return self.base.bias

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.base(x) + self.added(x)
        return result


@pytest.mark.parametrize("replaced", [lambda old: nn.Linear(E, E), Adapter])
def test_switched_off_it_has_a_projection_that_was_replaced(replaced: Any) -> None:
    model = make_stochastic(Own(), Weibull(1e6, anchor="softmax")).eval()
    model.cross_attention.out_proj = replaced(model.cross_attention.out_proj)
    expected = seeded(model)
    with sampling(model, False):
        torch.testing.assert_close(seeded(model), expected, atol=1e-4, rtol=1e-4)
    projection = model.cross_attention.out_proj
    assert undo(model).cross_attention.out_proj is projection


def test_a_decoder_layer_that_is_listed_twice_is_left_without_hooks() -> None:
    layer = nn.TransformerDecoderLayer(E, H, 24, batch_first=True)
    model = nn.ModuleList([layer, layer])
    undo(make_stochastic(model, FAMILY))
    assert not layer._forward_pre_hooks and not layer._forward_hooks


def test_learnt_numbers_do_not_stay_in_the_original() -> None:
    model, concentration = ZOO["transformer"](), nn.Parameter(torch.tensor(10.0))
    before = list(model.state_dict())
    make_stochastic(model, Weibull(concentration, anchor="softmax"))
    assert sum(parameter is concentration for parameter in model.parameters()) == 1
    undo(model)
    assert list(model.state_dict()) == before
    assert not any(parameter is concentration for parameter in model.parameters())


class Named(nn.Module):
    """Three layers that stand in no list."""

    def __init__(self) -> None:
        super().__init__()
        for number in (1, 2, 10):
            setattr(self, f"block{number}", nn.TransformerEncoderLayer(8, 2, 16, batch_first=True))
        self.pool = nn.MultiheadAttention(8, 2, batch_first=True)


def test_layers_with_numbers_in_their_names_are_a_stack() -> None:
    for layers, expected in (
        ([-1], ["block10.self_attn", "pool"]),
        ([0], ["block1.self_attn", "pool"]),
        ([1], ["block2.self_attn"]),
    ):
        model = make_stochastic(Named(), Weibull(10.0), None, layers=layers)
        found = [name for name, one in model.named_modules() if isinstance(one, ConvertedMultiheadAttention)]
        assert found == expected


def test_predictions_of_a_converted_model_compute_no_kl(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_stochastic(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), FAMILY).eval()
    asked = []
    prior = model.self_attn.prior
    original = prior.forward
    monkeypatch.setattr(prior, "forward", lambda given: asked.append(1) or original(given))
    x = torch.randn(3, 5, 8)
    with torch.no_grad():
        model(x)
        assert not asked
        with record_latents() as record:
            model(x)
    assert asked and float(record.kl().min()) > 0.0
