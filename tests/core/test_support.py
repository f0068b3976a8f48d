"""Both supports against explicit loops, against each other, and at the edges: empty sets, no keys, huge scores."""

import math
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from probattn.core import Dense, Draw, Segments, Support
from tests.core.problems import MASK, problem, random_scores

HEADS = 2
SCORES = random_scores(HEADS, *MASK.shape)


def rows(mask: Tensor = MASK, heads: int = HEADS) -> Iterator[tuple[int, int, list[int]]]:
    """(head, row, positions inside) of every set."""
    for head in range(heads):
        for row in range(mask.shape[0]):
            yield head, row, mask[row].nonzero().flatten().tolist()


def draw_of(index: Tensor | None = None, value: Tensor | None = None) -> Draw:
    count = (0 if index is None else index.shape[0]) + (0 if value is None else value.shape[0])
    return Draw(value=value, index=index, log_weight=torch.zeros(count))


class TestDenseAgainstLoops:
    support = Dense(MASK)

    def test_log_softmax(self):
        weights = self.support.log_softmax(SCORES)
        for head, row, inside in rows():
            total = sum(math.exp(SCORES[head, row, j]) for j in inside)
            for j in range(MASK.shape[1]):
                expected = SCORES[head, row, j] - math.log(total) if j in inside else -math.inf
                assert float(weights[head, row, j]) == pytest.approx(float(expected), abs=1e-12)

    def test_logsumexp(self):
        totals = self.support.logsumexp(SCORES)
        for head, row, inside in rows():
            total = sum(math.exp(SCORES[head, row, j]) for j in inside)
            expected = math.log(total) if inside else -math.inf
            assert float(totals[head, row]) == pytest.approx(expected, abs=1e-12)

    def test_sum_spread_and_fill(self):
        totals = self.support.sum(SCORES)
        assert totals.shape == self.support.unit_shape(SCORES) == (HEADS, 5)
        for head, row, inside in rows():
            assert float(totals[head, row]) == pytest.approx(sum(float(SCORES[head, row, j]) for j in inside))
        spread = self.support.spread(totals).expand_as(SCORES)
        filled = self.support.fill_outside(SCORES, 7.0)
        for head, row, inside in rows():
            for j in range(MASK.shape[1]):
                assert spread[head, row, j] == totals[head, row]
                assert filled[head, row, j] == (SCORES[head, row, j] if j in inside else 7.0)

    def test_top_k(self):
        top = self.support.top_k(SCORES, 2)
        assert top.shape == (2, HEADS, 5)
        for head, row, inside in rows():
            expected = sorted(inside, key=lambda j: -SCORES[head, row, j])[:2]
            assert top[: len(expected), head, row].tolist() == expected

    def test_top_k_is_at_most_the_number_of_positions(self):
        assert self.support.top_k(SCORES, 99).shape == (5, HEADS, 5)
        assert self.support.size(SCORES) == 5

    def test_take_scatter_and_contains(self):
        index = torch.randint(0, 5, (4, HEADS, 5))
        taken, inside = self.support.take(SCORES, index), self.support.contains(index)
        one_hot = self.support.scatter(index, SCORES)
        assert one_hot.dtype == SCORES.dtype and one_hot.shape == (4, HEADS, 5, 5)
        for k in range(4):
            for head, row, positions in rows():
                j = int(index[k, head, row])
                assert taken[k, head, row] == SCORES[head, row, j]
                assert bool(inside[k, head, row]) == (j in positions)
                expected = [float(i == j and j in positions) for i in range(5)]
                assert one_hot[k, head, row].tolist() == expected

    def test_read(self):
        values = random_scores(HEADS, 5, 3, seed=1)
        index = torch.randint(0, 5, (2, HEADS, 5))
        weights = self.support.log_softmax(SCORES).exp().unsqueeze(0)
        hard = self.support.read(draw_of(index=index), values)
        soft = self.support.read(draw_of(value=weights), values)
        assert hard.shape == (2, HEADS, 5, 3) and soft.shape == (1, HEADS, 5, 3)
        for head, row, inside in rows():
            expected = sum((weights[0, head, row, j] * values[head, j] for j in inside), torch.zeros(3).double())
            assert torch.allclose(soft[0, head, row], expected)
            for k in range(2):
                j = int(index[k, head, row])
                assert torch.equal(hard[k, head, row], values[head, j] * (j in inside))
        both = self.support.read(draw_of(index=index, value=weights), values)
        assert torch.equal(both, torch.cat([hard, soft]))

    def test_a_mask_with_one_column_speaks_for_all_positions(self):
        column = MASK[:, :1]
        narrow, full = Dense(column), Dense(column.expand(5, 5))
        index, values = torch.randint(0, 5, (3, HEADS, 5)), random_scores(HEADS, 5, 3, seed=1)
        assert 0 < full.contains(index).sum() < index.numel()
        assert torch.equal(narrow.contains(index), full.contains(index))
        assert torch.equal(narrow.scatter(index, SCORES), full.scatter(index, SCORES))
        assert torch.equal(narrow.read(draw_of(index=index), values), full.read(draw_of(index=index), values))

    @pytest.mark.parametrize("lead", [(), (1,)])
    def test_one_memory_may_serve_all_examples(self, lead):
        values = random_scores(*lead, 5, 3, seed=1)
        index = torch.randint(0, 5, (2, HEADS, 5))
        expected = self.support.read(draw_of(index=index), values.expand(HEADS, 5, 3))
        assert torch.equal(self.support.read(draw_of(index=index), values), expected)

    def test_without_a_mask_everything_is_inside(self):
        support, full = Dense(), Dense(torch.ones(5, 5, dtype=torch.bool))
        index = torch.randint(0, 5, (3, HEADS, 5))
        values = random_scores(HEADS, 5, 3, seed=1)
        for method in ("log_softmax", "logsumexp", "sum"):
            assert torch.equal(getattr(support, method)(SCORES), getattr(full, method)(SCORES))
        assert support.fill_outside(SCORES, 3.0) is SCORES
        assert support.contains(index).all()
        assert torch.equal(support.scatter(index, SCORES), full.scatter(index, SCORES))
        assert torch.equal(support.top_k(SCORES, 3), full.top_k(SCORES, 3))
        draw = draw_of(index=index, value=full.log_softmax(SCORES).exp().unsqueeze(0))
        assert torch.equal(support.read(draw, values), full.read(draw, values))
        logits = random_scores(HEADS, 5)
        assert torch.equal(support.key_log_softmax(logits), full.key_log_softmax(logits))


