"""Generated scenes with questions, captions and gold attention: the twin of DAQUAR and Flickr8k, for demos and tests.

A scene has five to nine objects, a digit or a shape each in one of six colours, on a grid of 5 x 5 cells. For every
question it is known which cells hold the answer, for every word of a caption which cell it speaks of.

| kind of question | example | answer | gold |
|---|---|---|---|
| colour | what colour is the seven ? | red | the seven |
| object | what is the red thing ? | seven | the red thing |
| place | what is left of the red seven ? | circle | the circle |
| number | how many red things are there ? | 3 | all red things |
| yes/no | is there a blue ring ? | yes | the blue ring; none for no |

What a question names is unique in the scene, so there is one right answer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from probattn.data.generated_deen.chooser import Chooser
from probattn.data.generated_examples import SPLITS, Split, split_of_text
from probattn.data.image_features import ImageFeatures
from probattn.data.scene_pictures import COLOURS, GRID, KINDS, NEIGHBOURS, SceneObject, cell_features, draw_picture
from probattn.data.sources import require_choice

__all__ = ["SceneCaption", "SceneQuestion", "Scenes", "scenes"]

NUM_OBJECTS = (5, 6, 7, 8, 9)
QUESTION_KINDS = {"colour": 2.0, "object": 2.0, "place": 3.0, "number": 1.0, "yes/no": 1.0}
QUESTIONS_OF_A_SCENE = 4
CAPTIONS_OF_A_SCENE = 5
RELATIONS = {"left": "left of", "right": "right of", "above": "above", "below": "below"}
_DRAWN_AT_ONCE = 256

Objects = tuple[SceneObject, ...]


@dataclass(frozen=True)
class SceneQuestion:
    """A question about a scene.

    Attributes:
        scene: Number of the scene.
        question: Words, spaces between them.
        answer: One word.
        kind: "colour", "object", "place", "number" or "yes/no".
        gold: Cells that hold the answer.
    """

    scene: int
    question: str
    answer: str
    kind: str
    gold: tuple[int, ...]


@dataclass(frozen=True)
class SceneCaption:
    """A caption of a scene.

    Attributes:
        scene: Number of the scene.
        words: Of the caption.
        gold: For each word the cells that it speaks of; none for words like "and".
    """

    scene: int
    words: tuple[str, ...]
    gold: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Scenes:
    """Scenes of one split.

    Attributes:
        objects: Of every scene.
        questions: About them, four a scene.
        captions: Of them, five a scene.
        seeds: Of the noise in every picture.
        split: "train", "valid" or "test".
    """

    objects: tuple[Objects, ...]
    questions: tuple[SceneQuestion, ...]
    captions: tuple[SceneCaption, ...]
    seeds: tuple[int, ...]
    split: str

    def __len__(self) -> int:
        return len(self.objects)

    def picture(self, scene: int) -> np.ndarray:
        """(80, 80, 3) uint8."""
        return draw_picture(self.objects[scene], self.seeds[scene])

    def picture_name(self, scene: int) -> str:
        """Its name among the features."""
        return f"{self.split}{scene}.png"

    @cached_property
    def features(self) -> ImageFeatures:
        """One row a scene."""
        parts = []
        for start in range(0, len(self), _DRAWN_AT_ONCE):
            numbers = range(start, min(len(self), start + _DRAWN_AT_ONCE))
            parts.append(cell_features(torch.from_numpy(np.stack([self.picture(number) for number in numbers]))))
        names = tuple(self.picture_name(number) for number in range(len(self)))
        return ImageFeatures(names, torch.cat(parts), grid=(GRID, GRID), name=f"generated scenes ({self.split})")


def scenes(split: Split, count: int, *, seed: int = 0) -> Scenes:
    """The first `count` scenes of a split; no two splits share a scene, whatever the seed.

    Args:
        split: "train", "valid" or "test".
        count: How many.
        seed: Which scenes are drawn.

    Raises:
        ValueError: An unknown split, or a count below 1.

    Example:
        >>> found = scenes("train", 2)
        >>> found.features.values.shape, len(found.questions), len(found.captions)
        (torch.Size([2, 25, 96]), 8, 10)
    """
    require_choice("split", split, SPLITS)
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}; ask for as many scenes as you want to see")
    objects: list[Objects] = []
    questions: list[SceneQuestion] = []
    captions: list[SceneCaption] = []
    seeds: list[int] = []
    number = -1
    while len(objects) < count:
        number += 1
        chooser = Chooser(f"scenes/{seed}/{number}")
        found = _draw_objects(chooser)
        if split_of_text(" ".join(f"{one.colour}-{one.kind}-{one.cell}" for one in found)) != split:
            continue
        scene = len(objects)
        questions += _questions(found, scene, chooser)
        captions += [_caption(found, scene, chooser) for _ in range(CAPTIONS_OF_A_SCENE)]
        objects.append(found)
        seeds.append(seed * 1_000_003 + number)
    return Scenes(tuple(objects), tuple(questions), tuple(captions), tuple(seeds), split)


def _draw_objects(chooser: Chooser) -> Objects:
    free = list(range(GRID * GRID))
    found = []
    for _ in range(chooser.pick(NUM_OBJECTS)):
        cell = chooser.pick(free)
        free.remove(cell)
        shift = (chooser.pick((-1, 0, 1)), chooser.pick((-1, 0, 1)))
        found.append(SceneObject(chooser.pick(tuple(COLOURS)), chooser.pick(KINDS), cell, shift))
    return tuple(sorted(found, key=lambda one: one.cell))


def _questions(objects: Objects, scene: int, chooser: Chooser) -> Iterator[SceneQuestion]:
    """Different questions about a scene, of a kind that is drawn first."""
    makers = {
        "colour": _colour_questions,
        "object": _object_questions,
        "place": _place_questions,
        "number": _number_questions,
    }
    possible = {kind: list(maker(objects)) for kind, maker in makers.items()}
    asked: set[str] = set()
    while len(asked) < QUESTIONS_OF_A_SCENE:
        kind = chooser.weigh([(kind, weight) for kind, weight in QUESTION_KINDS.items() if possible.get(kind, True)])
        text, answer, gold = _yes_no(objects, chooser) if kind == "yes/no" else chooser.pick(possible[kind])
        if text not in asked:
            asked.add(text)
            yield SceneQuestion(scene, text, answer, kind, gold)


Asked = tuple[str, str, tuple[int, ...]]


def _colour_questions(objects: Objects) -> Iterator[Asked]:
    for one in _unique(objects, "kind"):
        yield f"what colour is the {one.kind} ?", one.colour, (one.cell,)


def _object_questions(objects: Objects) -> Iterator[Asked]:
    for one in _unique(objects, "colour"):
        yield f"what is the {one.colour} thing ?", one.kind, (one.cell,)


def _place_questions(objects: Objects) -> Iterator[Asked]:
    looks = [(one.colour, one.kind) for one in objects]
    for first, relation, second in _pairs(objects):
        if looks.count((second.colour, second.kind)) == 1:
            yield f"what is {relation} the {second.colour} {second.kind} ?", first.kind, (first.cell,)


def _number_questions(objects: Objects) -> Iterator[Asked]:
    for colour in dict.fromkeys(one.colour for one in objects):
        cells = tuple(one.cell for one in objects if one.colour == colour)
        yield f"how many {colour} things are there ?", str(len(cells)), cells


def _yes_no(objects: Objects, chooser: Chooser) -> Asked:
    """Half of them yes; a thing that is not there has a colour and a kind that are."""
    there = {(one.colour, one.kind) for one in objects}
    absent = [(one.colour, other.kind) for one in objects for other in objects if (one.colour, other.kind) not in there]
    if absent and chooser.chance(0.5):
        colour, kind = chooser.pick(absent)
        return f"is there a {colour} {kind} ?", "no", ()
    one = chooser.pick(objects)
    cells = tuple(other.cell for other in objects if (other.colour, other.kind) == (one.colour, one.kind))
    return f"is there a {one.colour} {one.kind} ?", "yes", cells


def _caption(objects: Objects, scene: int, chooser: Chooser) -> SceneCaption:
    """Two things: how they lie to each other where they touch, else one and the other."""
    pairs = _pairs(objects)
    if pairs and chooser.chance(0.8):
        first, relation, second = chooser.pick(pairs)
    else:
        first = chooser.pick(objects)
        relation, second = "and", chooser.pick([one for one in objects if one is not first])
    words: list[str] = []
    gold: list[tuple[int, ...]] = []
    for part, cells in ((f"a {first.colour} {first.kind}", first.cell), (relation, None),
                        (f"a {second.colour} {second.kind}", second.cell)):  # fmt: skip
        for word in part.split():
            words.append(word)
            gold.append(() if cells is None or word == "a" else (cells,))
    return SceneCaption(scene, tuple(words), tuple(gold))


def _pairs(objects: Objects) -> list[tuple[SceneObject, str, SceneObject]]:
    """What is left of, right of, above and below what."""
    at = {one.cell: one for one in objects}
    found = []
    for one in objects:
        row, column = divmod(one.cell, GRID)
        for place, (down, right) in NEIGHBOURS.items():
            is_inside = 0 <= row + down < GRID and 0 <= column + right < GRID
            other = at.get((row + down) * GRID + column + right) if is_inside else None
            if other is not None:
                found.append((other, RELATIONS[place], one))
    return found


def _unique(objects: Objects, what: str) -> Sequence[SceneObject]:
    """Objects whose colour or kind no other has."""
    values = [getattr(one, what) for one in objects]
    return [one for one in objects if values.count(getattr(one, what)) == 1]
