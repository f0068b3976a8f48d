"""Trained text models handed sentences: lists, empty ones, unknown words, seeds, other texts."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from probattn import cli
from probattn.core import fold_seed
from probattn.core.noise import normal
from probattn.data.bpe import BOS, EOS, PAD, UNK
from probattn.models import ReadText
from probattn.models.text_vae_stepper import MemoryVaeStepper, SentenceVaeStepper
from probattn.recipes.text_drawing import LENGTHS, WORDS, Law, drawn_latents
from probattn.recipes.text_eval import evaluate_model
from probattn.recipes.text_vae import RECIPE
from probattn.recipes.text_writer import TextWriter
from tests.recipes.tiny_text import TINY, task_of

pytestmark = pytest.mark.filterwarnings("ignore::probattn.training.CollapseWarning")


def writer_of(row: str, **settings: Any) -> TextWriter:
    task = task_of(row, **settings)
    return TextWriter(
        task.model.eval(), task.corpus.tokenizer, settings=task.settings, lengths=task.corpus.length_counts
    )


@pytest.mark.parametrize("row", ["vae", "gavam"])
def test_sentences_are_written_again_alike_alone_and_together(row: str) -> None:
    writer = writer_of(row)
    sentences = ["the man sleeps .", "a dog .", "two girls saw a red car .", "The Man sleeps .", "a cat ."]
    together = writer.reconstruct(sentences)
    assert together == [writer.reconstruct([one])[0] for one in sentences]
    assert together[0] == together[3]  # lower-cased as the training text


def test_what_is_no_list_of_sentences_is_refused() -> None:
    writer = writer_of("vae")
    with pytest.raises(TypeError, match="got the one string 'dog'; put it into a list"):
        writer.reconstruct("dog")
    with pytest.raises(TypeError, match="got 3 as number 1"):
        writer.reconstruct(["a dog .", 3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="sentence 1 is empty"):
        writer.reconstruct(["a dog .", " "])
    with pytest.raises(ValueError, match="sentence 1 is empty"):
        writer.interpolate("a dog .", "")


@pytest.mark.parametrize(
    "given",
    [{"count": 2.5}, {"count": 0}, {"length": 1.5}, {"seed": 1.5}, {"seed": None}, {"seed": 2**70}, {"min_words": 0}],
)
def test_numbers_that_are_not_whole_are_refused(given: dict[str, Any]) -> None:
    writer = writer_of("lstm-lm")
    with pytest.raises(ValueError, match=f"{next(iter(given))} must be a whole number"):
        writer.sample(**{"count": 1, **given})
    assert len(writer.sample(np.int64(2), seed=-1)) == 2


@pytest.mark.parametrize("row", ["lstm-lm", "vae", "gavam", "davam-128", "davam-short"])
@pytest.mark.parametrize("word_temperature", [None, 1.0])
def test_texts_can_have_exactly_so_many_words(row: str, word_temperature: float | None) -> None:
    writer = writer_of(row)
    if row == "lstm-lm" and word_temperature is not None:
        word_temperature = 0.5
    drawn = writer.sample(20, length=7, min_words=7, word_temperature=word_temperature)
    assert [len(one.text.split()) for one in drawn] == [7] * 20
    least = writer.sample(20, length=9, min_words=3, word_temperature=word_temperature)
    assert all(len(one.text.split()) >= 3 for one in least)


def test_more_words_than_there_may_be_are_refused() -> None:
    with pytest.raises(ValueError, match="min_words = 5 is more than a length of 4; give a length of at least 5"):
        writer_of("vae").sample(1, length=4, min_words=5)
    with pytest.raises(ValueError, match="min_words = 500 is more than the .* of training"):
        writer_of("vae").sample(1, min_words=500)


@pytest.mark.parametrize("row", ["lstm-lm", "vae", "gavam"])
def test_probed_perplexity_is_of_the_sentences_with_importance_weights(row: str) -> None:
    found = {}
    for few in (4, 16):  # 16: the whole test split
        sampling = f"{{num_samples: 2, lengths: [4], num_importance: 2, num_weighted: {few}}}"
        task = task_of(row, sampling=sampling)
        writer = TextWriter(
            task.model, task.corpus.tokenizer, settings=task.settings, lengths=task.corpus.length_counts
        )
        found[few] = evaluate_model(writer, task.corpus)
    assert found[16]["probed_ppl"] == pytest.approx(found[16]["counted_ppl"], rel=1e-2)  # another draw of the latent
    assert found[4]["probed_ppl"] != pytest.approx(found[4]["counted_ppl"], rel=1e-4)
    if row == "lstm-lm":
        assert found[16]["probed_ppl"] == pytest.approx(found[16]["elbo_ppl"], rel=1e-6)


def test_samples_of_two_seeds_have_nothing_in_common() -> None:
    writer = writer_of("lstm-lm")
    many = [one.text for one in writer.sample(400, seed=0)]
    assert many[200:] != [one.text for one in writer.sample(200, seed=200)]
    assert many[:200] == [one.text for one in writer.sample(200, seed=0)]
    assert many == [one.text for block in writer.samples(400, seed=0) for one in block]


def test_lengths_have_noise_of_their_own() -> None:
    """Position i of an autoregressive prior has the tag i."""
    seed = torch.tensor(3)
    own = normal(fold_seed(seed, LENGTHS), (6,))
    assert not any(torch.equal(own, normal(fold_seed(seed, tag), (6,))) for tag in range(100))


def first_words(writer: TextWriter, read: ReadText) -> torch.Tensor:
    """(V) probabilities of a sentence's first word."""
    stepper: Any = MemoryVaeStepper if writer.settings.latent.scope == "memory" else SentenceVaeStepper  # type: ignore[union-attr]
    made = stepper(writer.model)
    log_probs, _ = made.step(made.start(read, {}), torch.full((len(read.mask),), BOS))
    log_probs[:, [PAD, BOS, EOS, UNK]] = -torch.inf
    return log_probs[0].softmax(dim=-1)


