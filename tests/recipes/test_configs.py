"""Commands on top of YAML files can be typed as they stand, and scales that are called the paper's are."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from probattn.cli import _COMMANDS
from probattn.cli.command import settings_of
from probattn.recipes.comparison import Comparison, recipe_by_name
from probattn.recipes.recipe import CONFIGS
from probattn.recipes.translation import RECIPE as TRANSLATION
from probattn.recipes.translation_data import load_corpus
from probattn.recipes.translation_settings import build_model

FILES = sorted(CONFIGS.rglob("*.yaml"))


def commands() -> Iterator[tuple[str, str]]:
    """Of all files: (file, words behind "probattn")."""
    for path in FILES:
        for line in path.read_text().splitlines():
            found = re.match(r"#   (?:\w+=\S+ )*probattn ((?:train|compare) .*?)\s*(?:#.*)?$", line)
            if found:
                yield str(path.relative_to(CONFIGS)), found[1]


ALL = sorted({command: file for file, command in commands()}.items())


def test_commands_are_found() -> None:
    assert len(ALL) > 100


@pytest.mark.parametrize(("command", "file"), ALL)
def test_command(command: str, file: str) -> None:
    name, *words = command.split()
    parser = _COMMANDS[name].parser(name)
    parser.exit_on_error = False
    parsed = parser.parse_args(_COMMANDS[name].arrange(words))
    recipe, _, row = parsed.row.partition("/") if name == "train" else (parsed.recipe, "", "")
    rows = [row] if row else parsed.rows or recipe_by_name(recipe).rows[:1]
    overrides = settings_of(parsed.overrides if name == "train" else parsed.set)
    for one in rows:
        configs = recipe_by_name(recipe).configs(one, parsed.scale)
        if overrides:
            recipe_by_name(recipe).load(configs, overrides)


def test_the_papers_translation_network_has_its_sizes() -> None:
    """Deng et al. 2018, Appendix B."""
    settings, _ = TRANSLATION.load(
        TRANSLATION.configs("variational-enum", "paper"), {"site.posterior.init_args.num_layers": 2}
    )
    network = settings.network
    assert (network.encoder_layers, network.encoder_dim, network.decoder_dim) == (2, 512, 768)
    assert (network.decoder_layers, network.readout_dim, network.uniform_init) == (2, 768, 0.1)
    assert network.embedding_dim == 512 and settings.site.posterior.num_layers == 2


def test_a_setting_that_came_later_leaves_results_valid_at_its_default(tmp_path: Path) -> None:
    def mark(**overrides: object) -> str:
        return Comparison(TRANSLATION, ("soft",), 1, None, overrides, tmp_path).fingerprint("soft")

    assert mark() == mark(**{"network.decoder_layers": 1})
    assert mark() != mark(**{"network.decoder_layers": 2})
    assert mark() != mark(**{"network.decoder_dim": 32})


def test_the_papers_network_can_be_built_and_starts_uniform() -> None:
    small = {f"network.{name}": 8 for name in ("embedding_dim", "encoder_dim", "decoder_dim", "attention_dim")}
    overrides = {**small, "network.readout_dim": 12, "corpus.name": "generated", "corpus.train_size": 200}
    settings, _ = TRANSLATION.load(TRANSLATION.configs("soft", "paper"), overrides)
    subwords = load_corpus(settings.corpus).subwords
    model = build_model(settings, subwords)
    assert model.readout.weight.shape == (len(subwords.outputs), 12) and model.cell.hidden_size == 16
    highest = [float(one.detach().abs().max()) for one in model.parameters()]
    assert max(highest) <= 0.1 and max(highest) > 0.099