class TestSegmentsAgainstLoops:
    index = torch.tensor([2, 0, 2, 0, 2, 4, 0])  # sets 1 and 3 are empty, edges are in no order
    source = torch.tensor([1, 1, 0, 4, 3, 2, 0])
    support = Segments(index, 5, source=source)
    scores = random_scores(7, HEADS, seed=2)

    def edges(self, node: int) -> list[int]:
        return [edge for edge in range(7) if int(self.index[edge]) == node]

    def test_sums_and_normalisation(self):
        totals, log_totals = self.support.sum(self.scores), self.support.logsumexp(self.scores)
        weights = self.support.log_softmax(self.scores)
        spread = self.support.spread(totals)
        assert totals.shape == log_totals.shape == self.support.unit_shape(self.scores) == (5, HEADS)
        for node in range(5):
            for head in range(HEADS):
                own = [float(self.scores[edge, head]) for edge in self.edges(node)]
                total = math.log(sum(math.exp(x) for x in own)) if own else -math.inf
                assert float(totals[node, head]) == pytest.approx(sum(own))
                assert float(log_totals[node, head]) == pytest.approx(total)
                for edge in self.edges(node):
                    assert float(weights[edge, head]) == pytest.approx(float(self.scores[edge, head]) - total)
                    assert spread[edge, head] == totals[node, head]
        assert self.support.fill_outside(self.scores, 3.0) is self.scores

    def test_particles_come_first(self):
        several = torch.stack([self.scores, 2.0 * self.scores, -self.scores])
        assert self.support.unit_shape(several) == (3, 5, HEADS)
        for method in ("log_softmax", "logsumexp", "sum"):
            each = torch.stack([getattr(self.support, method)(one) for one in several])
            assert torch.allclose(getattr(self.support, method)(several), each)
        totals = self.support.sum(several)
        each = torch.stack([self.support.spread(one) for one in totals])
        assert torch.equal(self.support.spread(totals), each)

    def test_top_k(self):
        assert self.support.size(self.scores) == 3
        top = self.support.top_k(self.scores, 9)
        assert top.shape == (3, 5, HEADS)
        for node in range(5):
            for head in range(HEADS):
                ranked = sorted(self.edges(node), key=lambda edge: -self.scores[edge, head])
                assert top[:, node, head].tolist() == ranked + [-1] * (3 - len(ranked))
        assert torch.equal(self.support.top_k(self.scores, 2), top[:2])

    def test_take_scatter_and_contains(self):
        index = torch.randint(-1, 7, (4, 5, HEADS))
        taken, inside = self.support.take(self.scores, index), self.support.contains(index)
        one_hot = self.support.scatter(index, self.scores)
        assert one_hot.shape == (4, 7, HEADS)
        expected = torch.zeros_like(one_hot)
        for k in range(4):
            for node in range(5):
                for head in range(HEADS):
                    edge = int(index[k, node, head])
                    is_own = edge in self.edges(node)
                    assert bool(inside[k, node, head]) == is_own
                    if edge >= 0:
                        assert taken[k, node, head] == self.scores[edge, head]
                    if is_own:
                        expected[k, edge, head] = 1.0
        assert torch.equal(one_hot, expected)

    @pytest.mark.parametrize("has_source", [True, False])
    def test_read(self, has_source):
        support = self.support if has_source else Segments(self.index, 5)
        values = random_scores(5 if has_source else 7, HEADS, 3, seed=3)
        weights = support.log_softmax(self.scores).exp().unsqueeze(0)
        index = support.top_k(self.scores, 2)
        soft, hard = support.read(draw_of(value=weights), values), support.read(draw_of(index=index), values)
        assert soft.shape == (1, 5, HEADS, 3) and hard.shape == (2, 5, HEADS, 3)
        for node in range(5):
            for head in range(HEADS):
                expected = torch.zeros(3, dtype=torch.float64)
                for edge in self.edges(node):
                    row = int(self.source[edge]) if has_source else edge
                    expected = expected + weights[0, edge, head] * values[row, head]
                assert torch.allclose(soft[0, node, head], expected)
                for k in range(2):
                    edge = int(index[k, node, head])
                    row = edge if edge < 0 or not has_source else int(self.source[edge])
                    expected = values[row, head] if edge >= 0 else torch.zeros(3, dtype=torch.float64)
                    assert torch.equal(hard[k, node, head], expected)
        both = support.read(draw_of(index=index, value=weights), values)
        assert torch.equal(both, torch.cat([hard, soft]))

    def test_key_log_softmax_runs_over_all_rows_of_the_memory(self):
        logits = random_scores(6, HEADS, seed=4)  # row 5 is read by no edge and still takes part
        weights = self.support.key_log_softmax(logits)
        total = logits.exp().sum(dim=0)
        for edge in range(7):
            expected = logits[self.source[edge]] - total.log()
            assert torch.allclose(weights[edge], expected)
        own = random_scores(7, HEADS, seed=4)
        assert torch.equal(Segments(self.index, 5).key_log_softmax(own), torch.log_softmax(own, dim=0))


