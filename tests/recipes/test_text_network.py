"""Initial weights of text models: what two rows share starts alike, and the language model keeps its own."""

import pytest
import torch
from torch import Tensor, nn

from probattn.recipes.text_network import build_model
from tests.recipes.tiny_text import settings_of

WORDS = 30


def weights(row: str, **changes: object) -> dict[str, Tensor]:
    return build_model(settings_of(row, **changes), WORDS).state_dict()


def differing(first: dict[str, Tensor], second: dict[str, Tensor]) -> set[str]:
    """Weights that are not the same in two networks, of layers that both have with the same sizes."""

    def layer(name: str) -> str:
        return name.rpartition(".")[0]

    shapes = [{name: value.shape for name, value in each.items()} for each in (first, second)]
    changed = {
        layer(name) for name in shapes[0].keys() | shapes[1].keys() if shapes[0].get(name) != shapes[1].get(name)
    }
    return {name for name in first if layer(name) not in changed and not torch.equal(first[name], second[name])}


@pytest.mark.parametrize("row", ["davam-128", "davam-q", "davam-short"])
@pytest.mark.parametrize("change", [{"latent.num_codes": 9}, {"network.latent_dim": 6}], ids=["codes", "width"])
def test_codes_do_not_change_other_weights(row: str, change: dict[str, int]) -> None:
    first, second = weights(row), weights(row, **change)
    assert {"encoder.weight_ih_l0", "readout.weight", "latent.site.prior.network.convolutions.0.weight"} <= first.keys()
    assert not differing(first, second)


def test_rows_start_alike_and_seeds_do_not() -> None:
    first, second = weights("davam-128"), weights("davam-short-joint")
    assert not {name for name in differing(first, second) if not name.startswith("latent.site.posterior.")}
    assert not differing(weights("gavam"), first)
    other = differing(first, weights("davam-128", seed=1))
    assert {"embedding.weight", "encoder.weight_ih_l0", "decoder.weight_ih", "readout.bias"} <= other
    layers = [first[f"latent.site.prior.network.convolutions.{number}.weight"] for number in (0, 1)]
    assert not torch.equal(*layers)  # each layer has noise of its own


def test_the_language_model_has_the_weights_that_it_had() -> None:
    settings = settings_of("lstm-lm", seed=3)
    found = build_model(settings, WORDS).state_dict()
    torch.manual_seed(3)
    embedding = nn.Embedding(WORDS, settings.network.embedding_dim)
    nn.init.normal_(embedding.weight, std=0.1)
    decoder = nn.LSTM(settings.network.embedding_dim, settings.network.hidden_dim, batch_first=True)
    readout = nn.Linear(settings.network.hidden_dim, WORDS)
    for name, module in {"embedding": embedding, "decoder": decoder, "readout": readout}.items():
        for part, expected in module.state_dict().items():
            assert torch.equal(found.pop(f"{name}.{part}"), expected)
    assert not found
    assert torch.equal(weights("davam-128", seed=3)["embedding.weight"], embedding.weight)
