"""Sharing forward passes: the same bits as without it, fewer calls, and no sharing where a model writes to things."""

import collections
import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import probattn
from probattn.nn import shared_prefix


class Counted(nn.Module):
    """Counts how often the layer inside it really runs."""

    def __init__(self, layer: nn.Module, calls: list[str], name: str):
        super().__init__()
        self.layer = layer
        self.report = lambda: calls.append(name)  # an attribute that does not change

    def forward(self, x: Tensor) -> Tensor:
        self.report()
        result: Tensor = self.layer(x)
        return result


class Noise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand(x.shape)


def passes(model: nn.Module, *inputs: Any, number: int = 3, is_shared: bool = True) -> list[Tensor]:
    """Outputs of passes with seeds 0, 1, ..."""
    outputs = []

    def run() -> None:
        for seed in range(number):
            torch.manual_seed(seed)
            outputs.append(model(*inputs).clone())

    with torch.no_grad():
        if not is_shared:
            run()
            return outputs
        with shared_prefix(model):
            run()
    return outputs


def is_equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_what_comes_before_the_first_random_number_runs_once() -> None:
    calls: list[str] = []
    parts = [Counted(nn.Linear(4, 4), calls, name) for name in "abc"]
    model = nn.Sequential(parts[0], nn.Sequential(parts[1]), Noise(), parts[2])
    x = torch.randn(2, 4)
    expected = passes(model, x, is_shared=False)
    calls.clear()
    assert is_equal(passes(model, x), expected)
    assert sorted(calls) == ["a", "b", "c", "c", "c"]
    assert not torch.equal(expected[0], expected[1])


def test_other_inputs_are_not_answered_from_memory() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Noise())
    x, y = torch.randn(2, 2, 4)
    with torch.no_grad(), shared_prefix(model):
        torch.manual_seed(0)
        first = model(x)
        torch.manual_seed(0)
        other = model(y)
        torch.manual_seed(0)
        again = model(x.clone())  # equal values in another tensor
    torch.manual_seed(0)
    assert torch.equal(other, model(y)) and torch.equal(first, again)


def test_a_module_called_several_times_gives_each_answer() -> None:
    calls: list[str] = []

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.noise = Counted(nn.Linear(3, 3), calls, "layer"), Noise()

        def forward(self, x: Tensor) -> Tensor:
            x = self.layer(self.layer(x))
            return self.layer(self.noise(x))  # type: ignore[no-any-return]

    model, x = Twice(), torch.randn(2, 3)
    expected = passes(model, x, is_shared=False)
    calls.clear()
    assert is_equal(passes(model, x), expected)
    assert len(calls) == 2 + 3  # the first two once, the last in every pass


def encoder(*, first: int, layers: int = 4, has_dropout: bool = False) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1 if has_dropout else 0.0, batch_first=True)
    stack = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval()
    for one in stack.layers[first:]:
        one.self_attn = probattn.MultiheadAttention.from_torch(one.self_attn, family=probattn.Weibull(5.0))
    return stack


@pytest.mark.parametrize("first", [0, 2, 3])
@pytest.mark.parametrize("has_padding", [False, True])
def test_a_stack_of_layers_shares_those_below_the_first_random_one(first: int, has_padding: bool) -> None:
    """Also where torch takes its fast path through the layers below."""
    stack = encoder(first=first)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2]) if has_padding else None
    x = torch.randn(2, 5, 16)
    runs = [0] * len(stack.layers)
    for number, layer in enumerate(stack.layers):
        layer.forward = counting(layer.forward, runs, number)
    expected = passes(stack, x, None, padding, is_shared=False)
    runs[:] = [0] * len(runs)
    assert is_equal(passes(stack, x, None, padding), expected)
    assert runs == [1] * first + [3] * (4 - first)


def counting(forward: Callable[..., Tensor], runs: list[int], number: int) -> Callable[..., Tensor]:
    def run(*args: Any, **kwargs: Any) -> Tensor:
        runs[number] += 1
        return forward(*args, **kwargs)

    return run


# Models that write to things: whatever they do, sharing must not change the result.


