"""Inside torch's own layers: never bypassed, and the original's numbers without sampling.

In evaluation without gradients `nn.TransformerEncoderLayer` takes a fast path that reads the weights of its attention
and never calls it, and `nn.TransformerEncoder` packs padded batches into nested tensors.
"""

import copy

import pytest
import torch
from torch import Tensor, nn

from probattn import GammaPrior, KeyPrior, MultiheadAttention, Weibull, record_latents, sampling

B, T, S, E, H, FF = 3, 5, 4, 8, 2, 16
MODES = pytest.mark.parametrize(("is_training", "has_grad"), [(True, True), (False, True), (False, False)])
LAYOUT = pytest.mark.parametrize("batch_first", [True, False])
NORM = pytest.mark.parametrize("norm_first", [True, False])
PADDED = pytest.mark.parametrize("is_padded", [True, False])

SOURCE = torch.randn(B, T, E, generator=torch.Generator().manual_seed(1))
TARGET = torch.randn(B, S, E, generator=torch.Generator().manual_seed(2))
PADDING = torch.tensor([[False] * 5, [False] * 4 + [True], [False] * 2 + [True] * 3])
TARGET_PADDING = torch.tensor([[False] * 4, [False] * 3 + [True], [False] * 4])


def make_random(model: nn.Module) -> nn.Module:
    """A copy of a model whose attentions are random, with the same weights."""
    model = copy.deepcopy(model)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.MultiheadAttention):
                prior = KeyPrior(E // H, GammaPrior())
                family = Weibull(2.0, anchor="softmax")
                setattr(module, name, MultiheadAttention.from_torch(child, family=family, prior=prior))
    return model


def encoder_layer(**options: object) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(E, H, FF, dropout=0.0, **options)


def check(original: nn.Module, names: list[str], real: Tensor, call: object, *, batch_first: bool) -> None:
    """Draws differ, receipts come from every attention, and without sampling the output is the original's.

    Args:
        original: torch's model, in the mode to try.
        names: Its attentions in the order in which they are called.
        real: (B, T) bool, positions of the output that are not padding.
        call: Runs a model.
        batch_first: Layout of the output.
    """
    model = make_random(original).train(original.training)

    def run(module: nn.Module) -> Tensor:
        output = call(module)
        return (output if batch_first else output.transpose(0, 1))[real]

    with record_latents(model) as record:
        first = run(model)
    assert record.names == names
    assert all(bool((latent.kl.flatten(1).sum(dim=-1) > 0).all()) for latent in record.latents)
    second = run(model)
    differs = (first - second).abs().amax(dim=-1) > 1e-5
    assert differs.float().mean() > 0.6  # the first position of a causal layer has one key, hence no choice
    with sampling(model, seed=1):
        assert torch.equal(run(model), run(model))
    with sampling(model, False):
        torch.testing.assert_close(run(model), run(original), rtol=1e-4, atol=1e-5)


@MODES
@LAYOUT
@NORM
@PADDED
def test_encoder_layer(batch_first: bool, norm_first: bool, is_padded: bool, is_training: bool, has_grad: bool) -> None:
    layer = encoder_layer(batch_first=batch_first, norm_first=norm_first).train(is_training)
    source = SOURCE if batch_first else SOURCE.transpose(0, 1)
    padding = PADDING if is_padded else None
    real = ~PADDING if is_padded else torch.ones(B, T, dtype=torch.bool)
    with torch.set_grad_enabled(has_grad):
        check(
            layer,
            ["self_attn"],
            real,
            lambda model: model(source, src_key_padding_mask=padding),
            batch_first=batch_first,
        )


@MODES
@PADDED
def test_causal_encoder_layer(is_padded: bool, is_training: bool, has_grad: bool) -> None:
    layer = encoder_layer(batch_first=True).train(is_training)
    mask = nn.Transformer.generate_square_subsequent_mask(T)
    padding = torch.zeros(B, T).masked_fill(PADDING, -torch.inf) if is_padded else None
    real = ~PADDING if is_padded else torch.ones(B, T, dtype=torch.bool)
    with torch.set_grad_enabled(has_grad):
        check(
            layer,
            ["self_attn"],
            real,
            lambda model: model(SOURCE, src_mask=mask, src_key_padding_mask=padding, is_causal=True),
            batch_first=True,
        )


@MODES
@NORM
@PADDED
@pytest.mark.parametrize("enable_nested_tensor", [True, False])
def test_encoder(
    enable_nested_tensor: bool, norm_first: bool, is_padded: bool, is_training: bool, has_grad: bool
) -> None:
    """Attentions are replaced after the encoder was built, so it still believes that it may use nested tensors."""
    layer = encoder_layer(batch_first=True, norm_first=norm_first)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=enable_nested_tensor).train(is_training)
    padding = PADDING if is_padded else None
    real = ~PADDING if is_padded else torch.ones(B, T, dtype=torch.bool)
    with torch.set_grad_enabled(has_grad):
        check(
            encoder,
            ["layers.0.self_attn", "layers.1.self_attn"],
            real,
            lambda model: model(SOURCE, src_key_padding_mask=padding),
            batch_first=True,
        )


