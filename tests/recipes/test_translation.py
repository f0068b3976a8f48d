"""The translation recipe on a toy language: every row trains, resumes, evaluates; wrong input is named."""

import random
from pathlib import Path
from typing import Any

import pytest

from probattn.recipes.recipe import Run
from probattn.recipes.translation import RECIPE, engine_stages, train
from probattn.recipes.translation_data import CorpusSettings, load_corpus

WORDS = {"der": "the", "hund": "dog", "katze": "cat", "sieht": "sees", "mag": "likes", "rote": "red", "alte": "old"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A parallel text: word by word, with the last two words swapped."""
    folder = tmp_path_factory.mktemp("text")
    draw = random.Random(0)
    pairs = []
    for _ in range(160):
        source = draw.choices(list(WORDS), k=draw.randint(3, 6))
        target = [WORDS[word] for word in source]
        target[-2:] = reversed(target[-2:])
        pairs.append((" ".join(source), " ".join(target)))
    source_file, target_file = folder / "toy.de", folder / "toy.en"
    source_file.write_text("".join(f"{source}\n" for source, _ in pairs))
    target_file.write_text("".join(f"{target}\n" for _, target in pairs))
    return source_file, target_file


def small(row: str, files: tuple[Path, Path], **overrides: Any) -> tuple[Any, dict[str, Any]]:
    settings = {
        "corpus.name": "files",
        "corpus.src": files[0],
        "corpus.tgt": files[1],
        "corpus.test_size": 20,
        "corpus.vocabulary_size": 60,
        "network.embedding_dim": 16,
        "network.encoder_dim": 8,
        "network.decoder_dim": 16,
        "network.attention_dim": 8,
        "network.dropout": 0.0,
        "trainer.learning_rate": 0.02,
        "trainer.warmup_updates": 2,
        "trainer.tensorboard": "false",
        "decoding.beam_size": 2,
        "epochs": 2,
        "max_tokens": 200,
    }
    return RECIPE.load(RECIPE.configs(row, None), {**settings, **overrides})


def job(row: str, files: tuple[Path, Path], output: Path, **overrides: Any) -> Run:
    return Run(*small(row, files, **overrides), output, show_progress=False)


@pytest.mark.parametrize("row", RECIPE.rows)
def test_every_row_trains(row: str, files: tuple[Path, Path], tmp_path: Path) -> None:
    result = train(job(row, files, tmp_path))
    assert result.metrics["ppl"] < 60.0, result.metrics  # the vocabulary's size or so at the start
    assert len(result.curve) >= 2
    assert result.facts["updates"] > 0 and "tok:none" in result.facts["signature"]
    has_network = "SourceAndTarget" in (RECIPE.configs(row, None)[0]).read_text()
    assert ("posterior_entropy" in result.metrics) == has_network


def test_a_finished_run_is_not_trained_again(files: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = (train(job("soft", files, tmp_path)) for _ in range(2))
    changing = {"decoding_seconds", "likelihood_seconds"}
    same = {name: value for name, value in first.metrics.items() if name not in changing}
    assert same == {name: value for name, value in second.metrics.items() if name not in changing}
    assert first.curve == second.curve


def test_latent_alignment_learns_the_toy_language(files: tuple[Path, Path], tmp_path: Path) -> None:
    result = train(job("marginal", files, tmp_path, epochs=20))
    assert result.metrics["ppl"] < 3.0
    assert result.metrics["bleu"] > 30.0


def test_stages_share_the_epochs(files: tuple[Path, Path]) -> None:
    assert [stage.epochs for stage in engine_stages(small("relaxed-dirichlet", files, epochs=5)[0])] == [2, 3]
    with pytest.raises(ValueError, match="2 stages need at least 2 epochs"):
        engine_stages(small("relaxed-dirichlet", files, epochs=1)[0])


def test_wrong_corpora_are_named(files: tuple[Path, Path]) -> None:
    with pytest.raises(ValueError, match=r"needs both --corpus.src and --corpus.tgt"):
        load_corpus(CorpusSettings(name="files", src=files[0]))
    with pytest.raises(ValueError, match="leave too few to train on"):
        load_corpus(CorpusSettings(name="files", src=files[0], tgt=files[1], test_size=60))
    with pytest.raises(ValueError, match="give train_size a number"):
        load_corpus(CorpusSettings(name="generated", train_size=None))
