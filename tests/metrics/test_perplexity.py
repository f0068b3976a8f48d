"""Perplexities by hand."""

import math

import pytest

from probattn.metrics import elbo_ppl, exact_ppl, iw_ppl


@pytest.mark.parametrize("function", [elbo_ppl, exact_ppl, iw_ppl])
def test_uniform_model_has_the_size_of_its_vocabulary(function) -> None:  # type: ignore[no-untyped-def]
    assert function(-30 * math.log(50.0), 30) == pytest.approx(50.0)
    assert function(-1e9, 3) == pytest.approx(math.exp(700.0))
    with pytest.raises(ValueError, match="at least one token"):
        function(-1.0, 0)