class Writer(nn.Module):
    """A model in two parts with something between them that memoisation could get wrong."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind
        self.first, self.second, self.noise = nn.Linear(4, 4), nn.Linear(4, 4), Noise()
        self.relu = nn.ReLU(inplace=True)
        self.counter = Counter()
        self.cache = Cache()
        self.batch_norm = nn.BatchNorm1d(4)
        self.collector, self.cached, self.returns_list = Collector(), Cached(), ReturnsList()

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        if self.kind == "result written to":
            hidden += 1.0
        elif self.kind == "argument written to":
            hidden = hidden + self.relu(hidden)
        elif self.kind == "attribute":
            hidden = self.counter(hidden)
        elif self.kind == "buffer":
            hidden = self.batch_norm(hidden)
        elif self.kind == "list argument":
            kept: list[Tensor] = []
            self.collector(hidden, kept)
            hidden = hidden + sum(kept)
        elif self.kind == "object":
            cache = Cache()
            hidden = hidden + self.cached(hidden, cache)
            hidden = hidden + sum(cache.kept)
        elif self.kind == "object of the model":
            hidden = hidden + self.cached(hidden, self.cache)
            hidden = hidden + sum(self.cache.kept)
        elif self.kind == "argument written to afterwards":
            inputs = x * 2.0
            hidden = self.first(inputs)
            inputs += 1.0
            hidden = hidden + 3.0 * self.first(inputs)
        elif self.kind == "list result":
            kept = self.returns_list(hidden)
            kept.append(hidden)
            hidden = torch.stack(kept).sum(dim=0)
        return self.second(self.noise(hidden)) + self.first(x)  # type: ignore[no-any-return]


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


class Collector(nn.Module):
    def forward(self, x: Tensor, kept: list[Tensor]) -> Tensor:
        kept.append(x * 2.0)
        return x


class Cache:
    def __init__(self) -> None:
        self.kept: list[Tensor] = []


class Cached(nn.Module):
    def forward(self, x: Tensor, cache: Cache) -> Tensor:
        cache.kept.append(x)
        return x


class ReturnsList(nn.Module):
    def forward(self, x: Tensor) -> list[Tensor]:
        return [x, x + 1.0]


KINDS = ("nothing", "result written to", "argument written to", "attribute", "buffer", "list argument", "object")


@pytest.mark.parametrize("kind", [*KINDS, "list result", "object of the model", "argument written to afterwards"])
def test_models_that_write_to_things(kind: str) -> None:
    torch.manual_seed(0)
    alone = Writer(kind)
    shared = Writer(kind)
    shared.load_state_dict(alone.state_dict())
    x = torch.randn(3, 4)
    expected = passes(alone, x, number=4, is_shared=False)
    assert is_equal(passes(shared, x, number=4), expected)
    assert is_equal(list(shared.state_dict().values()), list(alone.state_dict().values()))
    assert shared.counter.calls == alone.counter.calls


def test_hooks_inside_run_in_every_pass() -> None:
    inner = nn.Linear(4, 4)
    model = nn.Sequential(nn.Sequential(inner, nn.ReLU()), Noise())
    seen: list[int] = []
    inner.register_forward_hook(lambda module, args, output: seen.append(1))
    passes(model, torch.randn(2, 4))
    assert len(seen) == 3


def test_hooks_that_change_the_result_act_once_in_every_pass() -> None:
    inner = nn.Linear(4, 4)
    model = nn.Sequential(inner, Noise())
    inner.register_forward_hook(lambda module, args, output: output + 1.0)
    x = torch.randn(2, 4)
    assert is_equal(passes(model, x), passes(model, x, is_shared=False))


def test_global_hooks_switch_sharing_off() -> None:
    calls: list[str] = []
    model = nn.Sequential(Counted(nn.Linear(4, 4), calls, "a"), Noise())
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, output: None)
    try:
        passes(model, torch.randn(2, 4))
    finally:
        handle.remove()
    assert len(calls) == 3


def test_the_model_is_as_before_after_the_block_and_after_an_error() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Noise())
    own = model[0].forward
    model[1].forward = patched = lambda x: x
    with shared_prefix(model):
        model(torch.randn(2, 4))
        assert "forward" in vars(model[0])
    assert "forward" not in vars(model) and "forward" not in vars(model[0])
    assert model[0].forward == own and vars(model[1])["forward"] is patched
    with pytest.raises(RuntimeError), shared_prefix(model):
        model(torch.randn(2, 5))
    assert "forward" not in vars(model[0]) and vars(model[1])["forward"] is patched


def test_a_scripted_part_switches_sharing_off() -> None:
    with warnings.catch_warnings(action="ignore"):
        scripted = torch.jit.trace(nn.Linear(4, 4), torch.randn(2, 4))
    calls: list[str] = []
    model = nn.Sequential(Counted(nn.Linear(4, 4), calls, "a"), scripted, Noise())
    x = torch.randn(2, 4)
    assert is_equal(passes(model, x), passes(model, x, is_shared=False))
    assert len(calls) == 6


class Told(nn.Module):
    """Asks one layer twice, and tells it by an attribute what is meant."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.shared = Listener(kind)
        self.noise = Noise()

    def forward(self, x: Tensor) -> Tensor:
        made = []
        for view in (0, 1):
            self.shared.view = view
            made.append(self.shared(x))
        return self.noise(torch.cat(made))


class Board:
    """An object that is neither a module nor a box."""

    message: Tensor | None = None

    def __init__(self) -> None:
        self.notes: list[Tensor] = []


class Listener(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.view = kind, 1
        self.board = Board()
        self.seen: collections.Counter[int] = collections.Counter()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "counter":
            self.seen[0] += 1
            return self.layer(x) * self.seen[0]
        if self.kind == "object":  # a first call leaves a message for the second
            said, self.board.message = self.board.message, x
            return self.layer(x) if said is None else self.layer(x + said)
        if self.kind == "list of an object":
            self.board.notes.append(x)
            return self.layer(x) * len(self.board.notes)
        return self.layer(x) * (1 + self.view)


@pytest.mark.parametrize("kind", ["attribute", "counter", "object", "list of an object"])
def test_what_an_attribute_tells_is_part_of_the_question(kind: str) -> None:
    torch.manual_seed(0)
    model, x = Told(kind), torch.randn(2, 4)
    expected = passes(copy.deepcopy(model), x, is_shared=False)
    assert is_equal(passes(model, x), expected)
