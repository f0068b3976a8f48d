"""A trained captioner: captions of pictures, its attention word by word, a folder on disk."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from probattn.core import Mean
from probattn.core.noise import fold_seed
from probattn.core.protocols import LatentDistribution
from probattn.data.bpe import BOS, Tokenizer
from probattn.data.image_features import ImageFeatures
from probattn.models.captioner import Captioner
from probattn.recipes.captioning_data import CaptionCorpus, Split
from probattn.recipes.captioning_eval import evaluate_model
from probattn.recipes.captioning_search import Caption, find_captions, sample_captions
from probattn.recipes.captioning_settings import CaptioningSettings, InputSizes, build_model
from probattn.recipes.storage import without_paths
from probattn.training import load_weights, save_model_folder
from probattn.training.randomness import EVALUATION, seeded

TOKENIZER_FILE = "tokenizer.json"
INPUTS_FILE = "inputs.json"


@dataclass(frozen=True)
class WordAttention:
    """Where a word looks.

    Attributes:
        word: The word.
        posterior: (R) weights that the caption was made with.
        posterior_spread: (R) standard deviation over draws; None where training drew nothing.
        prior: (R) plug-in weights of the prior; None where there is no prior beside the posterior.
        prior_spread: (R).
    """

    word: str
    posterior: Tensor
    posterior_spread: Tensor | None = None
    prior: Tensor | None = None
    prior_spread: Tensor | None = None


class CaptionWriter:
    """A model with its words and settings; `probattn.load(folder)` gives one.

    Args:
        model: The network; it is put into evaluation mode.
        tokenizer: Its words.
        settings: Of the row it was trained with.
        held_out: Names of test pictures, which it was not trained on.
    """

    def __init__(
        self,
        model: Captioner,
        tokenizer: Tokenizer,
        *,
        settings: CaptioningSettings,
        held_out: Collection[str] = (),
    ):
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.settings = settings
        self.held_out = frozenset(held_out)

    @property
    def is_random(self) -> bool:
        """Whether weights were drawn in training."""
        return not isinstance(self.settings.estimator, Mean)

    def caption(
        self,
        features: ImageFeatures,
        names: Sequence[str] | None = None,
        *,
        beam_size: int | None = None,
        show_progress: bool = False,
    ) -> list[list[Caption]]:
        """Captions of pictures, best first.

        Args:
            features: As the training features were made.
            names: Of pictures; all of them by default.
            beam_size: That of the settings by default; 1 is greedy.
            show_progress: Whether to show a progress bar.

        Raises:
            KeyError: Pictures that have no features.
            ValueError: Features of another width.
        """
        features.require_dim(self.model.regions.feature_dim)
        return find_captions(
            self.model,
            features,
            features.rows(features.names if names is None else names),
            tokenizer=self.tokenizer,
            decoding=self.settings.decoding,
            beam_size=self.settings.decoding.beam_size if beam_size is None else beam_size,
            show_progress=show_progress,
        )

    def sample(self, features: ImageFeatures, names: Sequence[str], *, seed: int = 0) -> list[list[Caption]]:
        """Sampled captions of pictures, words and weights drawn, `decoding.num_samples` each."""
        features.require_dim(self.model.regions.feature_dim)
        with seeded(EVALUATION, seed):
            return sample_captions(
                self.model,
                features,
                features.rows(names),
                tokenizer=self.tokenizer,
                decoding=self.settings.decoding,
                estimator=self.settings.estimator,
                seed=seed,
            )

    @torch.no_grad()
    def attention(
        self, features: ImageFeatures, name: str, caption: str, *, num_draws: int = 50, seed: int = 0
    ) -> list[WordAttention]:
        """Prior and posterior weights behind every word of a caption (BAM, Figure 1).

        Args:
            features: As the training features were made.
            name: Of the picture.
            caption: Words with spaces between them.
            num_draws: Over which the spread is taken.
            seed: Of the draws.

        Raises:
            ValueError: A caption without words, or features of another width.
        """
        features.require_dim(self.model.regions.feature_dim)
        ids = self.tokenizer.encode(caption)
        if not ids:
            raise ValueError(f"expected a caption of '{name}' with words, got {caption!r}")
        words = [self.tokenizer.decode([number]) for number in ids]
        values, mask = features.batch(features.rows([name]))
        steps = self.model.trace(values, mask, torch.tensor([[BOS, *ids[:-1]]]))
        found = []
        for number, (word, step) in enumerate(zip(words, steps, strict=True)):
            own = fold_seed(torch.tensor(seed), number)
            mean, spread = _mean_and_spread(cast(LatentDistribution, step.posterior), num_draws, own)
            has_prior = step.prior is not None and step.prior is not step.posterior
            prior: tuple[Tensor | None, Tensor | None] = (None, None)
            if has_prior:
                prior = _mean_and_spread(cast(LatentDistribution, step.prior), num_draws, own)
            found.append(WordAttention(word, mean, spread if self.is_random else None, *prior))
        return found

    def evaluate(self, corpus: CaptionCorpus, *, split: Split = "test") -> dict[str, float]:
        """All metrics on a split, as after training."""
        return evaluate_model(self.model, corpus, self.settings, split=split)

    def save(self, folder: Path, plain: Mapping[str, Any], *, inputs: InputSizes) -> Path:
        """Write config.json, model.safetensors, tokenizer.json and inputs.json; all or nothing.

        Args:
            folder: One of that name is replaced.
            plain: The settings as plain data.
            inputs: What the network reads.
        """
        kept = {**asdict(inputs), "tokenizer_digest": self.tokenizer.digest, "held_out": sorted(self.held_out)}
        files = {TOKENIZER_FILE: self.tokenizer.to_bytes(), INPUTS_FILE: json.dumps(kept).encode()}
        config = {"recipe": "captioning", "settings": without_paths(plain)}
        return save_model_folder(self.model, folder, config=config, files=files)


def load_writer(settings: CaptioningSettings, folder: Path) -> CaptionWriter:
    """Open the folder that `CaptionWriter.save` wrote."""
    path = folder / INPUTS_FILE
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        digest, held_out = str(kept.pop("tokenizer_digest")), kept.pop("held_out", [])
        inputs = InputSizes(**kept)
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} does not say what the network reads, or was cut off ({error!r})") from error
    model = build_model(settings, inputs)
    load_weights(model, folder)
    tokenizer = Tokenizer.load(folder / TOKENIZER_FILE, digest=digest)
    return CaptionWriter(model, tokenizer, settings=settings, held_out=held_out)


def _mean_and_spread(distribution: LatentDistribution, num_draws: int, seed: Tensor) -> tuple[Tensor, Tensor]:
    """(R) plug-in weights, and their standard deviation over draws."""
    mean = distribution.plug_in.flatten()
    if not distribution.has_rsample:  # a choice of one region: the spread of its one-hot draws
        return mean, (mean * (1.0 - mean)).clamp(min=0.0).sqrt()
    drawn = distribution.realise(distribution.draw_raw(num_draws, seed))
    return mean, drawn.flatten(1).std(dim=0).expand_as(mean)
