"""Predictions with uncertainty: what is drawn, that nothing else changes, and what is refused."""

import math
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import probattn
from probattn import Prediction, metrics, predict
from probattn.nn.sampling import Switchable
from probattn.predict import draw_outputs, logits_of

N, T, E, C = 6, 5, 16, 3


class Classifier(nn.Module):
    """A stack of torch's layers; the upper ones have random attention."""

    def __init__(self, *, layers: int = 3, first: int = 1, rate: float = 0.1, concentration: float = 1.0):
        super().__init__()
        layer = nn.TransformerEncoderLayer(E, 4, 32, dropout=rate, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        family = probattn.Weibull(concentration)
        for one in self.encoder.layers[first:]:
            one.self_attn = probattn.MultiheadAttention.from_torch(one.self_attn, family=family)
        self.head = nn.Linear(E, C)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.encoder(x).mean(dim=1))
        return 5.0 * result


@pytest.fixture
def model() -> Classifier:
    return Classifier().eval()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(N, T, E)


def everything(model: nn.Module) -> dict[str, Any]:
    """All that a prediction must leave as it was."""
    return {
        "modes": [module.training for module in model.modules()],
        "attributes": [set(vars(module)) for module in model.modules()],
        "hooks": [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()],
        "switches": [
            (one.is_sampling, None if one.sampling_seed is None else int(one.sampling_seed))
            for one in model.modules()
            if isinstance(one, Switchable)
        ],
        "state": {name: tensor.tolist() for name, tensor in model.state_dict().items()},
        "generator": torch.get_rng_state().tolist(),
    }


# What the numbers are.


def test_numbers_are_those_of_the_metrics(model: Classifier, x: Tensor) -> None:
    prediction = predict(model, x, draws=7, keeps_draws=True)
    probs = prediction.draws
    assert probs is not None and probs.shape == (7, N, C) and probs.dtype == torch.float64
    assert prediction.num_draws == 7
    assert torch.equal(prediction.probabilities, probs.mean(dim=0))
    assert torch.equal(prediction.labels, probs.mean(dim=0).argmax(dim=-1))
    assert torch.equal(prediction.predictive_entropy, metrics.predictive_entropy(probs))
    assert torch.equal(prediction.mutual_information, metrics.mutual_information(probs))
    assert torch.equal(prediction.variance, probs.var(dim=0))
    assert torch.equal(prediction.p_value, metrics.top_two_p_value(probs))
    assert float(prediction.mutual_information.min()) > 0.0


def test_draws_are_those_of_repeated_calls(model: Classifier, x: Tensor) -> None:
    """Another way to the same law: the mean over many draws agrees with a plain loop's, by z-scores."""
    drawn = predict(model, x, draws=120, keeps_draws=True).draws
    assert drawn is not None
    with torch.no_grad(), probattn.sampling(model):
        loop = torch.stack([model(x).double().softmax(dim=-1) for _ in range(120)])
    error = ((drawn.var(dim=0) + loop.var(dim=0)) / 120).sqrt()
    assert float(((drawn.mean(dim=0) - loop.mean(dim=0)) / error).abs().max()) < 4.0
    assert float((drawn.std(dim=0) / loop.std(dim=0)).log().abs().max()) < 0.5


def test_draws_differ_and_examples_of_one_batch_do(model: Classifier, x: Tensor) -> None:
    same = x[:1].expand(N, -1, -1)
    drawn = predict(model, same, draws=3, keeps_draws=True).draws
    assert drawn is not None
    assert len(drawn.flatten(0, 1).unique(dim=0)) == 3 * N
    chunks = predict(model, same, draws=2, batch_size=2, keeps_draws=True).draws
    assert chunks is not None and len(chunks.flatten(0, 1).unique(dim=0)) == 2 * N


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("noise", [False, True])
def test_noise_and_dropout_are_switched_separately(model: Classifier, x: Tensor, noise: bool, dropout: bool) -> None:
    model.train()  # the mode outside must not matter
    prediction = predict(model, x, noise=noise, dropout=dropout, draws=4)
    assert (prediction.has_noise, prediction.has_dropout) == (noise, dropout)
    assert prediction.num_draws == (4 if noise or dropout else 1)
    assert bool((prediction.variance > 0.0).all()) == (noise or dropout)