@PADDED
def test_encoder_of_random_layers(is_padded: bool) -> None:
    """The other way round: torch builds the encoder from a layer that is random already."""
    layer = encoder_layer(batch_first=True)
    original = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    model = nn.TransformerEncoder(make_random(layer), 2).eval()
    missing = model.load_state_dict(original.state_dict())
    assert not missing.missing_keys
    padding = PADDING if is_padded else None
    real = ~PADDING if is_padded else torch.ones(B, T, dtype=torch.bool)
    with torch.no_grad():
        with record_latents(model) as record:
            first = model(SOURCE, src_key_padding_mask=padding)
        assert record.names == ["layers.0.self_attn", "layers.1.self_attn"]
        assert not torch.equal(first[real], model(SOURCE, src_key_padding_mask=padding)[real])
        with sampling(model, False):
            found = model(SOURCE, src_key_padding_mask=padding)[real]
        torch.testing.assert_close(found, original(SOURCE, src_key_padding_mask=padding)[real], rtol=1e-4, atol=1e-5)


@MODES
@LAYOUT
@NORM
@PADDED
def test_decoder_layer(batch_first: bool, norm_first: bool, is_padded: bool, is_training: bool, has_grad: bool) -> None:
    layer = nn.TransformerDecoderLayer(E, H, FF, dropout=0.0, batch_first=batch_first, norm_first=norm_first)
    layer.train(is_training)
    source, target = (x if batch_first else x.transpose(0, 1) for x in (SOURCE, TARGET))
    options = {"tgt_mask": torch.ones(S, S, dtype=torch.bool).triu(1)}
    real = torch.ones(B, S, dtype=torch.bool)
    if is_padded:
        options |= {"memory_key_padding_mask": PADDING, "tgt_key_padding_mask": TARGET_PADDING}
        real = ~TARGET_PADDING
    with torch.set_grad_enabled(has_grad):
        check(
            layer,
            ["self_attn", "multihead_attn"],
            real,
            lambda model: model(target, source, **options),
            batch_first=batch_first,
        )


@MODES
@PADDED
def test_transformer(is_padded: bool, is_training: bool, has_grad: bool) -> None:
    model = nn.Transformer(E, H, 2, 1, FF, dropout=0.0, batch_first=True).train(is_training)
    options = {"tgt_mask": nn.Transformer.generate_square_subsequent_mask(S), "tgt_is_causal": True}
    real = torch.ones(B, S, dtype=torch.bool)
    if is_padded:
        float_padding = torch.zeros(B, S).masked_fill(TARGET_PADDING, -torch.inf)
        options |= {
            "src_key_padding_mask": PADDING,
            "memory_key_padding_mask": PADDING,
            "tgt_key_padding_mask": float_padding,
        }
        real = ~TARGET_PADDING
    names = [f"encoder.layers.{i}.self_attn" for i in range(2)]
    names += ["decoder.layers.0.self_attn", "decoder.layers.0.multihead_attn"]
    with torch.set_grad_enabled(has_grad):
        check(model, names, real, lambda module: module(SOURCE, TARGET, **options), batch_first=True)


@pytest.mark.parametrize("has_grad", [True, False])
def test_padding_of_an_encoder_costs_nothing(has_grad: bool) -> None:
    """Also where torch hands nested tensors to the layers."""
    encoder = make_random(nn.TransformerEncoder(encoder_layer(batch_first=True), 2)).eval()
    was_nested = []
    for layer in encoder.layers:
        layer.self_attn.register_forward_pre_hook(lambda _, inputs: was_nested.append(inputs[0].is_nested))
    with torch.set_grad_enabled(has_grad), record_latents(encoder) as record:
        encoder(SOURCE, src_key_padding_mask=PADDING)
    assert was_nested == [not has_grad] * 2
    for latent in record.latents:
        assert torch.equal(latent.kl > 0, ~PADDING[:, None].expand(B, H, T))


def test_the_kl_trains_the_priors_of_a_transformer() -> None:
    model = make_random(nn.Transformer(E, H, 1, 1, FF, dropout=0.0, batch_first=True))
    with record_latents(model) as record:
        output = model(SOURCE, TARGET)
    (output.square().sum() + record.kl().sum()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
    priors = [p for name, p in model.named_parameters() if ".prior." in name]
    assert len(priors) == 9
    assert all(parameter.grad.abs().max() > 0 for parameter in priors)
