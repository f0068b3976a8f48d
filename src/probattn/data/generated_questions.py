"""Generated statements and questions about them: the twin of `squad_questions`, for demos and tests.

A statement says who did, does or will do what, and some of: how, with whom, where, when. Any part can be asked for, the
others can be kept or left out, and a question can be wrapped ("do you know where ..."), so one statement has dozens of
right questions of which a pair holds one. Which one cannot be known from the source: that is what a latent variable is
for. Words, plurals and verb forms are those of the corpus `generated_deen`. Of the training split with seed 0, 15,000
pairs:

| | source | target |
|---|---|---|
| words, mean | 11.4 | 10.0 |
| words, least and most | 5, 23 | 4, 26 |
| word types | 1,590 | 1,551 |
| different sentences | 8,958 | 14,890 |

Both sides together have 1,612 word types. A statement has 78 possible questions on average (24 to 384), of which 1.7
are drawn. Of the words of 1,000 test pairs, 0.07 % do not occur in the training pairs. It takes about 10 seconds of one
core.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from probattn.data.generated_deen.chooser import Chooser
from probattn.data.generated_examples import Example, Examples, Split, collect, split_of_text
from probattn.data.generated_statements import Statement, draw_statement
from probattn.data.parallel import ParallelText

__all__ = ["GeneratedQuestions", "possible_questions"]

NUM_QUESTIONS = ((1, 0.5), (2, 0.3), (3, 0.2))  # drawn of one statement
# What is asked for, "" for yes or no, and how often.
KINDS = {
    "subject": 3.0, "object": 3.0, "number": 3.0, "place": 2.0, "time": 2.0, "company": 2.0, "manner": 1.0, "": 1.0,
}  # fmt: skip
FRAMES = ("{} ?", "do you know {} ?", "can you tell me {} ?")
ASKED_HOW = ("quickly", "slowly", "carefully", "secretly", "quietly", "patiently", "reluctantly", "diligently")


@dataclass(frozen=True)
class GeneratedQuestions:
    """Statements and questions without end. The split of a statement depends on its words alone, not on the seed.

    Attributes:
        seed: Which statements are drawn.

    Example:
        >>> text = GeneratedQuestions(seed=0).pairs("train", 4)
        >>> len(text), text.target[0][-1]
        (4, '?')
    """

    seed: int = 0

    def pairs(self, split: Split, size: int) -> ParallelText:
        """The first `size` pairs of a split; the first n of a longer text are the text of n.

        Args:
            split: "train", "valid" or "test".
            size: How many pairs; no two are the same.

        Raises:
            ValueError: An unknown split, or a size below 1.
        """
        return self.examples(split, size).text

    def examples(self, split: Split, size: int) -> Examples:
        """The same pairs with all questions that would have been right."""
        return collect(self._candidates(split), split, size=size, name="generated questions")

    def _candidates(self, split: Split) -> Iterator[Example]:
        """The questions of one statement after the other."""
        number = -1
        while True:
            number += 1
            chooser = Chooser(f"questions/{self.seed}/{number}")
            statement = draw_statement(chooser)
            if split_of_text(str(statement)) != split:
                continue  # `collect` would pass over it, after all its questions were made
            kinds = possible_questions(statement)
            references = tuple(question for questions in kinds.values() for question in questions)
            for _ in range(chooser.weigh(NUM_QUESTIONS)):
                kind = chooser.weigh([(kind, KINDS[kind]) for kind in kinds])
                yield str(statement), chooser.zipf(kinds[kind]), references


def possible_questions(statement: Statement) -> dict[str, tuple[str, ...]]:
    """What can be asked about a statement: for each part ("" for yes or no) all questions.

    Example:
        >>> statement = Statement("anna", "buy", "past", "", "two pears", "the pears", "pears", place="in rome")
        >>> found = possible_questions(statement)
        >>> found["place"]
        ('where did anna buy the pears ?', 'in which place did anna buy the pears ?', ...)
        >>> found["number"][0]
        'how many pears did anna buy ?'
    """
    return {kind: tuple(dict.fromkeys(_questions(statement, kind))) for kind in KINDS if _can_ask(statement, kind)}


def _can_ask(statement: Statement, kind: str) -> bool:
    if kind == "number":
        return bool(statement.counted)
    if kind == "manner":
        return statement.manner in ASKED_HOW
    return kind in ("", "subject", "object") or bool(getattr(statement, kind))


def _questions(statement: Statement, kind: str) -> Iterator[str]:
    """All questions of a kind, short and direct ones first."""
    openers = {
        "subject": ("who", "which person"),
        "object": ("who",) if statement.is_person else ("what",),
        "number": (f"how many {statement.counted}",),
        "place": ("where", "in which place"),
        "time": ("when",),
        "company": ("with whom", "together with whom"),
        "manner": ("how",),
        "": ("",),
    }[kind]
    around = {name: words for name, words in statement.adjuncts().items() if name != kind}
    thing = "" if kind in ("object", "number") else statement.things
    subsets = list(product((False, True), repeat=len(around)))
    for frame, kept, opener in product(FRAMES, subsets, openers):
        adjuncts = {name: words for (name, words), is_kept in zip(around.items(), kept, strict=True) if is_kept}
        said = statement.clause(statement.finite, thing=thing, adjuncts=adjuncts)
        if kind == "subject":
            yield frame.format(f"{opener} {said}")
        elif frame == FRAMES[0]:
            asked = statement.clause(statement.verb, thing=thing, adjuncts=adjuncts)
            yield frame.format(f"{opener} {statement.helper} {statement.subject} {asked}".strip())
        else:
            yield frame.format(f"{opener or 'whether'} {statement.subject} {said}")
