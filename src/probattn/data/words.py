"""A vocabulary of whole words for text that is split at spaces: one id a word.

The models of Bahuleyan et al. (2018) read and write whole words. The object is the `Tokenizer` of byte-pair encoding
with another model inside (`WordLevel` of the `tokenizers` library, extra `text`), so batches, output vocabularies and
model folders take either. A word that is not in the vocabulary is `<unk>`, and decoding joins words by one space.
"""

from collections import Counter
from collections.abc import Iterable

from probattn.data.bpe import MARK, SPECIALS, UNK, Tokenizer, import_tokenizers
from probattn.data.parallel import split_words

__all__ = ["train_words", "vocabulary_words"]


def train_words(lines: Iterable[str], *, vocabulary_size: int, min_frequency: int = 1) -> Tokenizer:
    """The most frequent words of a text; the same lines in any order give the same vocabulary.

    Ids follow frequency, words of equal frequency the alphabet. The mark U+2581 counts as an underscore.

    Args:
        lines: Tokenised text; for one vocabulary of two sides, the lines of both.
        vocabulary_size: Most types, the four special ones included.
        min_frequency: How often a word must occur to be kept.

    Raises:
        ImportError: The library is not installed.
        ValueError: There is no word that occurs `min_frequency` times, or no room for one.

    Example:
        >>> tokenizer = train_words(["a dog sees a cat", "a dog sleeps"], vocabulary_size=6)
        >>> tokenizer.encode("a dog sleeps")
        (4, 5, 3)
        >>> tokenizer.decode((4, 5, 3))
        'a dog <unk>'
    """
    library = import_tokenizers()
    num_words = vocabulary_size - len(SPECIALS)
    if num_words < 1:
        raise ValueError(
            f"vocabulary_size {vocabulary_size} is too small: {len(SPECIALS)} special types and at least one word need "
            f"{len(SPECIALS) + 1}"
        )
    counts = Counter(word.replace(MARK, "_") for line in lines for word in split_words(line))
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    kept = [word for word in ranked if counts[word] >= min_frequency][:num_words]
    if not kept:
        raise ValueError(
            f"train_words got {len(counts):,} word types, none of which occurs {min_frequency} times; pass the lines "
            "of the training text, or lower min_frequency"
        )
    # The mark in front is what bpe.Tokenizer knows the start of a word by; no word can spell a special type.
    vocabulary = {name: number for number, name in enumerate([*SPECIALS, *(MARK + word for word in kept)])}
    backend = library.Tokenizer(library.models.WordLevel(vocabulary, unk_token=SPECIALS[UNK]))
    backend.add_special_tokens(list(SPECIALS))
    backend.normalizer = library.normalizers.Replace(MARK, "_")
    spaces = library.pre_tokenizers.Split(library.Regex("[ \t]+"), behavior="removed")
    mark = library.pre_tokenizers.Metaspace(MARK, prepend_scheme="always", split=False)
    backend.pre_tokenizer = library.pre_tokenizers.Sequence([spaces, mark])
    return Tokenizer(backend)


def vocabulary_words(tokenizer: Tokenizer) -> tuple[str, ...]:
    """The text of every id in order, e.g. to look up word vectors; "" for padding, begin and end of a sentence.

    Args:
        tokenizer: Of whole words.

    Example:
        >>> vocabulary_words(train_words(["a dog"], vocabulary_size=9))
        ('', '', '', '<unk>', 'a', 'dog')
    """
    return tuple(tokenizer.decode([number]) for number in range(tokenizer.vocabulary_size))
