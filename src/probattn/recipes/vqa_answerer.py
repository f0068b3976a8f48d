"""A trained network that answers questions about pictures; a folder on disk."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from probattn.data.bpe import UNK, Tokenizer
from probattn.data.image_features import ImageFeatures, read_features
from probattn.data.parallel import split_words
from probattn.data.picture_questions import AnswerVocabulary, EncodedQuestions, PictureQuestion, question_words
from probattn.data.whitening import Whitening
from probattn.predict import predict
from probattn.recipes.storage import without_paths
from probattn.recipes.vqa_data import Vocabulary, VqaCorpus, blinded, encode, make_inputs
from probattn.recipes.vqa_eval import evaluate_model
from probattn.recipes.vqa_network import AnswerLogits, VqaModel, answer, build_model, is_random
from probattn.recipes.vqa_settings import VqaSettings
from probattn.training import load_weights, save_model_folder

TOKENIZER_FILE = "tokenizer.json"
ANSWERS_FILE = "answers.json"
WHITENING_FILE = "whitening.safetensors"
_BATCH = 128


@dataclass(frozen=True)
class Answer:
    """The answer to a question.

    Attributes:
        text: The most probable one.
        probability: Of it; the mean over draws where there are any.
        others: The next ones with their probabilities.
        p_value: Of the test that the best two are equally probable; small is certain. None without draws.
        weights: (R) attention over the picture.
        unknown_words: Of the question, which the network has never seen.
    """

    text: str
    probability: float
    others: tuple[tuple[str, float], ...]
    p_value: float | None
    weights: Tensor
    unknown_words: tuple[str, ...] = ()


class Answerer:
    """A network with its vocabulary and settings; `probattn.load(folder)` gives one.

    Args:
        model: The network; it is put into evaluation mode.
        vocabulary: Words, answers, width and spread of features.
        settings: Of the row it was trained with.
    """

    def __init__(self, model: VqaModel, vocabulary: Vocabulary, *, settings: VqaSettings):
        self.model = model.eval()
        self.vocabulary = vocabulary
        self.settings = settings

    def answer(
        self,
        questions: Sequence[str],
        images: Sequence[str],
        *,
        features: ImageFeatures | Path | str,
        num_best: int = 3,
        draws: int = 0,
        seed: int = 0,
    ) -> list[Answer]:
        """Answers to questions, one about each image.

        Args:
            questions: Text, words with spaces between them; capital letters do not matter.
            images: Names of pictures among the features.
            features: Of the extractor that the network was trained with, or a file of them.
            num_best: How many answers to name.
            draws: Of dropout masks and, where it is random, of attention; 0 for none, 20 are usual.
            seed: Of the draws.

        Raises:
            KeyError: Pictures that have no features.
            ValueError: Features of another width, or a question without words.
            TypeError: A string where a list is expected.
        """
        if isinstance(questions, str) or isinstance(images, str):
            raise TypeError("expected lists of questions and images, got a string; put it into a list")
        if len(questions) != len(images):
            raise ValueError(
                f"expected an image for each question, got {len(questions)} questions, {len(images)} images"
            )
        known = features if isinstance(features, ImageFeatures) else read_features(features)
        asked = [self._question(text, image) for text, image in zip(questions, images, strict=True)]
        encoded = encode(asked, known, self.vocabulary)
        found: list[Answer] = []
        for start in range(0, len(asked), _BATCH):
            places = torch.arange(start, min(start + _BATCH, len(asked)))
            probs, p_values, weights = self._predict(known, encoded, places, draws=draws, seed=seed + start)
            for row, place in enumerate(places.tolist()):
                p_value = None if p_values is None else float(p_values[row])
                found.append(self._answer(asked[place], probs[row], p_value, weights[row], num_best))
        return found

    def evaluate(self, corpus: VqaCorpus, *, split: str = "test") -> Mapping[str, float]:
        """All metrics on a split of a corpus, as after training."""
        return evaluate_model(self.model, corpus, self.settings, split=split)

    def save(self, folder: Path, plain: Mapping[str, Any]) -> Path:
        """Write config.json, model.safetensors, tokenizer.json and answers.json; all or nothing."""
        vocabulary = self.vocabulary
        content = {
            "answers": list(vocabulary.answers.answers),
            "region_dim": vocabulary.region_dim,
            "spread": vocabulary.spread,
            "digest": vocabulary.tokenizer.digest,
        }
        files = {TOKENIZER_FILE: vocabulary.tokenizer.to_bytes(), ANSWERS_FILE: json.dumps(content).encode()}
        if vocabulary.whitening is not None:
            files[WHITENING_FILE] = safetensors.torch.save(vars(vocabulary.whitening))
        config = {"recipe": "vqa", "settings": without_paths(plain)}
        return save_model_folder(self.model, folder, config=config, files=files)

    @staticmethod
    def _question(text: str, image: str) -> PictureQuestion:
        return PictureQuestion(image, question_words(text), ("unknown",))

    @torch.no_grad()
    def _predict(
        self, features: ImageFeatures, encoded: EncodedQuestions, places: Tensor, *, draws: int, seed: int
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Probabilities (B, A), p-values (B) where there are draws, weights (B, R)."""
        inputs = make_inputs(features, encoded, places, vocabulary=self.vocabulary)
        inputs = inputs if self.settings.sees_picture else blinded(inputs)
        estimator = self.settings.test_estimator
        plain = answer(self.model, inputs, estimator=estimator)
        if draws == 0:
            return plain.log_probs.exp(), None, plain.weights
        tensors = (inputs.regions, inputs.regions_mask, inputs.words, inputs.words_mask)
        wrapped = AnswerLogits(self.model, estimator)
        drawn = predict(wrapped, tensors, draws=draws, noise=is_random(self.model), dropout=True, seed=seed)
        return drawn.probabilities, drawn.p_value, plain.weights

    def _answer(
        self, asked: PictureQuestion, probs: Tensor, p_value: float | None, weights: Tensor, num_best: int
    ) -> Answer:
        best = probs.topk(min(num_best, len(probs)))
        names = [self.vocabulary.answers.answers[number] for number in best.indices.tolist()]
        ranked = list(zip(names, best.values.tolist(), strict=True))
        tokenizer = self.vocabulary.tokenizer
        unknown = [word for word in split_words(asked.question) if tokenizer.encode(word) == (UNK,)]
        return Answer(ranked[0][0], ranked[0][1], tuple(ranked[1:]), p_value, weights, tuple(unknown))


def load_answerer(settings: VqaSettings, folder: Path) -> Answerer:
    """Open the folder that `Answerer.save` wrote.

    Raises:
        ValueError: If a file is damaged.
    """
    path = folder / ANSWERS_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        answers = AnswerVocabulary(tuple(str(one) for one in content["answers"]))
        region_dim, spread, digest = int(content["region_dim"]), float(content["spread"]), str(content["digest"])
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} holds no answers of a network, or was cut off ({error!r})") from error
    tokenizer = Tokenizer.load(folder / TOKENIZER_FILE, digest=digest)
    whitening = _load_whitening(folder / WHITENING_FILE) if settings.corpus.whitens else None
    vocabulary = Vocabulary(tokenizer, answers, region_dim=region_dim, spread=spread, whitening=whitening)
    model = build_model(settings, vocabulary, starts=False)
    load_weights(model, folder)
    return Answerer(model, vocabulary, settings=settings)


def _load_whitening(path: Path) -> Whitening:
    try:
        return Whitening(**safetensors.torch.load_file(path))
    except (safetensors.SafetensorError, TypeError) as error:
        raise ValueError(f"{path} is no whitening of features, or was cut off ({error})") from error
