"""Joint byte-pair encoding of parallel text (Sennrich et al., 2016), with the map between words and pieces.

Pieces come from the `tokenizers` library (extra `text`), which is imported when a tokenizer is made, never before.
Text is split at spaces and tabs, every word gets the mark U+2581 in front, and merges stay within words. So a piece
says whether it starts a word, and decoding gives tokenised text back exactly, with two exceptions: a character that
was not in the training text becomes `<unk>`, and the mark itself becomes an underscore.

Why the mark stands in front and not behind: with `end_of_word_suffix` the library numbers its pieces in the order of a
hash table that differs from run to run (tried with 0.23). With the mark as an ordinary character, training is a
function of the text, and the lengths of Multi30k's sentences are the same to the second decimal.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from probattn.data.parallel import read_content, split_words
from probattn.data.sources import write_atomically

if TYPE_CHECKING:
    import tokenizers

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "EncodedWords",
    "Tokenizer",
    "train_bpe",
]

PAD, BOS, EOS, UNK = range(4)
"""Ids of the special types: padding, begin and end of a sentence, unknown character (or word)."""

MARK = "\u2581"
# No piece of text can have the mark anywhere but in front, so no text can spell a special type.
SPECIALS = (f"<pad>{MARK}", f"<bos>{MARK}", f"<eos>{MARK}", f"<unk>{MARK}")
MAX_CACHED_WORDS = 200_000


class EncodedWords(NamedTuple):
    """The pieces of a sentence.

    Attributes:
        ids: Id of each piece.
        word_index: For each piece the number of its word, counted from 0.
    """

    ids: tuple[int, ...]
    word_index: tuple[int, ...]


class Tokenizer:
    """Words to ids and back.

    Args:
        backend: A `tokenizers.Tokenizer` as `train_bpe` and `train_words` make it.

    Example:
        >>> tokenizer = train_bpe(["ein hund .", "ein haus ."], vocabulary_size=24)
        >>> encoded = tokenizer.encode_words(["ein", "haus"])
        >>> encoded.word_index[0], encoded.word_index[-1]
        (0, 1)
        >>> tokenizer.decode(encoded.ids)
        'ein haus'
    """

    def __init__(self, backend: "tokenizers.Tokenizer") -> None:
        self._backend = backend
        self._backend.encode_special_tokens = True  # text that looks like a special type is text; not saved in JSON
        self._pieces = _pieces_in_order(backend)
        if tuple(self._pieces[: len(SPECIALS)]) != SPECIALS:
            raise ValueError(
                f"the first types are {self._pieces[:4]}, expected {list(SPECIALS)}: this tokenizer was not made by "
                "probattn.data.train_bpe or train_words"
            )
        # Pieces of words: an unknown character belongs to the word it stands in. Whole words: it is a word.
        is_word_level = type(backend.model).__name__ == "WordLevel"
        self._unknown = f"{MARK}<unk>" if is_word_level else "<unk>"
        self._ids_of_word: dict[str, tuple[int, ...]] = {}

    @property
    def vocabulary_size(self) -> int:
        """Number of types, the four special ones included."""
        return len(self._pieces)

    @property
    def digest(self) -> str:
        """SHA-256 of types and merges (none for whole words); the same for every release of the library."""
        model = json.loads(self._backend.to_str())["model"]
        merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model.get("merges", ())]
        return hashlib.sha256(json.dumps([self._pieces, merges]).encode()).hexdigest()

    def encode_words(self, words: Sequence[str]) -> EncodedWords:
        """Ids of the pieces of some words, without begin and end of sentence.

        Args:
            words: Without spaces and tabs in them, as `split_words` gives them.

        Raises:
            ValueError: A word is empty or has a space in it.
        """
        ids: list[int] = []
        word_index: list[int] = []
        for index, word in enumerate(words):
            pieces = self._ids_of_word.get(word) or self._encode_word(word)
            ids.extend(pieces)
            word_index.extend([index] * len(pieces))
        return EncodedWords(tuple(ids), tuple(word_index))

    def encode(self, line: str) -> tuple[int, ...]:
        """Ids of the pieces of a line, without begin and end of sentence."""
        return self.encode_words(split_words(line)).ids

    def decode(self, ids: Sequence[int] | Tensor) -> str:
        """The text of some ids: words with one space between them.

        Reading stops at the first end of sentence; padding and begin of sentence are left out; what is unknown
        is `<unk>`.

        Args:
            ids: (T) full ids, not those of a restricted output.
        """
        return " ".join(self._read(ids)[0])

    def word_index(self, ids: Sequence[int] | Tensor) -> tuple[int, ...]:
        """For each id the number of its word in `decode(ids)`; -1 where there is none: padding, begin, from the end on.

        Args:
            ids: (T) full ids.
        """
        return tuple(self._read(ids)[1])

    def save(self, path: str | Path) -> None:
        """Write the tokenizer as `tokenizer.json`, which the `tokenizers` library reads too."""
        write_atomically(Path(path), self.to_bytes())

    def to_bytes(self) -> bytes:
        """The content of the file that `save` writes."""
        return str(self._backend.to_str(pretty=True)).encode()

    @classmethod
    def load(cls, path: str | Path, *, digest: str | None = None) -> "Tokenizer":
        """Read what `save` wrote.

        Args:
            path: The file.
            digest: What `digest` must be, e.g. the one that is kept with a trained model.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: The file is damaged, foreign, or has another vocabulary.
        """
        library = import_tokenizers()
        content = read_content(path)
        try:
            backend = library.Tokenizer.from_str(content.decode())
        except Exception as error:  # the library raises bare exceptions
            raise ValueError(f"{path} is no tokenizer file, or was cut off ({error})") from None
        try:
            tokenizer = cls(backend)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if digest is not None and tokenizer.digest != digest:
            raise ValueError(
                f"{path} has another vocabulary ({tokenizer.vocabulary_size:,} types, digest "
                f"{tokenizer.digest[:12]}) than expected (digest {digest[:12]}). Use the tokenizer.json that was saved "
                "with the model"
            )
        return tokenizer

    def _encode_word(self, word: str) -> tuple[int, ...]:
        if split_words(word) != [word]:
            raise ValueError(f"{word!r} is not one word: it is empty or has spaces or tabs; split the line first")
        if len(self._ids_of_word) >= MAX_CACHED_WORDS:
            self._ids_of_word.clear()
        ids = tuple(self._backend.encode(word, add_special_tokens=False).ids)
        self._ids_of_word[word] = ids
        return ids

    def _read(self, ids: Sequence[int] | Tensor) -> tuple[list[str], list[int]]:
        """The words that ids spell, and for each id the number of its word."""
        numbers = self._checked(ids)
        words: list[str] = []
        index: list[int] = []
        is_new = True  # the next character starts a word
        for number in numbers:
            if number == EOS:
                break
            if number in (PAD, BOS):
                index.append(-1)
                continue
            piece = self._unknown if number == UNK else self._pieces[number]
            is_new = is_new or piece.startswith(MARK)
            text = piece.removeprefix(MARK)
            if text and is_new:
                words.append("")
                is_new = False
            if text:
                words[-1] += text
            index.append(len(words) if is_new else len(words) - 1)
        index = [min(number, len(words) - 1) for number in index]  # a mark that no character follows
        return words, index + [-1] * (len(numbers) - len(index))

    def _checked(self, ids: Sequence[int] | Tensor) -> list[int]:
        numbers = [int(number) for number in ids]
        for number in numbers:
            if not 0 <= number < len(self._pieces):
                raise ValueError(
                    f"id {number} is not among the {len(self._pieces):,} types of this tokenizer; model and tokenizer "
                    "have different vocabularies"
                )
        return numbers


def train_bpe(lines: Iterable[str], *, vocabulary_size: int, min_frequency: int = 1) -> Tokenizer:
    """Learn a byte-pair encoding; the same lines in any order give the same one.

    For translation, pass the lines of both sides together (a joint encoding, as in Deng et al., 2018).

    Args:
        lines: Tokenised text.
        vocabulary_size: Most types, the four special ones included. A small text may give fewer.
        min_frequency: How often a pair must occur to be merged.

    Raises:
        ImportError: The library is not installed.
        ValueError: There is no text, or its characters alone are more than `vocabulary_size`.
    """
    library = import_tokenizers()
    backend = library.Tokenizer(library.models.BPE(unk_token=SPECIALS[UNK]))
    backend.normalizer = library.normalizers.Replace(MARK, "_")
    # The library's own splitting at white space would also split at no-break and ideographic spaces.
    spaces = library.pre_tokenizers.Split(library.Regex("[ \t]+"), behavior="removed")
    mark = library.pre_tokenizers.Metaspace(MARK, prepend_scheme="always", split=False)
    backend.pre_tokenizer = library.pre_tokenizers.Sequence([spaces, mark])
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        min_frequency=min_frequency,
        special_tokens=list(SPECIALS),
        show_progress=False,
    )
    backend.train_from_iterator(iter(lines), trainer)
    size = backend.get_vocab_size()
    if size == len(SPECIALS):
        raise ValueError("train_bpe got no words; pass the lines of both sides")
    if size > vocabulary_size:
        raise ValueError(f"vocabulary_size {vocabulary_size:,} is too small: the characters alone need {size:,} types")
    return Tokenizer(backend)


def _pieces_in_order(backend: "tokenizers.Tokenizer") -> list[str]:
    vocabulary = backend.get_vocab()
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    if [vocabulary[piece] for piece in pieces] != list(range(len(pieces))):
        raise ValueError("the ids of the types have gaps; neither train_bpe nor train_words of probattn.data made them")
    return pieces


def import_tokenizers() -> ModuleType:
    """The library `tokenizers`, imported when it is needed; an ImportError says how to get it."""
    try:
        import tokenizers
    except ImportError as error:
        message = "encoding text needs the package `tokenizers`: pip install 'probattn[text]'"
        raise ImportError(message) from error
    return tokenizers