@pytest.mark.parametrize("row", ["vae", "davam-128"])
def test_words_are_drawn_as_the_model_has_them(row: str) -> None:
    writer, count = writer_of(row), 4000
    with torch.no_grad():
        writer.model.readout.weight.mul_(25.0)  # else all words are nearly as probable, whatever the temperature
    law = Law(temperature=0.0, word_temperature=1.0)  # the same latents in every sentence
    with torch.no_grad():
        read = drawn_latents(writer.model, writer.settings, torch.tensor([3]), law=law, seed=torch.tensor(0))
        expected = first_words(writer, read)
    names = {writer.tokenizer.decode([number]): number for number in range(len(expected))}

    def distance(word_temperature: float) -> float:
        """Standard deviations by which Pearson's chi-square of the first words is too large."""
        drawn = writer.sample(count, length=3, temperature=0.0, word_temperature=word_temperature)
        first = [one.text.split()[0] for one in drawn]
        found = torch.bincount(torch.tensor([names[word] for word in first]), minlength=len(expected))
        usual = count * expected >= 5.0
        wanted = count * expected[usual]
        assert len(wanted) > 5
        excess = ((found[usual] - wanted).square() / wanted).sum() - len(wanted)
        return float(excess / (2 * len(wanted)) ** 0.5)

    assert abs(distance(1.0)) < 4.0 < 10.0 < distance(2.0)
    assert len({one.text for one in writer.sample(50, length=3, temperature=0.0)}) == 1  # the most probable words


