"""Decoding with the translation network: batches equal single sentences, greedy equals beam 1, mixing is exact."""

import torch

import probattn as pa
from probattn.decoding import Constraints, beam_search, greedy
from probattn.models.seq2seq_stepper import Seq2SeqStepper
from tests.models.test_seq2seq import batch, build, categorical


class Sentences:
    def __init__(self, rows: slice) -> None:
        data = batch()
        self.source, self.source_mask = data["source"][rows], data["source_mask"][rows]


def limits(max_length: int) -> Constraints:
    return Constraints(bos=1, eos=2, max_length=max_length, forbidden=(0, 1))


def stepper(estimator: pa.core.Estimator) -> Seq2SeqStepper:
    return Seq2SeqStepper(build(categorical()).eval(), estimator)


@torch.no_grad()
def test_greedy_and_beam_one_agree_and_batches_equal_single_sentences() -> None:
    model = stepper(pa.Enumerate())
    whole = beam_search(model, Sentences(slice(0, 8)), beam_size=1, constraints=limits(6))
    greedily = greedy(model, Sentences(slice(0, 8)), constraints=limits(6))
    for row in range(8):
        alone = beam_search(model, Sentences(slice(row, row + 1)), beam_size=1, constraints=limits(6))
        assert whole[row][0].tokens == alone[0][0].tokens == greedily[row].tokens
        assert abs(whole[row][0].log_prob - alone[0][0].log_prob) < 1e-4


@torch.no_grad()
def test_scores_of_hypotheses_are_exact_likelihoods() -> None:
    model = stepper(pa.Enumerate())
    data = Sentences(slice(0, 4))
    for row, hypotheses in enumerate(beam_search(model, data, beam_size=3, constraints=limits(5))):
        best = hypotheses[0]
        words = [*best.tokens, 2] if best.is_complete else list(best.tokens)
        target = torch.tensor([words])
        evaluation = model.model(
            data.source[row : row + 1],
            data.source_mask[row : row + 1],
            target_in=torch.tensor([[1, *words[:-1]]]),
            target_out=target,
            target_mask=torch.ones_like(target, dtype=torch.bool),
            estimators={"weights": pa.Enumerate()},
            use_posterior=False,
        )
        exact = float(pa.Marginal()(evaluation).bound)
        assert abs(exact - best.log_prob) < 1e-3


@torch.no_grad()
def test_k_max_of_all_positions_is_exact_mixing() -> None:
    full, k_max = (
        beam_search(stepper(estimator), Sentences(slice(0, 4)), beam_size=2, constraints=limits(5))
        for estimator in (pa.Enumerate(), pa.Enumerate(5))
    )
    for one, other in zip(full, k_max, strict=True):
        assert one[0].tokens == other[0].tokens