class TestDenseAndSegmentsAgree:
    case = problem()
    edges = case.to_edges(SCORES)

    @pytest.mark.parametrize("method", ["logsumexp", "sum"])
    def test_reductions(self, method):
        dense = getattr(self.case.dense, method)(SCORES)  # (H, T)
        assert torch.allclose(getattr(self.case.segments, method)(self.edges), dense.T)

    def test_log_softmax(self):
        rows = self.case.to_rows(self.case.segments.log_softmax(self.edges), -math.inf)
        assert torch.allclose(rows, self.case.dense.log_softmax(SCORES))

    def test_scatter_of_top_k(self):
        dense, segments = self.case.dense, self.case.segments
        by_rows = dense.scatter(dense.top_k(SCORES, 3), SCORES)
        by_edges = segments.scatter(segments.top_k(self.edges, 3), self.edges)
        assert torch.equal(self.case.to_rows(by_edges), by_rows)

    def test_read(self):
        dense, segments = self.case.dense, self.case.segments
        values = random_scores(HEADS, 5, 3, seed=5)
        by_rows = dense.read(
            draw_of(index=dense.top_k(SCORES, 3), value=dense.log_softmax(SCORES).exp().unsqueeze(0)), values
        )
        by_edges = segments.read(
            draw_of(
                index=segments.top_k(self.edges, 3),
                value=segments.log_softmax(self.edges).exp().unsqueeze(0),
            ),
            values.transpose(0, 1),
        )
        assert torch.allclose(by_edges.transpose(1, 2), by_rows)

    def test_key_log_softmax(self):
        logits = random_scores(HEADS, 5, seed=6)
        full = problem(MASK | torch.tensor([False, False, False, False, True]))  # some query looks at each key
        by_rows = full.dense.key_log_softmax(logits).expand(HEADS, 5, 5)
        by_edges = full.segments.key_log_softmax(logits.T)
        assert torch.allclose(full.to_edges(by_rows), by_edges)


