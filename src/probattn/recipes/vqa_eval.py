"""What a trained network answers, how sure it is, and where it looks.

Metrics are named condition/mode/number, e.g. "noise5/drawn/pavpu". Conditions: "clean" features, or "noise1" and
"noise5" with Gaussian noise of that variance in units of the features' own. Modes:

- "mean": plug-in weights, or the exact mixture over regions, without dropout, on all test questions.
- "plain": the same on those questions that draws are made for.
- "drawn": the mean over draws of dropout masks and, where attention is random, of its weights (BAM, Sec. 4.2).

"majority_accuracy" is that of the most frequent training answer, given to every question.
Questions with no known answer count as wrong. They have no likelihood: "nll" is that of the others, over all
annotators' known answers, and "unknown_answers" is their share. ECE is of the answer that most annotators gave.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from probattn.core import Enumerate
from probattn.data.picture_questions import EncodedQuestions, PictureQuestion, answer_accuracy
from probattn.metrics import error_detection, expected_calibration_error, mean_nll, pavpu, weights_entropy
from probattn.metrics.uncertainty import p_value_of_top_two
from probattn.models.vqa import RegionVqa, VqaInputs
from probattn.predict import Prediction, predict
from probattn.recipes.vqa_data import VqaCorpus, blinded
from probattn.recipes.vqa_network import AnswerLogits, VqaModel, answer, is_random
from probattn.recipes.vqa_settings import VqaSettings
from probattn.training.randomness import EVALUATION, seeded

CERTAIN_BELOW = 0.05
"""An answer is certain where the p-value of the two best ones is smaller (BAM, Appendix B.2.1)."""
_NOISE_SEED = 1_000_003
_ORDER_SEED = 7


@dataclass(frozen=True)
class Answers:
    """Predictions of some test questions.

    Attributes:
        places: (n) their numbers.
        log_probs: (n, A).
        weights: (n, R) attention over regions.
    """

    places: Tensor
    log_probs: Tensor
    weights: Tensor


class VqaEvaluator:
    """A network on the questions of a split.

    Args:
        model: In evaluation mode, with its final weights.
        corpus: Pictures and questions.
        settings: Of the row.
        split: Which part of the corpus.
    """

    def __init__(self, model: VqaModel, corpus: VqaCorpus, *, settings: VqaSettings, split: str = "test"):
        self.model, self.corpus, self.settings, self.split = model.eval(), corpus, settings, split
        self.encoded: EncodedQuestions = corpus.encoded[split]
        self.questions: Sequence[PictureQuestion] = corpus.questions[split]

    @torch.no_grad()
    def answers(self, places: Tensor, variance: float = 0.0) -> Answers:
        """Predictions without dropout and with plug-in weights, or exactly mixed over regions."""
        log_probs, weights = [], []
        for inputs in self.inputs(places, variance):
            made = answer(self.model, inputs, estimator=self.settings.test_estimator)
            log_probs.append(made.log_probs)
            weights.append(made.weights)
        return Answers(places, torch.cat(log_probs).double(), torch.cat(weights))

    def drawn(self, places: Tensor, variance: float = 0.0) -> Prediction:
        """The mean over draws of dropout masks and random attention."""
        wrapped = AnswerLogits(self.model, self.settings.test_estimator)
        noise, draws = is_random(self.model), self.settings.evaluation.draws
        parts = []
        for number, inputs in enumerate(self.inputs(places, variance)):
            tensors = (inputs.regions, inputs.regions_mask, inputs.words, inputs.words_mask)
            parts.append(predict(wrapped, tensors, draws=draws, noise=noise, dropout=True, seed=number))
        return Prediction.join(parts)

    def accuracy(self, places: Tensor, chosen: Tensor) -> Tensor:
        """(n) between 0 and 1, of the answers with these numbers."""
        names = self.corpus.vocabulary.answers.answers
        pairs = zip(places.tolist(), chosen.tolist(), strict=True)
        return torch.tensor([answer_accuracy(names[one], self.questions[place].answers) for place, one in pairs])

    def scores(self, places: Tensor, log_probs: Tensor) -> dict[str, float]:
        """Of predictions (n, A): accuracy, likelihood, calibration, and whether entropy tells the wrong ones."""
        accuracy = self.accuracy(places, log_probs.argmax(dim=-1))
        probs = log_probs.exp()
        entropy = -torch.xlogy(probs, probs).sum(dim=-1)
        known = self.encoded.answers[places]
        rows, columns = (known >= 0).nonzero(as_tuple=True)
        # one more class, of probability zero, is the label of what the network cannot answer
        label = self.encoded.most[places]
        label = torch.where(label < 0, log_probs.shape[-1], label)
        padded = torch.nn.functional.pad(probs, (0, 1))
        return {
            "accuracy": float(accuracy.double().mean()),
            "nll": mean_nll(log_probs[rows], known[rows, columns]),
            "ece": expected_calibration_error(padded / padded.sum(dim=-1, keepdim=True), label),
            "entropy": float(entropy.mean()),
            "entropy_auroc": error_detection(entropy, accuracy < 0.5).auroc,
        }

    def drawn_scores(self, places: Tensor, variance: float) -> dict[str, float]:
        """The same of the mean over draws, and PAvPU with soft accuracy."""
        prediction = self.drawn(places, variance)
        log_probs = prediction.probabilities.clamp(min=torch.finfo(torch.float64).tiny).log()
        accuracy = self.accuracy(places, prediction.labels)
        numbers = self.scores(places, log_probs)
        numbers["pavpu"] = pavpu(accuracy, prediction.p_value < CERTAIN_BELOW).value
        paired = p_value_of_top_two(prediction.top_two, paired=True)
        numbers["paired_pavpu"] = pavpu(accuracy, paired < CERTAIN_BELOW).value
        information = prediction.mutual_information
        numbers["mutual_information"] = float(information.mean())
        numbers["mutual_information_auroc"] = error_detection(information, accuracy < 0.5).auroc
        return numbers

    def inputs(self, places: Tensor, variance: float) -> Iterator[VqaInputs]:
        """Batches of inputs; the noise of a picture's features is the same for all rows and seeds."""
        for start in range(0, len(places), self.settings.evaluation.batch_size):
            chosen = places[start : start + self.settings.evaluation.batch_size]
            noise = variance**0.5 * self._noise(chosen) if variance > 0.0 else None
            inputs = self.corpus.inputs(self.split, chosen, noise=noise)
            yield inputs if self.settings.sees_picture else blinded(inputs)

    def _noise(self, places: Tensor) -> Tensor:
        """(n, R, D) standard normal, a function of each question's number: drawn in blocks, of which rows are taken."""
        features, size = self.corpus.features[self.split], self.settings.evaluation.batch_size
        noise = torch.empty(len(places), features.num_regions, features.dim)
        blocks = places // size
        for block in blocks.unique().tolist():
            start, is_here = block * size, blocks == block
            rows = min(size, len(self.questions) - start)
            with seeded(EVALUATION, _NOISE_SEED, start):
                drawn = torch.randn(rows, features.num_regions, features.dim)
            noise[is_here] = drawn[places[is_here] - start]
        return noise