def test_noise_alone_does_not_depend_on_the_dropout_rate(x: Tensor) -> None:
    with_dropout, without = Classifier(rate=0.5), Classifier(rate=0.0)
    without.load_state_dict(with_dropout.state_dict())
    a, b = predict(with_dropout, x), predict(without, x)
    assert torch.equal(a.probabilities, b.probabilities)


def test_dropout_alone_does_not_depend_on_the_family(x: Tensor) -> None:
    nearly_soft, random = Classifier(first=0, concentration=50.0), Classifier(first=0, concentration=0.5)
    random.load_state_dict(nearly_soft.state_dict())
    a, b = (predict(one, x, noise=False, dropout=True) for one in (nearly_soft, random))
    assert torch.allclose(a.probabilities, b.probabilities, atol=1e-5)  # plug-in weights are equal up to rounding
    assert float((a.probabilities - predict(random, x, dropout=True).probabilities).abs().max()) > 1e-2


def test_both_off_is_the_plain_prediction_in_one_pass(model: Classifier, x: Tensor) -> None:
    prediction = predict(model, x, noise=False)
    with torch.no_grad(), probattn.sampling(model, False):
        assert torch.allclose(prediction.probabilities, model(x).double().softmax(dim=-1))
    assert prediction.num_draws == 1
    assert not prediction.mutual_information.any() and not prediction.variance.any()
    with pytest.raises(ValueError, match="nothing was random; predict with noise=True or dropout=True"):
        prediction.abstain(0.05)
    assert prediction.abstain(0.5, prediction.predictive_entropy).dtype == torch.bool


