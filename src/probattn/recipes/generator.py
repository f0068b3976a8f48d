"""A trained generating model: text from sources, by mean or by draws; a folder on disk."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from probattn.core import Estimator, Mean
from probattn.data.bpe import UNK
from probattn.data.parallel import split_words
from probattn.data.subwords import Subwords
from probattn.models import Ved
from probattn.recipes.generation_eval import evaluate_model
from probattn.recipes.generation_search import Generated, generate
from probattn.recipes.generation_settings import GenerationSettings, build_model
from probattn.recipes.storage import without_paths
from probattn.recipes.translation_data import Corpus
from probattn.training import load_weights, save_model_folder
from probattn.training.randomness import EVALUATION, seeded


class Generator:
    """A model with its words and settings; `probattn.load(folder)` gives one.

    Text is lower-cased and split at spaces: hand it over tokenised as the training text was.

    Args:
        model: The network; it is put into evaluation mode.
        words: Its vocabulary.
        settings: Of the row it was trained with.
    """

    def __init__(self, model: Ved, words: Subwords, *, settings: GenerationSettings):
        self.model = model.eval()
        self.words = words
        self.settings = settings

    @property
    def sites(self) -> tuple[str, ...]:
        """What can be drawn: "code", "attention", both or nothing."""
        return self.settings.stochastic_sites

    def generate(
        self,
        sources: Sequence[str],
        *,
        num_samples: int = 1,
        draw: Collection[str] | None = None,
        beam_size: int | None = None,
        seed: int = 0,
        show_progress: bool = False,
    ) -> list[list[Generated]]:
        """Texts for each source; none for an empty one.

        Args:
            sources: Text, one string a source.
            num_samples: Texts of a source, each from draws of its own.
            draw: Which sites are drawn ("code", "attention"); the others are at their mean. None: all that the model
                has. Empty: the paper's MAP inference, where all texts of a source are the same.
            beam_size: Of the search given a draw; that of the settings by default, 1 is greedy.
            seed: Of the draws; the same seed and sources give the same texts.
            show_progress: Whether to show a progress bar.

        Raises:
            ValueError: If the model has no such site.
        """
        if isinstance(sources, str):
            raise TypeError(f"expected a list of sources, got the one string {sources!r}; put it into a list")
        ids = [self._ids(source) for source in sources]
        with seeded(EVALUATION, seed):
            return generate(
                self.model,
                self.words,
                ids,
                estimators=self._estimators(draw),
                num_samples=num_samples,
                beam_size=self.settings.sampling.beam_size if beam_size is None else beam_size,
                max_length=self.settings.sampling.max_length,
                show_progress=show_progress,
            )

    def count_unknown(self, sources: Sequence[str]) -> tuple[int, int]:
        """Words of the sources that the model does not know, and all their words, as far as they are read."""
        ids = [number for source in sources for number in self._ids(source)]
        return sum(number == UNK for number in ids), len(ids)

    def evaluate(self, corpus: Corpus, *, split: str = "test") -> dict[str, float]:
        """All metrics on a split of a corpus, as after training."""
        return evaluate_model(self.model, corpus, self.settings, split=split)

    def save(self, folder: Path, plain: Mapping[str, Any], *, recipe: str, text: str | None = None) -> Path:
        """Write config.json, model.safetensors, tokenizer.json and outputs.json; all or nothing.

        Args:
            folder: One of that name is replaced.
            plain: The settings as plain data.
            recipe: Name of the recipe that opens it again.
            text: Digest of the text it was trained on.
        """
        config = {"recipe": recipe, "settings": without_paths(plain), "text": text}
        return save_model_folder(self.model, folder, config=config, files=self.words.files())

    def _ids(self, source: str) -> tuple[int, ...]:
        words = split_words(source.lower())[: self.settings.corpus.max_source]
        return self.words.tokenizer.encode(" ".join(words))

    def _estimators(self, draw: Collection[str] | None) -> dict[str, Estimator]:
        chosen = self.sites if draw is None else tuple(draw)
        unknown = [name for name in chosen if name not in self.sites]
        if unknown:
            have = ", ".join(self.sites) if self.sites else "nothing: it is deterministic"
            raise ValueError(f"this model cannot draw '{unknown[0]}'; row '{self.settings.row}' draws {have}")
        return {name: self.settings.estimators[name] if name in chosen else Mean() for name in self.model.sites}


def load_generator(settings: GenerationSettings, folder: Path) -> Generator:
    """Open the folder that `Generator.save` wrote."""
    words = Subwords.from_folder(folder)
    model = build_model(settings, words, starts=False)
    load_weights(model, folder)
    return Generator(model, words, settings=settings)
