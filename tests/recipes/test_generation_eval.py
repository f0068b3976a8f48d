"""Evaluation of generating models: what is measured on which pairs, and settings that it cannot work with."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from probattn.core import Dense
from probattn.metrics import latent_mutual_information
from probattn.recipes import generation_eval, question_generation
from probattn.recipes.generation import GenerationTask
from probattn.recipes.generation_data import CorpusSettings, load_corpus
from probattn.recipes.generation_run import at_mean
from probattn.recipes.generation_settings import GenerationSettings, SamplingSettings, build_model
from probattn.recipes.generation_units import attention_offsets, count_active_units
from probattn.training import CollapseWarning

SMALL = {
    "network": "{embedding_dim: 8, encoder_dim: 8, decoder_dim: 8, code_dim: 4}",
    "corpus.train_size": 40,
    "corpus.test_size": 20,
}


def test_information_is_that_of_the_first_distinct_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = question_generation.RECIPE
    settings, _ = recipe.load(recipe.configs("ved", "generated"), SMALL)
    assert isinstance(settings, GenerationSettings)
    corpus = load_corpus(settings.corpus)
    model = build_model(settings, corpus.subwords).eval()
    with torch.no_grad():
        for parameter in model.code.parameters():  # type: ignore[union-attr]
            parameter.mul_(20.0)  # codes that differ
    monkeypatch.setattr(generation_eval, "NUM_PROBED", 6)
    found = generation_eval.latent_metrics(model, corpus, settings, split="test")["code_information"]
    sources = corpus.encoded["test"].source
    assert len(set(sources[:6])) < 6  # several targets of one source
    first = sorted(
        list(dict.fromkeys(sources))[:6], key=len
    )  # as the batches have them; the shortest of all are others
    assert [len(ids) for ids in first] != sorted(len(ids) for ids in sources)[:6]
    moments = []
    for ids in first:
        source = torch.tensor([ids])
        with torch.no_grad():
            posterior = model.code_posterior(source, torch.ones_like(source, dtype=torch.bool))
        moments.append((posterior.mean[0], posterior.log_variance[0]))  # type: ignore[attr-defined]
    mean, log_variance = (torch.stack(parts) for parts in zip(*moments, strict=True))
    assert found == pytest.approx(latent_mutual_information(mean, log_variance), rel=1e-3)


def test_what_would_fail_after_an_epoch_is_refused_before(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="num_samples must be at least 2, got 1; diversity"):
        SamplingSettings(num_samples=1)
    with pytest.raises(ValueError, match="validation_sources must be at least 1"):
        SamplingSettings(validation_sources=0)
    with pytest.raises(ValueError, match=r"corpus.test_size must be at least 2"):
        CorpusSettings(test_size=1)
    (tmp_path / "few.txt").write_text("".join(f"a b {number}\n" for number in range(21)))
    few = load_corpus(CorpusSettings(name="files", src=tmp_path / "few.txt", min_frequency=1))
    assert [len(few.texts[split]) for split in ("train", "valid", "test")] == [17, 2, 2]


def task_of(row: str) -> GenerationTask:
    recipe = question_generation.RECIPE
    settings, _ = recipe.load(recipe.configs(row, "generated"), SMALL)
    assert isinstance(settings, GenerationSettings)
    task = GenerationTask(settings, load_corpus(settings.corpus))
    task.model.eval()  # as the engine does
    return task


@pytest.mark.parametrize("row", ["ved-vattn-0", "ved-vattn-h"])
def test_the_attention_vector_moves_away_from_its_prior(row: str) -> None:
    """Against the prior by hand: zeros, or the mean of the source's states without padding."""
    task = task_of(row)
    text = task.corpus.encoded["test"]
    found = attention_offsets(task.model, text, task.corpus.subwords)
    batch = task.corpus.subwords.to_output(text.batch(sorted(range(len(text)), key=lambda r: len(text.source[r]))))
    source = task.model.encode(batch.source, batch.source_mask, at_mean(task.model))
    assert isinstance(source.memory.support, Dense)
    contexts = []
    state = task.model.start(source)
    for word in task.model.target_embedding(batch.target_in).unbind(dim=1):
        state, _, _ = task.model.advance(
            state, word, source, estimators=at_mean(task.model), seed=torch.tensor(0, dtype=torch.int64)
        )
        contexts.append(state.context)
    is_real = batch.source_mask.unsqueeze(-1)
    centre = (source.memory.values * is_real).sum(dim=1) / is_real.sum(dim=1)
    expected = torch.stack(contexts, dim=1) - (centre.unsqueeze(1) if row == "ved-vattn-h" else 0.0)
    torch.testing.assert_close(found, expected[batch.target_mask], rtol=1e-4, atol=1e-6)


def test_attention_that_falls_onto_its_prior_is_warned_of() -> None:
    """Uniform weights: the vector is the prior's mean at every step, though its KL, of its variance, is not zero."""
    task = task_of("ved-vattn-h")
    assert task.model.attention is not None
    sources = task.corpus.encoded["valid"], task.corpus.subwords
    with torch.no_grad():
        for parameter in task.model.encoder.parameters():
            parameter.mul_(20.0)  # states that differ
        for parameter in task.model.attention.score.parameters():
            nn.init.normal_(parameter, std=20.0)
        before = torch.get_rng_state()
        assert count_active_units(task.model, *sources, sites=("code", "attention"))["attention"] > 0
        assert torch.equal(before, torch.get_rng_state())
        for parameter in task.model.attention.score.parameters():
            parameter.zero_()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        metrics = task.validate()
    found = [str(one.message) for one in caught if one.category is CollapseWarning]
    assert any("site 'attention' has collapsed: none of its latent units is active" in text for text in found)
    assert metrics["active_attention"] == 0.0 and metrics["kl_attention"] > 0.01


def test_weights_have_no_units_to_count() -> None:
    task = task_of("ved-dirichlet")
    found = count_active_units(task.model, task.corpus.encoded["valid"], task.corpus.subwords, sites=["attention"])
    assert found == {}
