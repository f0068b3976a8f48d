"""Text models that train in a moment."""

from probattn.recipes.text_data import load_corpus
from probattn.recipes.text_settings import TextSettings
from probattn.recipes.text_task import TextTask
from probattn.recipes.text_vae import RECIPE

__all__ = ["TINY", "settings_of", "task_of"]

TINY = {
    "updates": 8,
    "batch_size": 16,
    "network": "{embedding_dim: 12, hidden_dim: 16, latent_dim: 4, attention_dim: 8, prior_channels: 8, prior_layers: 2}",  # noqa: E501
    "corpus.train_size": 120,
    "corpus.test_size": 16,
    "sampling": "{num_samples: 6, lengths: [4], num_importance: 10, num_weighted: 4}",
    "trainer.validate_every": 4,
}


def settings_of(row: str, **changes: object) -> TextSettings:
    """Settings of a row with tiny sizes."""
    settings, _ = RECIPE.load(RECIPE.configs(row, "generated"), {**TINY, **changes})
    assert isinstance(settings, TextSettings)
    return settings


def task_of(row: str, **changes: object) -> TextTask:
    """The same as the training engine sees it."""
    settings = settings_of(row, **changes)
    return TextTask(settings, load_corpus(settings.corpus))