SUPPORTS: dict[str, tuple[Support, Callable[[Tensor], Tensor]]] = {
    "dense": (problem().dense, lambda x: x),
    "segments": (problem().segments, problem().to_edges),
}


@pytest.mark.parametrize("name", SUPPORTS)
class TestGradients:
    @pytest.mark.parametrize("method", ["log_softmax", "logsumexp", "sum"])
    def test_gradcheck(self, name, method):
        support, convert = SUPPORTS[name]
        scores = convert(SCORES).clone().requires_grad_()

        def finite(x: Tensor) -> Tensor:
            result = getattr(support, method)(x)
            return result.masked_fill(torch.isneginf(result), 0.0)

        assert torch.autograd.gradcheck(finite, scores)

    @pytest.mark.parametrize("scale", [1.0, 1e4])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_no_nan_gradient_through_weights(self, name, scale, dtype):
        support, convert = SUPPORTS[name]
        scores = (convert(SCORES.sign()) * scale).to(dtype).requires_grad_()
        weights = support.log_softmax(scores).exp()
        assert torch.isfinite(weights).all()
        totals = support.sum(weights)
        is_empty = torch.isneginf(support.logsumexp(scores))
        assert torch.allclose(totals, (~is_empty).to(dtype))
        (weights.square().sum() + support.logsumexp(scores).masked_fill(is_empty, 0.0).sum()).backward()
        assert torch.isfinite(scores.grad).all()

    def test_huge_scores_still_differ(self, name):
        support, convert = SUPPORTS[name]
        scores = convert(torch.full_like(SCORES, 1e4).index_fill(-1, torch.tensor([0]), 1e4 + 1.0))
        weights = support.log_softmax(scores)
        log_totals = support.logsumexp(scores)
        expected = 1e4 + math.log(math.e + 2.0)  # the first row has three positions
        first = log_totals[..., 0, :] if name == "segments" else log_totals[..., 0]
        assert torch.allclose(first, torch.tensor(expected).double())
        assert torch.isfinite(weights[~torch.isneginf(weights)]).all()


class TestEdges:
    def test_one_key(self):
        scores = random_scores(2, 3, 1)
        assert torch.equal(Dense().log_softmax(scores), torch.zeros_like(scores))
        masked = Dense(torch.ones(1, 1, dtype=torch.bool))
        assert torch.equal(masked.log_softmax(scores), torch.zeros_like(scores))
        segments = Segments(torch.arange(3), 3)
        assert torch.allclose(segments.log_softmax(scores[0]), torch.zeros(3, 1).double())

    @pytest.mark.parametrize("mask", [None, torch.ones(1, 0, dtype=torch.bool)])
    def test_no_keys_dense(self, mask):
        support, scores = Dense(mask), torch.zeros(2, 3, 0, requires_grad=True)
        values = torch.ones(2, 0, 4)
        assert support.log_softmax(scores).shape == (2, 3, 0)
        assert torch.equal(support.sum(scores), torch.zeros(2, 3))
        assert torch.isneginf(support.logsumexp(scores)).all()
        context = support.read(draw_of(value=support.log_softmax(scores).exp().unsqueeze(0)), values)
        assert torch.equal(context, torch.zeros(1, 2, 3, 4))
        assert support.top_k(scores, 3).shape == (0, 2, 3)
        context.sum().backward()

    def test_no_keys_segments(self):
        support = Segments(torch.zeros(0, dtype=torch.int64), 3, source=torch.zeros(0, dtype=torch.int64))
        scores = torch.zeros(0, 2, requires_grad=True)
        assert support.size(scores) == 0
        assert torch.equal(support.sum(scores), torch.zeros(3, 2))
        assert torch.isneginf(support.logsumexp(scores)).all()
        context = support.read(draw_of(value=support.log_softmax(scores).exp().unsqueeze(0)), torch.ones(5, 2, 4))
        assert torch.equal(context, torch.zeros(1, 3, 2, 4))
        assert support.top_k(scores, 2).shape == (0, 3, 2)

    def test_minus_infinity_scores_inside_a_segment(self):
        support = Segments(torch.tensor([0, 0, 1]), 2)
        scores = torch.tensor([[0.0], [-math.inf], [-math.inf]], requires_grad=True)
        weights = support.log_softmax(scores)
        assert weights[:2].flatten().tolist() == [0.0, -math.inf]
        assert torch.isneginf(support.logsumexp(scores)[1]).all()


