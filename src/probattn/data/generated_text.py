"""Generated sentences: the twin of `ptb`, `text_vae_corpora` and `captions`, for demos and tests.

A sentence is a statement of who did, does or will do what, how, with whom, where and when (`generated_statements`); a
text of several statements has the length of a document. Of the training split with seed 0:

| | 1 statement | 7 statements |
|---|---|---|
| sentences | 40,000 | 5,000 |
| words, mean | 11.4 | 79.8 |
| words, least and most | 5, 26 | 56, 108 |
| word types | 1,694 | 1,690 |

Either takes about 40 seconds of one core. Of the words of 1,000 test sentences, less than 0.05 % do not occur in train.

Which split a statement belongs to is a hash of the set of its words. So no two splits share a statement, whatever the
seeds, nor two statements that differ in the order of their words alone.
"""

from dataclasses import dataclass
from itertools import count

from probattn.data.generated_deen.chooser import Chooser
from probattn.data.generated_examples import SPLITS, Split, split_of_text
from probattn.data.generated_statements import draw_statement
from probattn.data.sources import require_choice

__all__ = ["GeneratedText"]


@dataclass(frozen=True)
class GeneratedText:
    """Sentences without end.

    Attributes:
        seed: Which statements are drawn.
        num_statements: How many make one sentence; 7 give the length of Yahoo's texts.

    Example:
        >>> sentences = GeneratedText(seed=0).sentences("train", 4)
        >>> len(sentences), sentences[0][-1]
        (4, '.')
    """

    seed: int = 0
    num_statements: int = 1

    def __post_init__(self) -> None:
        if self.num_statements < 1:
            raise ValueError(f"num_statements must be at least 1, got {self.num_statements}")

    def sentences(self, split: Split, size: int) -> tuple[str, ...]:
        """The first `size` sentences of a split; the first n of a longer text are the text of n.

        Args:
            split: "train", "valid" or "test".
            size: How many sentences; no two have a statement in common.

        Raises:
            ValueError: An unknown split, or a size below 1.
        """
        require_choice("split", split, SPLITS)
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}; ask for as many sentences as you want to read")
        found: dict[str, None] = {}
        numbers = count()
        while len(found) < size * self.num_statements:
            statement = str(draw_statement(Chooser(f"text/{self.seed}/{next(numbers)}")))
            if split_of_text(statement) == split:
                found[statement] = None
        statements = list(found)
        starts = range(0, len(statements), self.num_statements)
        return tuple(" ".join(statements[start : start + self.num_statements]) for start in starts)
