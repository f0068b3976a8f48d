"""The point mass on the nearest code: which code, straight-through gradients, commitment, padding."""

import pytest
import torch

from probattn.distributions import CodeDelta
from tests.distributions.laws import SEED

CODES = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]], dtype=torch.float64)
ENCODED = torch.tensor([[[0.1, 0.2], [0.9, -0.3], [0.2, 1.9]], [[5.0, 0.0], [-1.0, 9.0], [0.4, 0.1]]]).double()


def test_nearest_code_by_a_loop():
    made = CodeDelta(ENCODED, CODES)
    assert made.index.tolist() == [[0, 1, 2], [1, 2, 0]]
    random = CodeDelta(torch.randn(50, 8), torch.randn(17, 8))
    for row, index in zip(random.encoded, random.index, strict=True):
        assert int((row - random.codes).square().sum(dim=-1).argmin()) == int(index)


def test_all_samples_are_the_chosen_code():
    made = CodeDelta(ENCODED, CODES)
    assert made.batch_shape == (2, 3) and made.event_shape == (2,)
    for sample in (made.plug_in, *made.draw_raw(3, SEED), *made.rsample((2,)), made.sample()):
        assert torch.allclose(sample, CODES[made.index])
    assert torch.equal(made.realise(made.plug_in), made.plug_in)
    assert torch.equal(made.log_prob(made.draw_raw(3, SEED)), torch.zeros(3, 2, 3, dtype=torch.float64))


def test_gradient_passes_to_the_encoder_unchanged():
    encoded, codes = ENCODED.clone().requires_grad_(), CODES.clone().requires_grad_()
    direction = torch.randn(2, 3, 2, dtype=torch.float64)
    made = CodeDelta(encoded, codes)
    of_encoded, of_codes = torch.autograd.grad(
        (made.draw_raw(1, SEED)[0] * direction).sum(), (encoded, codes), allow_unused=True
    )
    assert torch.equal(of_encoded, direction) and (of_codes is None or (of_codes == 0).all())
    (of_code,) = torch.autograd.grad(made.code.sum(), codes)
    assert of_code.tolist() == [[2.0, 2.0]] * 3  # each code was chosen twice


def test_commitment_is_the_squared_distance_of_the_encoder_alone():
    encoded, codes = ENCODED.clone().requires_grad_(), CODES.clone().requires_grad_()
    penalty = CodeDelta(encoded, codes).penalties["commitment"]
    assert penalty.shape == (2, 3)
    distance = (ENCODED - CODES[CodeDelta(ENCODED, CODES).index]).square().sum(dim=-1)
    assert torch.allclose(penalty, distance)
    of_encoded, of_codes = torch.autograd.grad(penalty.sum(), (encoded, codes), allow_unused=True)
    assert of_encoded.abs().sum() > 0 and of_codes is None


def test_padded_units_cost_nothing():
    mask = torch.tensor([[True, True, False], [True, False, False]])
    masked, plain = CodeDelta(ENCODED, CODES, mask=mask), CodeDelta(ENCODED, CODES)
    expected = plain.penalties["commitment"].masked_fill(~mask, 0.0)
    assert torch.equal(masked.penalties["commitment"], expected)


def test_half_precision_is_computed_in_float32():
    made = CodeDelta(ENCODED.half(), CODES.half())
    assert made.plug_in.dtype == torch.float32 and made.index.tolist() == [[0, 1, 2], [1, 2, 0]]


def test_meta_device():
    made = CodeDelta(ENCODED.to("meta"), CODES.to("meta"))
    assert made.draw_raw(2, torch.tensor(0, device="meta")).shape == (2, 2, 3, 2)
    assert made.penalties["commitment"].is_meta


def test_widths_must_agree():
    with pytest.raises(ValueError, match=r"same width, got codes \(3, 2\) and encoded \(4, 5\)"):
        CodeDelta(torch.zeros(4, 5), CODES)
