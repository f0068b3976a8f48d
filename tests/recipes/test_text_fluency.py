"""Fluency of trained text models by another language model, on generated sentences."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import probattn
from probattn.cli import main
from probattn.data.bpe import BOS, EOS, UNK
from probattn.metrics.fluency import TextScore, fluency
from probattn.recipes.recipe import Run
from probattn.recipes.text_data import load_corpus
from probattn.recipes.text_eval import tally
from probattn.recipes.text_fluency import Sampling, _held_out, fluency_table, measure, store
from probattn.recipes.text_scorer import LanguageModelScorer, open_scorer
from probattn.recipes.text_vae import RECIPE

TINY = {
    "updates": 6,
    "batch_size": 16,
    "network": "{embedding_dim: 12, hidden_dim: 16, latent_dim: 4, attention_dim: 8, prior_channels: 8, prior_layers: 2}",  # noqa: E501
    "corpus.train_size": 120,
    "corpus.test_size": 40,
    "sampling": "{num_samples: 3, lengths: [4]}",
    "trainer.validate_every": 6,
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("comparison") / "runs"
    for row, seed in (("davam-128", 0), ("lstm-lm", 0)):
        overrides = {**TINY, "seed": seed} | ({"latent.num_codes": 16} if row == "davam-128" else {})
        settings, plain = RECIPE.load(RECIPE.configs(row, "generated"), overrides)
        RECIPE.train(Run(settings, plain, folder / f"{row}-seed{seed}", show_progress=False))
    return folder


def test_the_language_model_scores_words_and_no_ends(runs: Path) -> None:
    scorer = open_scorer(str(runs / "lstm-lm-seed0"))
    assert isinstance(scorer, LanguageModelScorer) and scorer.name == "lstm-lm-generated-seed0"
    writer = probattn.load(runs / "lstm-lm-seed0")
    corpus = load_corpus(writer.settings.corpus, writer.tokenizer)
    texts = list(corpus.texts["test"])
    scores = scorer.score(texts)
    known = [sum(number != UNK for number in writer.tokenizer.encode(text)) for text in texts]
    assert [one.tokens for one in scores] == known and sum(known) < sum(len(text.split()) for text in texts)
    # the chain rule: a text costs what its beginning costs, and its last word, given that a word comes, and a known one
    longer, shorter = scorer.score(["the man sleeps .", "the man sleeps"])
    state = writer.model.start(writer.model.encode(torch.zeros(1, 1).long(), torch.ones(1, 1).bool(), {}))
    for word in (BOS, *writer.tokenizer.encode("the man sleeps")):
        state, log_probs = writer.model.advance(state, torch.tensor([word]))
    (stop,) = writer.tokenizer.encode(".")
    expected = log_probs[0, stop] - torch.log1p(-log_probs[0, [EOS, UNK]].exp().sum())
    assert longer.log_prob - shorter.log_prob == pytest.approx(expected.item(), rel=1e-4)
    found = tally(writer.model, corpus.encoded["test"])  # ends included
    assert sum(one.log_prob for one in scores) > found.log_lik
    assert sum(one.tokens for one in scores) == found.tokens - len(texts) - writer.count_unknown(texts)[0]
    assert scorer.score([texts[3]])[0].log_prob == pytest.approx(scores[3].log_prob, rel=1e-4)


def test_a_scorer_that_hardly_knows_the_words_is_warned_of(runs: Path) -> None:
    scorer = open_scorer(str(runs / "lstm-lm-seed0"))
    with pytest.warns(UserWarning, match="3 of 4 words of the texts are unknown to the scorer .*, so its perplexities"):
        (one,) = scorer.score(["the xyzzy xyzzy xyzzy"])
    assert one == scorer.score(["the"])[0]  # generators cannot write such words, so nobody's are scored
    with pytest.warns(UserWarning, match="unknown"), pytest.raises(ValueError, match="knows no word of 2 texts"):
        fluency(["xyzzy", "xyzzy xyzzy"], scorer)
    with pytest.warns(UserWarning, match="unknown"):
        assert fluency(["xyzzy", "the"], scorer).empty == 0.5


def test_held_out_text_is_from_all_over_the_split(runs: Path) -> None:
    writer = probattn.load(runs / "lstm-lm-seed0")
    texts = [one for one in load_corpus(writer.settings.corpus, writer.tokenizer).texts["test"] if len(one.split()) > 4]
    wanted = [" ".join(texts[number * len(texts) // 4].split()[:5]) for number in range(4)]
    assert _held_out(writer, 5, 4) == wanted != [" ".join(one.split()[:5]) for one in texts[:4]]
    assert _held_out(writer, 1000, 4) == []


def test_a_language_model_has_no_codes_to_cool(runs: Path) -> None:
    scorer = Constant()
    one = measure(runs / "lstm-lm-seed0", scorer, Sampling((5,), 4, temperature=0.5))
    assert one["lengths"] == measure(runs / "lstm-lm-seed0", scorer, Sampling((5,), 4))["lengths"]
    assert one["sampling"]["temperature"] == 1.0
    cooler = measure(runs / "lstm-lm-seed0", scorer, Sampling((5,), 4, word_temperature=0.2))
    assert cooler["examples"] != one["examples"] and cooler["draws_words"]


class Constant:
    """A scorer that finds all words alike."""

    name = "constant"

    def score(self, texts: Sequence[str]) -> list[TextScore]:
        return [TextScore(-1.0 * len(text.split()), len(text.split())) for text in texts]


def test_command_writes_beside_the_results_and_prints_a_table(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--scorer", str(runs / "lstm-lm-seed0"), "--lengths", "5", "8", "--num_samples", "6"]
    main(["fluency", str(runs / "davam-128-seed0"), *words])
    printed = capsys.readouterr().out
    assert "Scorer: lstm-lm-generated-seed0" in printed and "held-out text" in printed
    (path,) = (runs.parent / "fluency").glob("*.json")
    assert path.name == "davam-128-seed0-lstm-lm-generated-seed0-lengths5_8-num_samples6.json"
    record = json.loads(path.read_text())
    assert list(record["lengths"]) == ["5", "8"] and record["sampling"]["num_samples"] == 6
    assert record["lengths"]["5"]["fluency_ppl"] > 1.0 and len(record["examples"]["5"]) == 5
    assert all(len(text.split()) == 8 for text in record["examples"]["8"])  # as the held-out ones have
    again = measure(runs / "davam-128-seed0", open_scorer(words[1]), Sampling(lengths=(5, 8), num_samples=6))
    assert again["lengths"] == record["lengths"] and record["draws_words"]
    greedy = measure(runs / "davam-128-seed0", open_scorer(words[1]), Sampling((5,), 6, word_temperature=0.0))
    assert not greedy["draws_words"] and greedy["lengths"]["5"] != record["lengths"]["5"]
    assert [line[1] for line in fluency_table([record, greedy])[1][:3]] == ["drawn", "drawn", "most probable"]


def test_table_has_the_papers_numbers_in_brackets(tmp_path: Path) -> None:
    values = {"fluency_ppl": 50.0, "nats": 3.9, "nats_spread": 0.5, "entropy": 5.0, "dist1": 0.3, "dist2": 0.8}
    values |= {"repetition": 0.1, "empty": 0.0}
    record = {
        "row": "davam-512",
        "seed": 0,
        "scorer": "x y",
        "corpus": "yahoo",
        "sampling": {"temperature": 1.0, "top_p": 1.0, "num_samples": 100},
        "draws_words": True,
        "lengths": {"10": values},
        "held_out": {"10": {**values, "texts": 100}},
    }
    _, rows = fluency_table([record])
    assert rows[0][:8] == [
        "davam-512",
        "drawn",
        "10",
        "50.0",
        "3.90 ± 0.50 (6.58 ± 1.17)",
        "5.00 (5)",
        "0.300 (0.366)",
        "0.800 (0.844)",
    ]
    assert rows[1][:6] == ["held-out text", "-", "10", "50.0", "3.90 ± 0.50", "5.00"]
    few = {**record, "held_out": {"10": {**values, "texts": 29}}}  # diversity depends on the number of texts
    assert fluency_table([few])[1][1][3:] == ["50.0", "3.90 ± 0.50", "-", "-", "-", "0.100"]
    assert fluency_table([{**record, "corpus": "generated"}])[1][0][4] == "3.90 ± 0.50"
    assert fluency_table([{**record, "draws_words": False}])[1][0][4] == "3.90 ± 0.50"  # the paper's look drawn
    assert store(record, tmp_path).name == "davam-512-seed0-x_y.json"
    cooler = {**record, "sampling": {**record["sampling"], "temperature": 0.5}}  # type: ignore[dict-item]
    assert store(cooler, tmp_path).name == "davam-512-seed0-x_y-temperature0.5.json"  # does not replace the other
    assert fluency_table([cooler])[1][0][:5] == ["davam-512, temperature 0.5", "drawn", "10", "50.0", "3.90 ± 0.50"]
    greedy = {**record, "draws_words": False, "sampling": {**record["sampling"], "word_temperature": 0.0}}  # type: ignore[dict-item]
    assert fluency_table([greedy])[1][0][:2] == ["davam-512", "most probable"]
    for changes, kind in (({"seed": 3}, "-draws3"), ({"word_temperature": None}, "-own_words")):
        other = {**record, "sampling": {**record["sampling"], **changes}}  # type: ignore[dict-item]
        assert store(other, tmp_path).name == f"davam-512-seed0-x_y{kind}.json"


def test_a_file_in_the_place_of_the_folder_is_refused_before_the_work(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(SystemExit, match="nothing can be written into"):
        main(["fluency", str(runs / "nothing"), "--scorer", "nothing", "--output", str(tmp_path / "taken")])


def test_wrong_scorers_are_refused(runs: Path) -> None:
    with pytest.raises(ValueError, match="has a latent"):
        open_scorer(str(runs / "davam-128-seed0"))
    with pytest.raises(ValueError, match="would judge its own texts"):
        measure(runs / "lstm-lm-seed0", open_scorer(str(runs / "lstm-lm-seed0")), Sampling(lengths=(5,), num_samples=2))
    with pytest.raises(ValueError, match="at least 1"):
        Sampling(lengths=(0,))
