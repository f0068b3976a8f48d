"""Evaluation of generating models: what is measured on which pairs, and settings that it cannot work with."""

from pathlib import Path

import pytest
import torch

from probattn.metrics import latent_mutual_information
from probattn.recipes import generation_eval, question_generation
from probattn.recipes.generation_data import CorpusSettings, load_corpus
from probattn.recipes.generation_settings import GenerationSettings, SamplingSettings, build_model

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