def test_a_module_that_is_called_twice_draws_twice(x: Tensor) -> None:
    """With one seed per module, which `sampling(seed=...)` sets, both calls would get the same weights."""

    class Difference(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = probattn.MultiheadAttention(E, 4, batch_first=True, family=probattn.Weibull(1.0))

        def forward(self, x: Tensor) -> Tensor:
            return (self.attention(x, x, x)[0] - self.attention(x, x, x)[0]).flatten(1)

    outputs = draw_outputs(Difference(), x, draws=2)
    assert float(outputs.abs().max()) > 1e-3


# Reproducibility, sharing and what is left behind.


def test_one_seed_one_result(model: Classifier, x: Tensor) -> None:
    a = predict(model, x, seed=3)
    torch.rand(5)
    assert torch.equal(a.probabilities, predict(model, x, seed=3).probabilities)
    assert not torch.equal(a.probabilities, predict(model, x, seed=4).probabilities)


def test_more_draws_and_more_examples_keep_the_first_ones(model: Classifier, x: Tensor) -> None:
    few, many = (predict(model, x, draws=draws, keeps_draws=True).draws for draws in (2, 5))
    assert few is not None and many is not None and torch.equal(many[:2], few)
    first = predict(model, x[:4], draws=2, keeps_draws=True).draws
    assert first is not None and torch.allclose(first, few[:, :4], atol=1e-6)


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("batch_size", [None, 4])
def test_sharing_changes_no_bit(model: Classifier, x: Tensor, dropout: bool, batch_size: int | None) -> None:
    options: dict[str, Any] = {"draws": 3, "dropout": dropout, "batch_size": batch_size}
    shared, alone = (draw_outputs(model, x, share=share, **options) for share in (True, False))
    assert torch.equal(shared, alone)


@pytest.mark.parametrize("is_inference", [False, True])
def test_layers_below_the_first_random_one_run_once(x: Tensor, is_inference: bool) -> None:
    model = Classifier(layers=4, first=3)
    runs: list[int] = []
    for layer in model.encoder.layers:
        original = layer.forward
        layer.forward = lambda *args, original=original, **kwargs: (runs.append(1), original(*args, **kwargs))[1]
    with torch.inference_mode(is_inference):
        draw_outputs(model, x, draws=10)
        shared = len(runs)
        draw_outputs(model, x, draws=10, share=False)
    assert (shared, len(runs) - shared) == (3 + 10, 40)


@pytest.mark.parametrize("is_failing", [False, True])
def test_the_model_and_the_generator_are_as_before(model: Classifier, x: Tensor, is_failing: bool) -> None:
    model.train()
    model.encoder.layers[0].dropout.eval()
    probattn.set_sampling(model, False, seed=7)
    model.encoder.layers[1].self_attn.is_sampling = True
    before = everything(model)
    if is_failing:
        with pytest.raises(AssertionError, match="embedding dimension of 16"):
            predict(model, x[..., :3], dropout=True)
        with pytest.raises(ZeroDivisionError):
            predict(model, x, dropout=True, output=lambda outputs: 1 / 0)
    else:
        predict(model, x, dropout=True)
    assert everything(model) == before
    assert all(parameter.grad is None for parameter in model.parameters())


def test_running_statistics_stay(x: Tensor) -> None:
    model = nn.Sequential(Classifier(), nn.BatchNorm1d(C), nn.Dropout(0.1)).train()
    before = everything(model)
    predict(model, x, dropout=True)
    assert everything(model) == before


def test_inference_mode_outside_does_not_matter(model: Classifier, x: Tensor) -> None:
    expected = predict(model, x)
    with torch.inference_mode():
        inside = predict(model, x + 0.0)
    assert torch.equal(inside.probabilities, expected.probabilities)


# Inputs and outputs of other people's models.


@dataclass
class Output:
    logits: Tensor
    hidden: Tensor


class Pretrained(nn.Module):
    """Takes keyword arguments and returns an object with `.logits`, as Hugging Face models do."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, E)
        self.body = Classifier()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, *, use_cache: bool = True, as_dict: bool = False
    ) -> Output | Mapping[str, Tensor]:
        hidden = self.embedding(input_ids)
        if attention_mask is not None:
            hidden = hidden * attention_mask.unsqueeze(-1)
        output = Output(self.body(hidden), hidden)
        return vars(output) if as_dict else output


@pytest.mark.parametrize("as_dict", [False, True])
@pytest.mark.parametrize("batch_size", [None, 1, 4, 100])
def test_a_model_with_keyword_arguments(as_dict: bool, batch_size: int | None) -> None:
    inputs = {
        "input_ids": torch.randint(50, (N, T)),
        "attention_mask": torch.ones(N, T),
        "use_cache": False,
        "as_dict": as_dict,
    }
    model = Pretrained().eval()
    prediction = predict(model, inputs, draws=2, batch_size=batch_size)
    assert prediction.probabilities.shape == (N, C)
    soft = predict(model, inputs, noise=False, batch_size=batch_size)
    whole = predict(model, (inputs["input_ids"], inputs["attention_mask"]), noise=False)
    assert torch.allclose(soft.probabilities, whole.probabilities, atol=1e-6)


def test_a_traced_model_says_nothing_of_its_arguments(x: Tensor) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(T * E, C)).eval()
    with warnings.catch_warnings(action="ignore"):
        traced = torch.jit.trace(model, x)
    torch.testing.assert_close(draw_outputs(traced, x, noise=False)[0], model(x))


@pytest.mark.parametrize("is_open", [True, False])
def test_arguments_without_names_stay_positional(x: Tensor, is_open: bool) -> None:
    """Where `use_cache=False` cannot be passed beside them, the model is called as it would be."""

    class Open(Classifier):
        def forward(self, *args: Tensor, use_cache: bool = True) -> Tensor:  # type: ignore[override]
            return super().forward(args[0])

    class Closed(Classifier):
        def forward(self, x: Tensor, /, use_cache: bool = True) -> Tensor:
            return super().forward(x)

    assert draw_outputs(Open() if is_open else Closed(), x, draws=2).shape == (2, N, C)


def test_regression_by_the_raw_outputs(x: Tensor) -> None:
    model = nn.Sequential(Classifier(), nn.Linear(C, 1), nn.Flatten(0))
    values = draw_outputs(model, x, draws=5)
    assert values.shape == (5, N) and bool((values.std(dim=0) > 0.0).all())


def test_batches_of_different_shapes_are_joined(model: Classifier, x: Tensor) -> None:
    parts = [predict(model, x[:2, :3]), predict(model, x[2:], seed=1)]
    joined = Prediction.join(parts)
    assert joined.probabilities.shape == (N, C) and joined.top_two.shape == (20, N, 2)
    assert torch.equal(joined.p_value, torch.cat([part.p_value for part in parts]))
    with pytest.raises(ValueError, match="drawn in one way, got 2 ways in 2 predictions; join those with equal draws"):
        Prediction.join([parts[0], predict(model, x, draws=3)])
    with pytest.raises(ValueError, match="at least one prediction to join, got none"):
        Prediction.join([])


def test_abstaining(model: Classifier, x: Tensor) -> None:
    prediction = predict(model, x)
    assert torch.equal(prediction.abstain(0.05), ~(prediction.p_value < 0.05))
    assert bool(prediction.abstain(0.0).all())
    information = prediction.mutual_information
    left_out = [int(prediction.abstain(level, information).sum()) for level in (0.0, float(information.median()), 9.0)]
    assert left_out == sorted(left_out, reverse=True) and left_out[0] == N and left_out[-1] == 0
    with pytest.raises(ValueError, match=r"each of 6 examples, got shape \(6, 3\); of a variance"):
        prediction.abstain(0.1, prediction.variance)
    with pytest.raises(ValueError, match="a number as threshold, got NaN, which no uncertainty reaches"):
        prediction.abstain(math.nan)
    with pytest.raises(ValueError, match="without NaN, got NaN for 1 of 6 examples, which would be answered"):
        prediction.abstain(0.1, torch.tensor([torch.nan, *[0.0] * 5]))
    with pytest.raises(TypeError, match="uncertainty of every example as a tensor, got 0.3"):
        prediction.abstain(0.1, 0.3)  # type: ignore[arg-type]


# What is refused.


@pytest.mark.parametrize("draws", [1, 0, -3])
def test_one_draw_is_refused(model: Classifier, x: Tensor, draws: int) -> None:
    with pytest.raises(ValueError, match=f"at least 2 draws, got {draws}; one draw has no spread"):
        predict(model, x, draws=draws)


@pytest.mark.parametrize("module", [nn.MultiheadAttention, probattn.MultiheadAttention])
def test_a_model_without_random_attention_is_refused(module: type[nn.MultiheadAttention]) -> None:
    class Soft(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = module(E, 4, dropout=0.1, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.attention(x, x, x)[0][:, 0]  # type: ignore[no-any-return]

    x = torch.randn(N, T, E)
    with pytest.raises(ValueError, match="random attention in Soft for noise=True, got none; convert it with"):
        predict(Soft(), x)
    assert bool((predict(Soft(), x, noise=False, dropout=True).mutual_information > 0.0).all())


def test_a_model_without_dropout_is_refused(x: Tensor) -> None:
    with pytest.raises(ValueError, match="dropout in Classifier for dropout=True, got none; pass dropout=False"):
        predict(Classifier(rate=0.0), x, dropout=True)


def test_random_attention_that_is_never_called_is_named(x: Tensor) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(T * E, C))
    model[1].unused = Classifier()
    with pytest.raises(ValueError, match="random numbers in the forward pass of Sequential, got none; is the module"):
        predict(model, x)


def test_nan_is_named(model: Classifier, x: Tensor) -> None:
    bad = torch.zeros(N, 1)
    bad[2] = torch.nan
    with pytest.raises(ValueError, match="without NaN, got NaN for 1 of 6 examples in draw 0; look for it in the"):
        predict(model, x, output=lambda logits: logits + bad)
    with pytest.raises(ValueError, match="without NaN, got NaN for 1 of 6"):
        draw_outputs(model, x, output=lambda logits: (logits + bad)[:, 0])


@pytest.mark.parametrize("value", [torch.inf, -torch.inf])
def test_infinite_logits_are_named(model: Classifier, x: Tensor, value: float) -> None:
    is_bad = torch.zeros(N, 1, dtype=torch.bool)
    is_bad[2] = True
    with pytest.raises(ValueError, match="logits with a finite maximum, got infinite ones for 1 of 6 examples; look"):
        predict(model, x, output=lambda logits: logits.masked_fill(is_bad, value))
    one = torch.tensor([False, True, False])  # a class that is impossible is fine
    prediction = predict(model, x, output=lambda logits: logits.masked_fill(is_bad & one, -torch.inf))
    assert prediction.probabilities[2, 1] == 0.0


@pytest.mark.parametrize(
    ("name", "value"), [("draws", 2.5), ("draws", "20"), ("seed", None), ("seed", 1.5), ("batch_size", 2.0)]
)
def test_numbers_that_are_not_whole_are_refused(model: Classifier, x: Tensor, name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=rf"expected a whole number as {name}, got {value!r}"):
        predict(model, x, **{name: value})


def test_what_is_no_model_and_no_function_is_refused(model: Classifier, x: Tensor) -> None:
    with pytest.raises(TypeError, match="expected a model, that is an nn.Module, got str"):
        predict("bert", x)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a function as output, .*, got 'logits'"):
        predict(model, x, output="logits")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("inputs", "kind"),
    [
        ("a sentence", "str of str"),
        (["a sentence", "another"], "list of str"),
        ([[1, 2], [3, 4]], "list of int"),
        ({"input_ids": [[1, 2], [3, 4]]}, "dict of int"),
        ({"input_ids": torch.zeros(2, 3).numpy()}, "dict of ndarray"),
    ],
)
@pytest.mark.parametrize("batch_size", [None, 1])
def test_inputs_that_are_no_tensors_are_refused(
    model: Classifier, inputs: Any, kind: str, batch_size: int | None
) -> None:
    with pytest.raises(TypeError, match=f'tensors as inputs, got {kind}; use .* return_tensors="pt"'):
        predict(model, inputs, batch_size=batch_size)


def test_a_model_that_takes_text_gets_it_in_a_tuple(x: Tensor) -> None:
    class Reader(Classifier):
        def forward(self, sentences: list[str]) -> Tensor:
            return super().forward(x[: len(sentences)])

    assert predict(Reader(), (["a", "b"],)).probabilities.shape == (2, C)


@pytest.mark.parametrize("inputs", [torch.zeros(0, T, E), {"x": torch.zeros(0, T, E)}, (), {}])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_empty_inputs_are_refused(model: Classifier, inputs: Any, batch_size: int | None) -> None:
    with pytest.raises(ValueError, match=r"at least one example, got inputs of shapes \[.*\]; leave out empty batches"):
        predict(model, inputs, batch_size=batch_size)


def test_inputs_that_cannot_be_split_are_refused(model: Classifier, x: Tensor) -> None:
    with pytest.raises(ValueError, match=r"one row for each example.*got tensors of shapes \[\(6, 5, 16\), \(5, 5\)\]"):
        predict(model, (x, torch.zeros(T, T)), batch_size=2)
    with pytest.raises(ValueError, match="batch_size of at least 1, got 0; None runs all"):
        predict(model, x, batch_size=0)


def test_outputs_that_are_no_logits_are_refused(model: Classifier, x: Tensor) -> None:
    with pytest.raises(TypeError, match=r"object with \.logits from the model, got tuple; say where the logits are"):
        logits_of((x, x))
    with pytest.raises(TypeError, match="got dict; say where"):
        logits_of({"scores": x})
    with pytest.raises(ValueError, match=r"shape \(N, C\) with two classes or more, got \(6, 1\); choose them with"):
        predict(model, x, output=lambda logits: logits[:, :1])
    with pytest.raises(ValueError, match=r"got \(6, 2, 3\)"):
        predict(model, x, output=lambda logits: torch.stack([logits, logits], dim=1))
    with pytest.raises(TypeError, match=r"floating-point outputs of shape \(N, ...\), got torch.int64 \(6,\); choose"):
        predict(model, x, output=lambda logits: logits.argmax(dim=-1))


# Things that models write to, and threads.


class Appending:
    """A cache of what was read, as language models have one."""

    def __init__(self, seen: Tensor):
        self.seen = seen


class Remembering(nn.Module):
    """Reads its input and everything in a cache, to which it adds the input."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = probattn.MultiheadAttention(E, 4, batch_first=True, family=probattn.Weibull(1e6))
        self.head = nn.Linear(E, C)

    def forward(self, x: Tensor, cache: Appending) -> Tensor:
        cache.seen = torch.cat([cache.seen, x], dim=1)
        return self.head(self.attention(x, cache.seen, cache.seen)[0].mean(dim=1))


def test_every_draw_has_the_cache_as_it_was(x: Tensor) -> None:
    model, cache = Remembering(), Appending(torch.randn(N, 2, E))
    prediction = predict(model, {"x": x, "cache": cache}, draws=4, keeps_draws=True)
    assert cache.seen.shape == (N, 2, E)
    assert prediction.draws is not None
    torch.testing.assert_close(prediction.draws[3], prediction.draws[0], atol=1e-4, rtol=0.0)  # next to no noise
    with pytest.raises(ValueError, match=r"got Appending, which is not split.*batch_size=None"):
        predict(model, {"x": x, "cache": cache}, batch_size=2)
    trained = Appending(nn.Linear(E, E)(torch.randn(N, 2, E)))
    with pytest.raises(ValueError, match=r"copied for every draw, got Appending.*torch\.no_grad"):
        predict(model, {"x": x, "cache": trained})


def test_lists_with_an_entry_for_each_example_are_not_split(model: Classifier, x: Tensor) -> None:
    with pytest.raises(ValueError, match="got a list of 6, one for each example; make it a tensor"):
        predict(model, {"x": x, "which": [0, 1, 2, 0, 1, 2]}, batch_size=2)


def test_threads_take_turns(x: Tensor) -> None:
    models = [Classifier().eval() for _ in range(2)]
    expected = [predict(one, x, draws=3, seed=5).probabilities for one in models]
    before = [everything(one) for one in models]
    found: dict[int, list[Tensor]] = {0: [], 1: [], 2: []}

    def work(number: int) -> None:
        for _ in range(4):
            found[number].append(predict(models[number % 2], x, draws=3, seed=5).probabilities)

    threads = [threading.Thread(target=work, args=(number,)) for number in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len(made) == 4 for made in found.values())
    assert all(torch.equal(one, expected[number % 2]) for number, made in found.items() for one in made)
    assert [everything(one)["attributes"] for one in models] == [one["attributes"] for one in before]


def test_a_seed_that_is_too_large_is_named(model: Classifier, x: Tensor) -> None:
    with pytest.raises(ValueError, match=r"expected a seed below 2\*\*63"):
        predict(model, x, seed=2**63)


@pytest.mark.parametrize("problem", ["multi_label_classification", "regression"])
def test_logits_that_are_no_classes_are_refused(model: Classifier, x: Tensor, problem: str) -> None:
    @dataclass
    class Config:
        problem_type: str

    model.config = Config(problem)  # type: ignore[assignment]
    with pytest.raises(ValueError, match=f"has problem_type '{problem}', whose outputs no softmax joins"):
        predict(model, x)
    assert predict(model, x, output=lambda logits: logits).probabilities.shape == (N, C)  # who says it knows it
    assert draw_outputs(model, x, output=torch.sigmoid).shape == (20, N, C)
