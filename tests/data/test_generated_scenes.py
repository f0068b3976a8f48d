from collections import Counter

import numpy as np
import pytest
import torch

from probattn.data.generated_scenes import QUESTION_KINDS, QUESTIONS_OF_A_SCENE, scenes
from probattn.data.scene_pictures import COLOURS, GRID, KINDS


@pytest.fixture(scope="module")
def found():
    return scenes("train", 60)


def look(found, scene, cell):
    return next((one for one in found.objects[scene] if one.cell == cell), None)


def test_same_seed_same_scenes_and_a_longer_list_begins_with_the_shorter(found):
    again = scenes("train", 20)
    assert again.objects == found.objects[:20] and again.questions == found.questions[: 20 * QUESTIONS_OF_A_SCENE]
    assert scenes("train", 20, seed=1).objects != again.objects


def test_splits_share_no_scene():
    looks = [{tuple((o.colour, o.kind, o.cell) for o in one) for one in scenes(split, 80).objects}
             for split in ("train", "valid", "test")]  # fmt: skip
    assert not (looks[0] & looks[1] or looks[0] & looks[2] or looks[1] & looks[2])


def test_every_answer_is_right(found):
    """Answers are worked out again from the words of the question."""
    steps = {"left": (0, -1), "right": (0, 1), "above": (-1, 0), "below": (1, 0)}
    kinds = Counter()
    for asked in found.questions:
        objects = found.objects[asked.scene]
        words = asked.question.split()
        colours, names = [w for w in words if w in COLOURS], [w for w in words if w in KINDS]
        named = [one for one in objects if one.colour in (colours or COLOURS) and one.kind in (names or KINDS)]
        kinds[asked.kind] += 1
        if asked.kind == "number":
            assert asked.answer == str(len(named)) and asked.gold == tuple(one.cell for one in named)
        elif asked.kind == "yes/no":
            assert asked.answer == ("yes" if named else "no") and asked.gold == tuple(one.cell for one in named)
        elif asked.kind == "place":
            (one,) = named
            down, right = steps[words[2]]
            row, column = one.cell // GRID + down, one.cell % GRID + right
            assert asked.gold == (row * GRID + column,) and 0 <= row < GRID and 0 <= column < GRID
            assert asked.answer == look(found, asked.scene, asked.gold[0]).kind
        else:
            (one,) = named
            assert asked.gold == (one.cell,) and asked.answer == (one.colour if asked.kind == "colour" else one.kind)
    assert set(kinds) == set(QUESTION_KINDS)


def test_gold_of_a_caption_is_what_its_words_say(found):
    assert len(found.captions) == 5 * len(found)
    for caption in found.captions:
        for word, cells in zip(caption.words, caption.gold, strict=True):
            assert bool(cells) == (word in COLOURS or word in KINDS)
            for cell in cells:
                one = look(found, caption.scene, cell)
                assert word in (one.colour, one.kind)


def test_pictures_show_the_objects(found):
    picture = found.picture(0)
    assert picture.shape == (80, 80, 3) and picture.dtype == np.uint8
    for one in found.objects[0]:
        row, column = divmod(one.cell, GRID)
        patch = picture[row * 16 : row * 16 + 16, column * 16 : column * 16 + 16].reshape(-1, 3).astype(float)
        nearest = np.abs(patch - np.array(COLOURS[one.colour])).max(axis=1)
        assert (nearest < 20).sum() > 15  # pixels of its colour


def test_features_tell_kind_and_colour_of_a_cell_and_of_its_neighbour():
    """A linear readout, trained on other scenes, is far above chance."""
    train, test = scenes("train", 400), scenes("test", 100)
    for direction in (0, -1):
        accuracies = []
        for what, values in (("colour", list(COLOURS)), ("kind", list(KINDS))):
            pairs = []
            for part in (train, test):
                rows, labels = [], []
                for scene, objects in enumerate(part.objects):
                    for one in objects:
                        if 0 <= one.cell % GRID + direction < GRID:
                            rows.append(part.features.values[scene, one.cell + direction])
                            labels.append(values.index(getattr(one, what)))
                pairs.append((torch.stack(rows), torch.tensor(labels)))
            (x, y), (x_test, y_test) = pairs
            design, design_test = (torch.cat([z, torch.ones(len(z), 1)], dim=1) for z in (x, x_test))
            target = torch.nn.functional.one_hot(y, len(values)).float()
            weight = torch.linalg.lstsq(design, target).solution
            accuracies.append(float(((design_test @ weight).argmax(-1) == y_test).float().mean()))
        assert accuracies[0] > 0.6 and accuracies[1] > (0.2 if direction else 0.4), (direction, accuracies)


@pytest.mark.parametrize(("split", "count"), [("dev", 3), ("train", 0)])
def test_bad_arguments(split, count):
    with pytest.raises(ValueError, match="split|count"):
        scenes(split, count)