class TestPaddedValuesDoNotLeak:
    """0 * NaN is NaN, so whatever stands at positions that no query looks at must not be multiplied."""

    @pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize(
        "mask",
        [
            torch.tensor([True, True, False]),
            torch.tensor([[True, True, False]]),
            torch.tensor([[[True, True, False]], [[True, True, False]]]),
            torch.tensor([[True, True, False]]).expand(4, 3),
            torch.tensor([[True, False, False], [True, True, False], [True, True, False], [False] * 3]),
        ],
        ids=["per key", "broadcast over queries", "batched", "expanded", "causal"],
    )
    def test_values_and_gradients(self, mask, poison):
        support = Dense(mask)
        values = random_scores(2, 3, 5)
        clean = values.clone()
        values[:, 2], clean[:, 2] = poison, 0.0
        values.requires_grad_()
        scores = random_scores(2, 4, 3, seed=1).requires_grad_()
        draw = draw_of(index=support.top_k(scores, 3), value=support.log_softmax(scores).exp().unsqueeze(0))
        context = support.read(draw, values)
        assert torch.equal(context, support.read(draw, clean))
        context.sum().backward()
        assert torch.isfinite(scores.grad).all() and torch.isfinite(values.grad).all()
        assert (values.grad[:, 2] == 0).all()

    def test_padded_scores_do_not_matter(self):
        support = Dense(MASK)
        poisoned = SCORES.masked_fill(~MASK, math.nan).requires_grad_()
        weights, totals = support.log_softmax(poisoned).exp(), support.logsumexp(poisoned)
        assert torch.equal(weights, support.log_softmax(SCORES).exp())
        assert torch.equal(totals, support.logsumexp(SCORES))
        assert torch.equal(support.sum(poisoned), support.sum(SCORES))
        assert torch.equal(support.top_k(poisoned, 1), support.top_k(SCORES, 1))
        (weights.sum() + totals.masked_fill(torch.isneginf(totals), 0.0).sum()).backward()
        assert torch.isfinite(poisoned.grad).all()


class TestKeyPrior:
    def test_causal_masks_share_one_prior_over_all_keys(self):
        logits = random_scores(2, 4)
        causal = Dense(torch.ones(4, 4, dtype=torch.bool).tril())
        weights = causal.key_log_softmax(logits)
        assert weights.shape == (2, 1, 4)
        assert torch.allclose(weights[:, 0], torch.log_softmax(logits, dim=-1))

    def test_keys_that_no_query_sees_take_no_part(self):
        logits = random_scores(2, 5)
        weights = Dense(MASK).key_log_softmax(logits)
        assert torch.allclose(weights[:, 0, :4], torch.log_softmax(logits[:, :4], dim=-1))
        assert torch.isneginf(weights[..., 4]).all()

    def test_mask_of_keys_alone(self):
        logits = random_scores(2, 3)
        weights = Dense(torch.tensor([True, False, True])).key_log_softmax(logits)
        expected = torch.log_softmax(logits[:, [0, 2]], dim=-1)
        assert weights.shape == (2, 1, 3) and torch.allclose(weights[:, 0, [0, 2]], expected)
        assert torch.isneginf(weights[..., 1]).all()

    def test_batched_padding(self):
        mask = torch.tensor([[True, True, False], [True, True, True]]).view(2, 1, 1, 3)
        logits = random_scores(2, 4, 3)  # (B, H, S)
        weights = Dense(mask).key_log_softmax(logits)  # (B, H, 1, S)
        assert torch.allclose(weights[0, :, 0, :2], torch.log_softmax(logits[0, :, :2], dim=-1))
        assert torch.allclose(weights[1, :, 0], torch.log_softmax(logits[1], dim=-1))


@pytest.mark.parametrize("name", SUPPORTS)
def test_supports_satisfy_the_protocol(name):
    assert isinstance(SUPPORTS[name][0], Support)


class TestErrors:
    def test_float_mask(self):
        with pytest.raises(TypeError, match="wants a bool tensor, True where a query may look, got torch.float32"):
            Dense(torch.zeros(3))

    @pytest.mark.parametrize("index", [torch.zeros(3), torch.zeros(3, 2, dtype=torch.int64)])
    def test_segment_index(self, index):
        with pytest.raises(TypeError, match="wants an int64 tensor of shape .E,., got torch"):
            Segments(index, 3)

    def test_segment_source(self):
        index = torch.zeros(3, dtype=torch.int64)
        with pytest.raises(ValueError, match=r"wants one source per edge, shape \(3,\), got \(2,\)"):
            Segments(index, 3, source=index[:2])