@pytest.mark.parametrize("row", ["lstm-lm", "vae", "davam-128"])
def test_every_sentence_has_a_word(row: str) -> None:
    """As every training sentence, even where the end is the most probable beginning."""
    writer = writer_of(row)
    with torch.no_grad():
        writer.model.readout.bias[EOS] = 50.0
    for words in (0.0, 1.0):
        drawn = writer.sample(30, word_temperature=words) + writer.sample(3, length=1, word_temperature=words)
        assert {len(one.text.split()) for one in drawn} == {1}
    if row != "lstm-lm":
        assert len(writer.reconstruct(["the man sleeps ."])[0].split()) == 1


def test_the_unknown_word_is_written_on_request_only() -> None:
    writer = writer_of("vae")
    with torch.no_grad():
        writer.model.readout.bias[UNK] = 50.0
    for asked in (False, True):
        (drawn,) = writer.samples(4, Law(word_temperature=1.0, has_unknown=asked), length=3)
        found = [writer.tokenizer.encode(one.text).count(UNK) for one in drawn]  # encoded again it is the same
        assert (min(found) == max(found) == 3) if asked else found == [0] * 4


def test_chance_in_the_words_can_be_switched_on_and_off() -> None:
    likely, drawn = (writer_of("vae").sample(30, length=6, word_temperature=words) for words in (0.0, 1.0))
    assert likely == writer_of("vae").sample(30, length=6)
    assert len({one.text for one in drawn}) > len({one.text for one in likely})
    model = writer_of("lstm-lm")
    assert model.sample(5, word_temperature=0.7) == model.sample(5, temperature=0.7) != model.sample(5)
    with pytest.raises(ValueError, match="give temperature or word_temperature, got 0.5 and 0.7"):
        model.sample(1, temperature=0.5, word_temperature=0.7)
    with pytest.raises(ValueError, match=r"wanted a finite word_temperature >= 0, got -1\.0"):
        model.sample(1, word_temperature=-1.0)
    assert len(writer_of("gavam").sample(2, top_p=0.5, word_temperature=1.0)) == 2  # of the words


def test_words_have_noise_of_their_own() -> None:
    """A block's latents use its seed, or that seed with the tag of a position."""
    writer, seen = writer_of("davam-128"), []
    from probattn.recipes import text_writer

    original = text_writer.sample

    def spy(*arguments: Any, seed: int, **more: Any) -> Any:
        seen.append(seed)
        return original(*arguments, seed=seed, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_writer, "sample", spy)
        writer.sample(201, length=2, word_temperature=1.0, seed=5)
    blocks = [fold_seed(torch.tensor(5), start) for start in (0, 200)]
    assert seen == [int(fold_seed(own, WORDS)) for own in blocks]
    assert not set(seen) & {int(fold_seed(own, tag)) for own in blocks for tag in range(300)}
    assert LENGTHS != WORDS


def test_unknown_words_are_counted() -> None:
    assert writer_of("vae").count_unknown(["the xyzzy .", "qwerty"]) == (2, 4)


def test_eval_of_a_text_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, text = tmp_path / "model", tmp_path / "other.txt"
    _, plain = RECIPE.load(RECIPE.configs("vae", "generated"), TINY)
    writer_of("vae").save(folder, plain)
    text.write_text("The man sleeps .\na dog .\n" + "word " * 3000 + "\n")
    found, said = {}, {}
    for name, more in (("own", []), ("other", ["--text", str(text)])):
        cli.main(["eval", str(folder), *more])
        printed = capsys.readouterr()
        found[name], said[name] = json.loads(printed.out), printed.err
    assert re.search(r"of \d+ words of .*other\.txt are unknown to the model, so its perplexities say", said["other"])
    assert "unknown" not in said["own"]
    assert found["other"]["text"] == str(text)
    assert found["own"]["results"]["own"]["elbo_ppl"] != found["other"]["results"]["own"]["elbo_ppl"]
    for wrong, message in (
        (["--src", "a", "--tgt", "b"], "--src is for other models, .* holds a TextWriter"),
        (["--text", str(text), "--split", "valid"], "--split is of the text it was trained for"),
    ):
        with pytest.raises(SystemExit, match=message):
            cli.main(["eval", str(folder), *wrong])