def evaluate_model(
    model: VqaModel, corpus: VqaCorpus, settings: VqaSettings, *, split: str = "test"
) -> dict[str, float]:
    """All metrics of a trained network on a split; noise and draws are the same in every call."""
    evaluator = VqaEvaluator(model, corpus, settings=settings, split=split)
    everything = torch.arange(len(evaluator.questions))
    drawn = _chosen(len(everything), settings.evaluation.max_drawn)
    metrics = {
        "unknown_answers": corpus.num_unanswerable(split) / len(everything),
        "majority_accuracy": float(evaluator.accuracy(everything, torch.zeros_like(everything)).double().mean()),
    }
    for variance in (0.0, *settings.evaluation.noise_variances):
        condition = f"noise{variance:g}" if variance > 0.0 else "clean"
        made = evaluator.answers(everything, variance)
        numbers = {f"mean/{name}": value for name, value in evaluator.scores(everything, made.log_probs).items()}
        plain = evaluator.scores(drawn, made.log_probs[drawn])
        numbers |= {f"plain/{name}": value for name, value in plain.items()}
        numbers |= {f"drawn/{name}": value for name, value in evaluator.drawn_scores(drawn, variance).items()}
        looked = attention_scores(evaluator, made, variance)
        numbers |= {f"attention/{name}": value for name, value in looked.items()}
        if variance == 0.0:
            numbers |= accuracy_by_kind(evaluator, made)
        metrics |= {f"{condition}/{name}": value for name, value in numbers.items()}
    return metrics


