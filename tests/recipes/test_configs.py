"""Commands on top of YAML files can be typed as they stand, and scales that are called the paper's are."""

import re
from collections.abc import Iterator

import pytest

from probattn.cli import _COMMANDS
from probattn.cli.command import settings_of
from probattn.recipes.comparison import recipe_by_name
from probattn.recipes.recipe import CONFIGS
from probattn.recipes.translation import RECIPE as TRANSLATION

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
    assert network.embedding_dim == 512 and settings.site.posterior.num_layers == 2
