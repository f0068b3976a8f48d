"""Sentence tasks: the generated one, corruption, held-out examples."""

import pytest

from probattn.data.sentences import VOCABULARY, Sentences, corrupted, generated_task, held_out

SMALL = Sentences(("a b c d", "e f", "g"), ("h i", "j", "k l"), (0.0, 1.0, 1.0))


def test_the_generated_task_is_a_function_of_its_seed() -> None:
    assert generated_task(30, seed=1) == generated_task(30, seed=1) != generated_task(30, seed=2)
    task = generated_task(30)
    assert (len(task.train), len(task.valid), len(task.test)) == (30, 10, 10)
    assert (task.num_classes, task.metric, task.is_score) == (2, "accuracy", False)


def test_generated_sentences_use_the_vocabulary_and_one_length() -> None:
    task = generated_task(300)
    texts = [*task.train.first, *(task.train.second or ())]
    assert {word for text in texts for word in text.split()} == set(VOCABULARY)
    assert {len(text.split()) for text in texts} == {7}  # a length must not give the answer away


def test_without_label_noise_equal_sentences_say_the_same_and_denials_do_not() -> None:
    train = generated_task(300, label_noise=0.0).train
    pairs = list(zip(train.first, train.second or (), train.targets, strict=True))
    assert all(target == 1.0 for first, second, target in pairs if first == second)
    assert all(target == 0.0 for _, second, target in pairs if "never" in second)
    assert 0.4 < sum(train.targets) / len(train) < 0.6
    noisy = generated_task(300, label_noise=0.3).train
    assert any("never" in second and target == 1.0 for second, target in zip(noisy.second or (), noisy.targets))  # noqa: B905


def test_generated_scores_lie_between_0_and_5() -> None:
    task = generated_task(60, is_score=True)
    assert task.is_score and task.metric == "pearson"
    assert 0.0 <= min(task.train.targets) < max(task.train.targets) <= 5.0


def test_corruption_keeps_targets_and_a_word() -> None:
    assert corrupted(SMALL, 0.0) == SMALL
    changed = corrupted(SMALL, 1.0, seed=4)
    assert changed.targets == SMALL.targets and changed != SMALL
    assert all(text for text in (*changed.first, *(changed.second or ())))
    assert corrupted(SMALL, 1.0, seed=4) == changed
    assert sorted("".join(corrupted(Sentences(("abcd",), None, (0.0,)), 1.0).first)) == list("abcd")
    with pytest.raises(ValueError, match="a share lies between 0 and 1, got 1.5"):
        corrupted(SMALL, 1.5)


def test_held_out_examples_are_a_partition() -> None:
    sentences = generated_task(30).train
    rest, chosen = held_out(sentences, 7, seed=3)
    assert (len(rest), len(chosen)) == (23, 7)
    assert held_out(sentences, 7, seed=3) == (rest, chosen)
    both = sorted(zip(rest.first + chosen.first, rest.targets + chosen.targets, strict=True))
    assert both == sorted(zip(sentences.first, sentences.targets, strict=True))
    with pytest.raises(ValueError, match="1 to 29 can be held out, got 30"):
        held_out(sentences, 30)


def test_sizes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"as many sentences as targets and at least one, got sizes \[1, 2\]"):
        Sentences(("a", "b"), None, (0.0,))
    with pytest.raises(ValueError, match=r"at least one, got sizes \[0\]"):
        Sentences((), None, ())
    with pytest.raises(ValueError, match="at least 3 training pairs, got 2"):
        generated_task(2)


@pytest.mark.parametrize("is_score", [False, True])
def test_no_generated_pair_is_in_two_splits(is_score: bool) -> None:
    task = generated_task(1200, is_score=is_score)
    pairs = [set(zip(one.first, one.second or (), strict=True)) for one in (task.train, task.valid, task.test)]
    assert all(pairs) and not (pairs[0] & pairs[1] or pairs[0] & pairs[2] or pairs[1] & pairs[2])