def accuracy_by_kind(evaluator: VqaEvaluator, made: Answers) -> dict[str, float]:
    """Accuracy of each type of answer."""
    accuracy = evaluator.accuracy(made.places, made.log_probs.argmax(dim=-1))
    kinds = [evaluator.questions[place].kind for place in made.places.tolist()]
    found = {}
    for kind in sorted(set(kinds) - {""}):
        is_kind = torch.tensor([one == kind for one in kinds])
        found[f"accuracy of {kind}"] = float(accuracy[is_kind].double().mean())
    return found


@torch.no_grad()
def attention_scores(evaluator: VqaEvaluator, made: Answers, variance: float = 0.0) -> dict[str, float]:
    """Entropy of the weights; mass on the gold regions and how often the largest weight is there, where they are known.

    Of networks that can know the answer also for the inference network ("posterior") and the exact posterior ("exact").

    Args:
        evaluator: The network and its questions.
        made: Its predictions.
        variance: Of the noise that they were made with.
    """
    found = {"entropy": float(weights_entropy(made.weights)), **_against_gold(evaluator, made.places, made.weights)}
    model, settings = evaluator.model, evaluator.settings
    if not isinstance(model, RegionVqa) or not isinstance(settings.test_estimator, Enumerate):
        return found
    answers = evaluator.encoded.most[made.places]
    is_known = answers >= 0
    kinds: dict[str, list[Tensor]] = {"posterior": [], "exact": []}
    # the batches of the predictions, so that the noise is theirs; what is found for unknown answers is dropped
    parts = answers.clamp(min=0).split(settings.evaluation.batch_size)
    for inputs, given in zip(evaluator.inputs(made.places, variance), parts, strict=True):
        kinds["exact"].append(model.exact_posterior(inputs, given))
        inferred = model.posterior_weights(inputs, given)
        if inferred is not None:
            kinds["posterior"].append(inferred)
    for kind, found_weights in kinds.items():
        if found_weights:
            weights = torch.cat(found_weights)[is_known]
            gold = _against_gold(evaluator, made.places[is_known], weights)
            numbers = {"entropy": float(weights_entropy(weights)), **gold}
            found |= {f"{kind}_{name}": value for name, value in numbers.items()}
    return found


def _against_gold(evaluator: VqaEvaluator, places: Tensor, weights: Tensor) -> dict[str, float]:
    gold = torch.zeros_like(weights)
    for number, place in enumerate(places.tolist()):
        gold[number, list(evaluator.questions[place].gold)] = 1.0
    has_gold = gold.sum(dim=-1) > 0
    if not bool(has_gold.any()):
        return {}
    gold, weights = gold[has_gold], weights[has_gold]
    hit = gold.gather(-1, weights.argmax(dim=-1, keepdim=True))
    return {"mass": float((gold * weights).sum(dim=-1).mean()), "hit": float(hit.mean())}


def _chosen(count: int, at_most: int | None) -> Tensor:
    """Numbers of the questions that draws are made for; the same for all rows and seeds."""
    if at_most is None or at_most >= count:
        return torch.arange(count)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(_ORDER_SEED))
    return order[:at_most].sort().values
