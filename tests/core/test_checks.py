"""Checks of contents: what they find, where they are skipped, how they are switched off."""

import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from probattn.core import content_checks
from probattn.core.checks import require_constant, require_finite, require_no_nan

NAN = torch.tensor([[1.0, math.nan, math.nan]])
INFINITE = torch.tensor([1.0, math.inf, -math.inf])


def test_nan():
    with pytest.raises(ValueError, match=r"scores of shape \(1, 3\) has 2 NaN value\(s\). Look at the keys."):
        require_no_nan(NAN, "scores", "Look at the keys.")
    require_no_nan(INFINITE, "scores", "")


def test_finite():
    with pytest.raises(ValueError, match=r"the loss of shape \(3,\) has 2 value\(s\) that are not finite. Lower it."):
        require_finite(INFINITE, "the loss", "Lower it.")
    with pytest.raises(ValueError, match="not finite"):
        require_finite(NAN, "the loss", "")
    require_finite(torch.ones(3), "the loss", "")
    require_finite(torch.ones(0), "the loss", "")


def test_constant():
    require_constant(torch.tensor([[1.0, 1.0], [-math.inf, -math.inf]]), "weights", "")
    require_constant(torch.ones(2, 0), "weights", "")
    with pytest.raises(ValueError, match="the weights differ between variables. Do not enumerate."):
        require_constant(torch.tensor([[1.0, 1.0], [1.0, 2.0]]), "the weights", "Do not enumerate.")


def test_parameters_are_checked():
    with pytest.raises(ValueError, match="NaN"):
        require_no_nan(torch.nn.Parameter(NAN), "scores", "")


def test_switch():
    with content_checks(False):
        require_no_nan(NAN, "scores", "")
        require_finite(NAN, "scores", "")
        with content_checks(True), pytest.raises(ValueError, match="NaN"):
            require_no_nan(NAN, "scores", "")
        require_no_nan(NAN, "scores", "")
    with pytest.raises(ValueError, match="NaN"):
        require_no_nan(NAN, "scores", "")


def test_switch_comes_back_after_an_error():
    with pytest.raises(RuntimeError), content_checks(False):
        raise RuntimeError
    with pytest.raises(ValueError, match="NaN"):
        require_no_nan(NAN, "scores", "")


def test_tensors_without_contents_are_skipped():
    for check in (require_no_nan, require_finite):
        check(NAN.to("meta"), "scores", "")
        with FakeTensorMode() as mode:
            check(mode.from_tensor(NAN), "scores", "")
        torch.func.vmap(lambda x, check=check: (check(x, "scores", ""), x)[1])(NAN)


def test_no_graph_break_while_compiling():
    def checked(x: torch.Tensor) -> torch.Tensor:
        require_no_nan(x, "scores", "")
        require_finite(x, "scores", "")
        return x + 1.0

    compiled = torch.compile(checked, fullgraph=True, backend="eager")
    assert torch.isnan(compiled(NAN)).sum() == 2
