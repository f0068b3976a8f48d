"""Corpora of text generation: sentence and question, prompt and reply, captions that are reconstructed, or files."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from probattn.data import captions, cornell_movie, squad_questions
from probattn.data.batches import EncodedText
from probattn.data.output_vocabulary import target_types
from probattn.data.parallel import ParallelText, read_parallel
from probattn.data.subwords import Subwords
from probattn.data.truncation import truncated
from probattn.data.words import train_words
from probattn.recipes.later_settings import added
from probattn.recipes.translation_data import Corpus, lowercased

Split = Literal["train", "valid", "test"]

_SPLITS: tuple[Split, ...] = ("train", "valid", "test")


@dataclass(frozen=True)
class CorpusSettings:
    """Which text, and how it is cut."""

    name: Literal["squad", "cornell", "captions", "questions", "dialogue", "files"] = "questions"
    """squad: sentence and question; cornell: prompt and reply; captions: each to itself; all three from PROBATTN_DATA;
    questions, dialogue: generated on the spot; files: yours."""
    reconstructs: bool = False
    """Whether each source is its own target (an autoencoder), as captions always are."""
    train_size: int | None = None
    """Training pairs, the first ones; null for all of them (not for generated text)."""
    test_size: int | None = None
    """Pairs each for validation and test, the first ones; null for all of them."""
    src: Path | None = None
    """files: source side, plain or gz."""
    tgt: Path | None = None
    """files: target side; leave it out to reconstruct."""
    on_empty: Literal["error", "skip"] = added("error")
    """files: what to do with a pair of which a side is empty."""
    on_long: Literal["error", "skip"] = added("error")
    """files: what to do with a pair of which a side has more than 1,000 words."""
    max_source: int = 30
    """Words of a source; the rest is cut off (the paper: 30)."""
    max_target: int = 20
    """Words of a target; the rest is cut off in training and validation, never in the test's references."""
    vocabulary_size: int = 20_000
    """Most frequent words of both sides; others are the unknown word. The softmax runs over those of the targets."""
    min_frequency: int = 2
    """How often a word must occur in the training text to be known."""
    seed: int = 0
    """Of generated text and of the order of batches."""

    def __post_init__(self) -> None:
        # active units and mutual information compare examples
        for name, least in {"train_size": 1, "test_size": 2, "max_source": 1, "max_target": 1}.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"corpus.{name} must be at least {least}, got {value}")
        if (self.src is not None or self.tgt is not None) != (self.name == "files"):
            raise ValueError("corpus.src and corpus.tgt go with corpus.name=files, which needs at least corpus.src")


@lru_cache(maxsize=1)  # all rows of a comparison share it
def load_corpus(settings: CorpusSettings, words: Subwords | None = None) -> Corpus:
    """Read or make the text in lower case, take its words (unless a model's are given) and encode everything."""
    whole = {split: lowercased(text) for split, text in _texts(settings).items()}
    if settings.reconstructs:
        whole = {split: _reconstructed(text.source, text.name) for split, text in whole.items()}
    texts = {
        split: truncated(text, source=settings.max_source, target=10**6 if split == "test" else settings.max_target)
        for split, text in whole.items()
    }
    if words is None:
        train = texts["train"]
        tokenizer = train_words(
            [*train.source, *train.target],
            vocabulary_size=settings.vocabulary_size,
            min_frequency=settings.min_frequency,
        )
        words = Subwords(tokenizer, target_types(tokenizer, train.target))
    encoded = {split: EncodedText.from_text(text, words.tokenizer) for split, text in texts.items()}
    return Corpus(texts, encoded, words, gold=None)


def _texts(settings: CorpusSettings) -> dict[str, ParallelText]:
    sizes = {"train": settings.train_size, "valid": settings.test_size, "test": settings.test_size}
    if settings.name == "files":
        return _own_files(settings)
    if settings.name in ("questions", "dialogue"):
        if settings.train_size is None:
            raise ValueError(f"the generated corpus '{settings.name}' has no end: give corpus.train_size a number")
        return {split: _generated(settings, split, sizes[split] or 500) for split in _SPLITS}
    if settings.name == "cornell":
        limit = settings.max_target
        return {split: cornell_movie.load(split, num_pairs=sizes[split], max_words=limit) for split in _SPLITS}
    if settings.name == "squad":
        texts = {split: squad_questions.load(split) for split in _SPLITS}
    else:
        texts = {split: _reconstructed(captions.load(split), f"captions {split}") for split in _SPLITS}
    return {split: text.rows(0, min(sizes[split] or len(text), len(text))) for split, text in texts.items()}


def _generated(settings: CorpusSettings, split: Split, count: int) -> ParallelText:
    if settings.name == "questions":  # lexicons are read when they are asked for
        from probattn.data.generated_questions import GeneratedQuestions

        return GeneratedQuestions(settings.seed).pairs(split, count)
    from probattn.data.generated_dialogue import GeneratedDialogue

    return GeneratedDialogue(settings.seed).pairs(split, count)


def _own_files(settings: CorpusSettings) -> dict[str, ParallelText]:
    """Training lines, and a twentieth of the text (at most 1,000 lines) each for validation and test, from its end."""
    if settings.src is None:
        raise ValueError("corpus.name=files needs corpus.src, and corpus.tgt unless it is an autoencoder")
    text = read_parallel(
        settings.src, settings.tgt or settings.src, on_empty=settings.on_empty, on_long=settings.on_long
    )
    held_out = settings.test_size or min(1000, max(2, len(text) // 20))
    if len(text) < 2 * held_out + 1:
        raise ValueError(
            f"{settings.src} has {len(text)} lines, too few for {held_out} each for validation and test; give more "
            "text, or a smaller corpus.test_size"
        )
    ends = (len(text) - 2 * held_out, len(text) - held_out)
    train = min(settings.train_size or ends[0], ends[0])
    return {"train": text.rows(0, train), "valid": text.rows(*ends), "test": text.rows(ends[1], len(text))}


def _reconstructed(sentences: tuple[str, ...], name: str) -> ParallelText:
    return ParallelText(sentences, sentences, name)
