"""Generated questions and dialogues: seeds, splits, grammar by rules written here, and how much is left open."""

import re
from collections import Counter, defaultdict

import pytest

from probattn.data import Examples, GeneratedDialogue, GeneratedQuestions
from probattn.data.generated_dialogue import read_topics
from probattn.data.generated_examples import split_of_text
from probattn.data.generated_questions import possible_questions
from probattn.data.generated_statements import Statement

SIZE = 2000
CORPORA = (GeneratedQuestions, GeneratedDialogue)


@pytest.fixture(scope="module", params=CORPORA, ids=lambda corpus: corpus.__name__)
def corpus(request: pytest.FixtureRequest) -> type[GeneratedQuestions] | type[GeneratedDialogue]:
    return request.param


@pytest.fixture(scope="module")
def train(corpus: type[GeneratedQuestions]) -> Examples:
    return corpus(seed=0).examples("train", SIZE)


def test_pairs_are_a_function_of_seed_split_and_number(corpus: type[GeneratedQuestions], train: Examples) -> None:
    again = corpus(seed=0).pairs("train", 50)
    assert again.source == train.text.source[:50] and again.target == train.text.target[:50]
    assert corpus(seed=1).pairs("train", 50).source != again.source


def test_no_two_splits_share_a_source(corpus: type[GeneratedQuestions], train: Examples) -> None:
    for seed, split in ((0, "valid"), (1, "test")):
        text = corpus(seed=seed).pairs(split, 300)
        assert not set(text.source) & set(train.text.source)
        assert {split_of_text(line) for line in text.source} == {split}


def test_no_pair_twice_and_every_target_is_right(train: Examples) -> None:
    text = train.text
    assert len(text) == len(train.references) == SIZE
    assert len(set(zip(text.source, text.target, strict=True))) == SIZE
    for target, references in zip(text.target, train.references, strict=True):
        assert target in references and len(references) >= 9


def test_targets_cannot_be_known(train: Examples) -> None:
    targets = defaultdict(set)
    for source, target in zip(train.text.source, train.text.target, strict=True):
        targets[source].add(target)
    assert sum(len(found) > 1 for found in targets.values()) > 0.15 * len(targets)


def test_text_is_tokenised(train: Examples) -> None:
    lines = train.text.source + train.text.target
    assert all(re.fullmatch(r"\S+( \S+)* [.?!]", line) and line == line.lower() for line in lines)
    assert not any("{" in line or re.search(r"\ba [aeio]", line) for line in lines)
    types = Counter(word for line in lines for word in line.split())
    assert len(types) > 600


def test_articles_agree(train: Examples) -> None:
    after_an = Counter(re.findall(r"\ban (\w)", " ".join(train.text.source)))
    assert after_an and set(after_an) <= set("aeiouh")


def test_bad_requests(corpus: type[GeneratedQuestions]) -> None:
    with pytest.raises(ValueError, match=r"split 'tests' is unknown; did you mean 'test'\?"):
        corpus().pairs("tests", 3)
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        corpus().pairs("train", 0)


STATEMENT = Statement(
    "anna", "buy", "past", "", "three red apples", "the red apples", "red apples",
    company="the doctor", place="in rome", time="last week", is_time_first=True,
)  # fmt: skip


def test_questions_about_a_statement() -> None:
    assert str(STATEMENT) == "last week , anna bought three red apples with the doctor in rome ."
    found = possible_questions(STATEMENT)
    assert found["subject"][0] == "who bought the red apples ?"
    assert "what did anna buy with the doctor in rome last week ?" in found["object"]
    assert "do you know how many red apples anna bought last week ?" in found["number"]
    assert found["time"][0] == "when did anna buy the red apples ?"
    assert "with whom did anna buy the red apples in rome ?" in found["company"]
    assert "can you tell me whether anna bought the red apples ?" in found[""]
    assert "manner" not in found
    assert not any("last week" in question for question in found["time"])


@pytest.mark.parametrize(
    ("tense", "finite", "helper"),
    [("past", "bought", "did"), ("present", "buys", "does"), ("future", "will buy", "will")],
)
def test_tenses(tense: str, finite: str, helper: str) -> None:
    statement = Statement("anna", "buy", tense, "", "a pear", "the pear", time="today")
    assert str(statement) == f"anna {finite} a pear today ."
    assert possible_questions(statement)["time"][0] == f"when {helper} anna buy the pear ?"


def test_questions_have_many_words() -> None:
    text = GeneratedQuestions(seed=0).pairs("train", 3000)
    assert len({word for line in text.source + text.target for word in line.split()}) > 1_000


def test_every_topic_has_prompts_and_replies_of_every_kind() -> None:
    general, *topics = read_topics()
    assert (general.name, general.prompts, len(topics)) == ("any", (), 14)
    for topic in topics:
        assert {kind for kind, _ in topic.prompts} == {"q", "w", "s"} == {kind[0] for kind, _ in topic.replies}
    kitchen = topics[0]
    assert "with or without salt ?" in kitchen.fitting("q", "would you like {a} ?")
    openers = {prompt.split()[0] for topic in topics for kind, prompt in topic.prompts if kind == "w"}
    asked = {kind.partition(":")[2] for topic in topics for kind, _ in topic.replies if ":" in kind}
    assert asked <= openers
