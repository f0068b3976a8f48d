"""Warnings of collapse: when they come, what they name, and that what they name exists."""

import math
import re

import pytest

import probattn
from probattn.training.diagnostics import warn_of_collapse


def test_healthy_sites_are_passed_over() -> None:
    assert warn_of_collapse({}) == []
    assert warn_of_collapse({"z": 5.0, "context": 0.01}, {"z": 3, "context": None}) == []


def test_a_vanished_kl_is_named_with_its_size() -> None:
    (message,) = warn_of_collapse({"z": 0.0031, "context": 2.0}, {"z": None})
    assert message.startswith("site 'z' has collapsed: its KL is 0.0031 nats an example (below 0.01).")
    assert "active" not in message
    (message,) = warn_of_collapse({"z": 0.3}, min_kl=0.5)
    assert "0.3 nats an example (below 0.5)" in message


def test_inactive_units_are_a_sign_of_their_own() -> None:
    (message,) = warn_of_collapse({"z": 4.0}, {"z": 0})
    assert message.startswith("site 'z' has collapsed: none of its latent units is active.")
    (message,) = warn_of_collapse({"z": 0.0}, {"z": 0})
    assert "its KL is 0 nats an example (below 0.01) and none of its latent units is active." in message


def test_one_message_a_site_in_their_order() -> None:
    messages = warn_of_collapse({"z": 0.0, "context": 0.0}, {"memory": 0, "z": 0})
    assert [re.findall("site '(.*?)'", message)[0] for message in messages] == ["z", "context", "memory"]


@pytest.mark.parametrize(("kl", "count"), [(math.nan, 0), (-1e-4, 1), (math.inf, 0)])
def test_odd_values(kl: float, count: int) -> None:
    assert len(warn_of_collapse({"z": kl})) == count


def test_remedies_exist() -> None:
    (message,) = warn_of_collapse({"z": 0.0})
    for remedy in ("Logistic", "Linear", "Cyclical", "Constant", "Elbo", "FreeBits", "FromContext"):
        assert remedy in message
        assert hasattr(probattn, remedy)
    assert "free_bits={'z': FreeBits(...)}" in message
    assert "word dropout" in message and "no initial state from the encoder" in message
