"""`predict` with converted models: what the draws have in common runs once, and no bit of the result changes."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from probattn import Weibull, make_stochastic, predict, sampling
from probattn.predict import draw_outputs
from tests.integrations.transformers_zoo import CAUSAL, LAYERS, SEQ2SEQ, build, inputs_of, transformers

pytestmark = pytest.mark.filterwarnings("ignore:Version v4.12.0 introduces:FutureWarning")
FAMILY = Weibull(2.0, anchor="softmax")
DRAWS = 5
STACKS = {
    **dict.fromkeys(("bert", "roberta", "electra"), ("{}.encoder.layer",)),
    "distilbert": ("distilbert.transformer.layer",),
    "gpt2": ("transformer.h",),
    "llama": ("model.layers",),
    "vit": ("vit.layers",),
    "clip-vision": ("encoder.layers",),
    "t5": ("encoder.block", "decoder.block"),
    **dict.fromkeys(("bart", "marian"), ("model.encoder.layers", "model.decoder.layers")),
    "encoder-decoder": ("encoder.encoder.layer", "decoder.bert.encoder.layer"),
}
"""Where the layers are. ALBERT has one, which it calls many times and which is random in every call."""


def counting(model: nn.Module, name: str) -> Counter[str]:
    """How often each layer really runs, by its path."""
    counts: Counter[str] = Counter()
    for stack in STACKS[name]:
        path = stack.format(name)
        for number, layer in enumerate(model.get_submodule(path)):
            layer.forward = _counted(layer.forward, counts, f"{path}.{number}")
    return counts


def _counted(forward: Callable[..., Any], counts: Counter[str], path: str) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        counts[path] += 1
        return forward(*args, **kwargs)

    return run


def output_of(outputs: Any) -> Tensor:
    found: Tensor = outputs["logits"] if "logits" in outputs else outputs["last_hidden_state"]
    return found


@pytest.mark.parametrize("name", STACKS)
def test_layers_below_the_only_random_one_run_once(name: str) -> None:
    """The last layer of the last stack draws; in an encoder-decoder model, its attention to the encoder."""
    only = "cross" if name in SEQ2SEQ else "all"
    model, batch = make_stochastic(build(name), FAMILY, layers=[-1], only=only), inputs_of(name, labels=False)
    counts = counting(model, name)
    shared = draw_outputs(model, batch, draws=DRAWS, output=output_of)
    *lower, last = (f"{stack.format(name)}.{number}" for stack in STACKS[name] for number in range(LAYERS))
    assert counts == {**dict.fromkeys(lower, 1), last: DRAWS}
    counts.clear()
    alone = draw_outputs(model, batch, draws=DRAWS, output=output_of, share=False)
    assert set(counts.values()) == {DRAWS}
    assert torch.equal(shared, alone) and not torch.equal(shared[0], shared[1])


@pytest.mark.parametrize("name", SEQ2SEQ)
def test_the_encoder_runs_once_where_only_the_decoder_looks_at_it_at_random(name: str) -> None:
    model, batch = make_stochastic(build(name), FAMILY, only="cross"), inputs_of(name, labels=False)
    counts = counting(model, name)
    draw_outputs(model, batch, draws=DRAWS, output=output_of)
    encoder, decoder = (stack.format(name) for stack in STACKS[name])
    assert {counts[f"{encoder}.{number}"] for number in range(LAYERS)} == {1}
    assert {counts[f"{decoder}.{number}"] for number in range(LAYERS)} == {DRAWS}


@pytest.mark.parametrize("name", STACKS)
def test_nothing_is_shared_above_a_random_first_layer(name: str) -> None:
    model, batch = make_stochastic(build(name), FAMILY, only="self"), inputs_of(name, labels=False)
    counts = counting(model, name)
    shared = draw_outputs(model, batch, draws=DRAWS, output=output_of)
    assert set(counts.values()) == {DRAWS} and len(counts) == LAYERS * len(STACKS[name])
    assert torch.equal(shared, draw_outputs(model, batch, draws=DRAWS, output=output_of, share=False))


class TestCaches:
    """Every layer writes to a cache, so that none could be shared, and nobody reads it after a draw."""

    def drawn(self, name: str, batch: Any) -> tuple[Counter[str], list[Any], Tensor]:
        """Runs of the layers, caches that came back, and the logits of two draws; the last layer is random."""
        model = make_stochastic(build(name), FAMILY, layers=[-1], only="cross" if name in SEQ2SEQ else "all")
        counts, caches = counting(model, name), []

        def output(outputs: Any) -> Tensor:
            caches.append(outputs.get("past_key_values"))
            return output_of(outputs)

        return counts, caches, draw_outputs(model, batch, draws=2, output=output)

    @pytest.mark.parametrize("name", [*CAUSAL, *SEQ2SEQ])
    def test_there_is_none_unless_it_is_asked_for(self, name: str) -> None:
        batch = inputs_of(name, labels=False)
        counts, caches, plain = self.drawn(name, batch)
        assert caches == [None, None] and sorted(counts.values()) == [1] * (len(counts) - 1) + [2]
        for wish in (False, None):
            same, caches, result = self.drawn(name, {**batch, "use_cache": wish})
            assert caches == [None, None] and same == counts and torch.equal(result, plain)
        counts, caches, kept = self.drawn(name, {**batch, "use_cache": True})
        assert all(cache is not None for cache in caches)
        assert {counts[f"{STACKS[name][-1]}.{number}"] for number in range(LAYERS)} == {2}
        torch.testing.assert_close(kept, plain)

    @pytest.mark.parametrize("name", CAUSAL)
    def test_positional_arguments(self, name: str) -> None:
        ids = inputs_of(name)["input_ids"]
        _, _, expected = self.drawn(name, {"input_ids": ids})
        for inputs in (ids, (ids,), [ids]):
            counts, caches, result = self.drawn(name, inputs)
            assert caches == [None, None] and sorted(counts.values()) == [1, 2] and torch.equal(result, expected)

    @pytest.mark.parametrize("name", CAUSAL)
    def test_a_given_cache_is_read_and_stays_as_it_is(self, name: str) -> None:
        """With next to no noise, so that every draw is the last position of one long pass."""
        model = make_stochastic(build(name), Weibull(1e6, anchor="softmax"), layers=[-1])
        ids = inputs_of(name)["input_ids"][:1]
        with torch.no_grad(), sampling(model, False):
            expected = model(ids).logits[:, -1:]
            cache = model(ids[:, :-1], use_cache=True).past_key_values
        length = cache.get_seq_length()
        result = draw_outputs(model, {"input_ids": ids[:, -1:], "past_key_values": cache}, draws=3)
        assert cache.get_seq_length() == length == ids.shape[1] - 1
        for one in result:
            torch.testing.assert_close(one, expected, atol=1e-3, rtol=1e-3)

    def test_a_classifier_on_top_of_a_language_model(self) -> None:
        """The usual call: a tokenizer's dictionary, and classes."""
        config = transformers.GPT2Config(n_embd=32, n_layer=3, n_head=4, vocab_size=50, n_positions=40, pad_token_id=1)
        model = transformers.GPT2ForSequenceClassification(config).eval()
        make_stochastic(model, FAMILY, layers=[-1])
        counts: Counter[str] = Counter()
        for number, layer in enumerate(model.transformer.h):
            layer.forward = _counted(layer.forward, counts, str(number))
        batch = inputs_of("gpt2", labels=False)
        prediction = predict(model, transformers.BatchEncoding(batch), draws=DRAWS)
        assert counts == {"0": 1, "1": 1, "2": DRAWS}
        assert bool((prediction.variance > 0.0).all())
