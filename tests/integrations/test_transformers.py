"""Every architecture of the zoo with random attention: against eager attention, and against brute force."""

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from probattn import Lognormal, Weibull, make_stochastic, record_latents, sampling, set_sampling, undo
from tests.integrations.transformers_zoo import (
    CAUSAL,
    HEADS,
    LENGTH,
    PADDED,
    REAL_TARGETS,
    SEQ2SEQ,
    TEXT,
    ZOO,
    build,
    inputs_of,
    loss_of,
    result_of,
)

pytestmark = pytest.mark.filterwarnings("ignore:Version v4.12.0 introduces:FutureWarning")
FAMILY = Weibull(2.0, anchor="softmax")


def converted(name: str, **kwargs: Any) -> Any:
    return make_stochastic(build(name), FAMILY, **kwargs)


@pytest.fixture(params=list(ZOO))
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


class TestSwitchedOff:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    def test_output_is_that_of_eager_attention(self, name: str, dtype: torch.dtype) -> None:
        batch = {key: x.to(dtype) if x.is_floating_point() else x for key, x in inputs_of(name).items()}
        expected = build(name).to(dtype)(**batch, output_hidden_states=True)
        model = make_stochastic(build(name, "sdpa").to(dtype), FAMILY)
        with sampling(model, False):
            outputs = model(**batch, output_hidden_states=True)
        assert list(outputs) == list(expected)
        found = {"logits", "last_hidden_state"} & set(expected)
        assert {expected[key].dtype for key in found} == {dtype}
        for key in expected:
            values = [x[key] if isinstance(x[key], tuple) else (x[key],) for x in (outputs, expected)]
            for ours, theirs in zip(*values, strict=True):
                assert not isinstance(theirs, Tensor) or torch.equal(ours, theirs), key

    def test_output_is_close_to_torch_attention(self, name: str) -> None:
        batch = inputs_of(name)
        expected = result_of(build(name, "sdpa", scale=1.0), batch)
        model = make_stochastic(build(name, scale=1.0), FAMILY)
        with sampling(model, False):
            torch.testing.assert_close(result_of(model, batch), expected, atol=1e-6, rtol=1e-6)

    def test_dropout_masks_are_those_of_eager_attention(self, name: str) -> None:
        theirs, ours, batch = build(name).train(), converted(name).train(), inputs_of(name)
        torch.manual_seed(3)
        expected = theirs(**batch)
        torch.manual_seed(3)
        with sampling(ours, False):
            outputs = ours(**batch)
        key = "logits" if "logits" in expected else "last_hidden_state"
        assert torch.equal(outputs[key], expected[key])
        assert "kl" not in outputs
        if "loss" in expected:
            assert torch.equal(outputs["loss"], expected["loss"])


class TestSwitchedOn:
    def test_draws_change_outputs_and_seeds_repeat_them(self, name: str) -> None:
        model, batch = converted(name), inputs_of(name)
        with sampling(model, False):
            soft = result_of(model, batch)
        torch.manual_seed(0)
        first, second = result_of(model, batch), result_of(model, batch)
        torch.manual_seed(0)
        assert torch.equal(result_of(model, batch), first)
        assert not torch.allclose(first, second, atol=1e-5)
        assert not torch.allclose(first, soft, atol=1e-5)
        with sampling(model, True, seed=3):
            assert torch.equal(result_of(model, batch), result_of(model, batch))
            assert not torch.allclose(result_of(model, batch), soft, atol=1e-5)

    def test_many_draws_with_little_noise_are_soft_attention(self, name: str) -> None:
        model = make_stochastic(build(name), Lognormal(1e-4, anchor="softmax"))
        batch = inputs_of(name)
        with sampling(model, False):
            soft = result_of(model, batch)
        torch.testing.assert_close(result_of(model, batch), soft, atol=1e-2, rtol=1e-2)

    def test_gradient_of_the_kl_reaches_every_prior(self, name: str) -> None:
        model = converted(name).train()
        outputs = model(**inputs_of(name))
        assert outputs.kl.shape == (2,) and (outputs.kl > 0).all()
        outputs.kl_cost.backward()
        priors = {key: p.grad for key, p in model.named_parameters() if ".stochastic." in key}
        assert len(priors) == 3 * len(set(key.split(".stochastic.")[0] for key in priors)) > 0
        for key, grad in priors.items():
            assert grad is not None and grad.abs().max() > 0, key

    def test_weights_are_returned_on_request(self, name: str) -> None:
        model, batch = converted(name), inputs_of(name)
        with sampling(model, True, seed=1):
            outputs = model(**batch, output_attentions=True)
            torch.testing.assert_close(  # a kernel that makes no weights rounds differently
                result_of(model, batch), result_of(model, batch, output_attentions=True), atol=1e-4, rtol=1e-4
            )
        with sampling(model, False):
            soft = model(**batch, output_attentions=True)
        for key in (key for key in outputs if key.endswith("attentions")):
            assert len(outputs[key]) == len(soft[key])
            for drawn, expected in zip(outputs[key], soft[key], strict=True):
                assert drawn.shape == expected.shape
                seen = drawn.sum(dim=-1) > 0  # padded queries may see nothing
                torch.testing.assert_close(drawn.sum(dim=-1)[seen], torch.ones_like(drawn.sum(dim=-1)[seen]))
                assert not torch.allclose(drawn, expected, atol=1e-3)

    def test_one_receipt_for_each_call(self, name: str) -> None:
        model, batch = converted(name), inputs_of(name, labels=False)
        with record_latents(model) as record:
            outputs = model(**batch)
        assert len(record.latents) == ZOO[name].calls
        assert all(latent.kl.shape[:2] == (2, HEADS) for latent in record.latents)
        torch.testing.assert_close(record.kl(), outputs.kl)
        assert all(name in dict(model.named_modules()) for name in record.names)
        assert "loss" not in outputs

    def test_copies_are_independent(self, name: str) -> None:
        model, batch = converted(name), inputs_of(name)
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            set_sampling(twin, False)
            assert twin.forward.model is twin
            torch.manual_seed(0)
            assert not torch.allclose(result_of(twin, batch), result_of(model, batch), atol=1e-5)
            set_sampling(twin, True)
            torch.manual_seed(0)
            drawn = result_of(twin, batch)
            torch.manual_seed(0)
            assert torch.equal(drawn, result_of(model, batch))


class TestMasks:
    @pytest.mark.parametrize("name", TEXT)
    def test_padding_changes_nothing(self, name: str) -> None:
        """Neither outputs nor KL of an example know what stands in its padding, nor how much of it there is."""
        model, batch = converted(name), inputs_of(name, labels=False)
        other = {**batch, "input_ids": batch["input_ids"].clone()}
        other["input_ids"][1, PADDED:] = 7
        real = slice(None) if ZOO[name].inputs == "seq2seq" else slice(PADDED)
        results, kls = [], []
        for one in (batch, other):
            with sampling(model, True, seed=2), record_latents(model) as record:
                result = result_of(model, one)[1]
            results.append(result if ZOO[name].inputs == "classes" else result[real])
            kls.append(record.kl()[1])
        torch.testing.assert_close(results[0], results[1])
        torch.testing.assert_close(kls[0], kls[1])

    @pytest.mark.parametrize("name", TEXT)
    def test_kl_of_a_padded_example_is_that_of_the_short_one(self, name: str) -> None:
        """With little noise, since the draws of a batch of one are others."""
        model = make_stochastic(build(name), Lognormal(1e-4, anchor="softmax")).train()
        for module in model.modules():
            module.training = type(module).__name__ == "StochasticAttention"  # no dropout, but a KL
        batch = inputs_of(name, labels=False)
        short = {key: value[1:, :PADDED] for key, value in batch.items() if key != "decoder_input_ids"}
        if "decoder_input_ids" in batch:
            mask = torch.ones_like(batch["decoder_input_ids"])
            mask[1, REAL_TARGETS:] = 0
            batch["decoder_attention_mask"] = mask
            short["decoder_input_ids"] = batch["decoder_input_ids"][1:, :REAL_TARGETS]
        torch.testing.assert_close(model(**batch).kl[1], model(**short).kl[0], rtol=1e-3, atol=1e-3)

    @pytest.mark.parametrize("name", [*CAUSAL, *SEQ2SEQ])
    def test_causal_stays_causal(self, name: str) -> None:
        model, batch = converted(name), inputs_of(name, labels=False)
        key = "decoder_input_ids" if name in SEQ2SEQ else "input_ids"
        other = {**batch, key: batch[key].clone()}
        other[key][:, -1] = (other[key][:, -1] + 1) % 40 + 3
        with sampling(model, True, seed=2):
            first, second = result_of(model, batch), result_of(model, other)
        torch.testing.assert_close(first[0, :-1], second[0, :-1])
        assert not torch.allclose(first[0, -1], second[0, -1])

    def test_labels_tell_which_targets_are_padding(self) -> None:
        """Without a mask of the decoder, a target that the loss ignores has no KL."""
        model = make_stochastic(build("bart"), FAMILY).train()
        batch = inputs_of("bart")
        mask = (batch["labels"] != -100).long()
        set_sampling(model, True, seed=4)
        torch.manual_seed(0)
        by_labels = model(**batch).kl
        torch.manual_seed(0)
        by_mask = model(**batch, decoder_attention_mask=mask).kl
        torch.testing.assert_close(by_labels[0], by_mask[0])
        torch.testing.assert_close(by_labels[1], by_mask[1], rtol=1e-2, atol=0.0)  # padded keys are not seen either
        torch.manual_seed(0)
        assert model(**batch, decoder_attention_mask=torch.ones_like(mask)).kl[1] > 1.2 * by_labels[1]

    def test_a_float_mask_of_the_caller_is_obeyed(self) -> None:
        model, batch = converted("bert"), inputs_of("bert")
        smallest = torch.finfo(torch.float32).min
        seen = batch["attention_mask"].bool()[:, None, None, :].expand(2, 1, LENGTH, LENGTH)
        by_hand = torch.zeros(2, 1, LENGTH, LENGTH).masked_fill(~seen, smallest)
        with sampling(model, True, seed=2), record_latents(model) as record:
            expected = result_of(model, batch)
            kl = record.kl()
        with sampling(model, True, seed=2), record_latents(model) as record:
            outputs = result_of(model, {**batch, "attention_mask": by_hand})
        torch.testing.assert_close(outputs, expected)
        torch.testing.assert_close(record.kl(), kl)


class TestSharedModules:
    def test_fixed_seeds_differ_between_the_layers_of_albert(self) -> None:
        model = converted("albert")
        with sampling(model, True, seed=0), record_latents(model) as record:
            model(**inputs_of("albert"))
        assert len({int(latent.seed) for latent in record.latents}) == ZOO["albert"].calls

    def test_fixed_seeds_differ_between_steps_of_generation(self) -> None:
        model = converted("gpt2")
        ids = inputs_of("gpt2")["input_ids"][:1]
        with sampling(model, True, seed=0), record_latents(model) as record:
            cache = model(ids[:, :4], use_cache=True).past_key_values
            for position in (4, 5):
                model(ids[:, position : position + 1], past_key_values=cache, use_cache=True)
        assert len({int(latent.seed) for latent in record.latents}) == 3 * 2


class TestGeneration:
    @pytest.mark.parametrize("name", [*CAUSAL, *SEQ2SEQ])
    def test_with_and_without_a_cache(self, name: str) -> None:
        model = converted(name)
        batch = {key: value[:1] for key, value in inputs_of(name).items() if key != "labels"}
        arguments = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False}
        with sampling(model, False):
            with_cache = model.generate(**batch, **arguments, use_cache=True)
            without = model.generate(**batch, **arguments, use_cache=False)
            undone = undo(copy.deepcopy(model)).generate(**batch, **arguments)
        assert torch.equal(with_cache, without) and torch.equal(with_cache, undone)
        with sampling(model, True, seed=1):
            drawn = model.generate(**batch, **arguments, use_cache=True)
            assert torch.equal(drawn, model.generate(**batch, **arguments, use_cache=True))
            assert model.generate(**batch, **arguments, num_beams=2).shape == drawn.shape
        weights = model.generate(**batch, **arguments, output_attentions=True, return_dict_in_generate=True)
        assert all(
            one.shape[1] == HEADS for step in weights[-2 if "past_key_values" in weights else -1] for one in step
        )


class TestGroupedHeads:
    def test_each_key_head_serves_its_queries(self) -> None:
        """The weights that were drawn, applied by hand to repeated values, give the output."""
        model, batch = converted("llama"), inputs_of("llama")
        seen: dict[str, Tensor] = {}
        attention = model.model.layers[0].self_attn
        attention.v_proj.register_forward_hook(lambda *call: seen.update(values=call[2]))
        attention.o_proj.register_forward_pre_hook(lambda *call: seen.update(context=call[1][0]))
        outputs = model(**batch, output_attentions=True)
        values = seen["values"].view(2, LENGTH, 2, 8).transpose(1, 2).repeat_interleave(2, dim=1)
        context = (outputs.attentions[0] @ values).transpose(1, 2).flatten(2)
        torch.testing.assert_close(context, seen["context"])


class TestPositionBias:
    def test_it_enters_the_drawn_weights(self) -> None:
        """A bias that forces every head of T5 to look at its own position survives the noise."""
        model = converted("t5")
        with torch.no_grad():
            bias = model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight
            bias.zero_()
            bias[0] = 1000.0  # bucket 0 is the query's own position
        weights = model(**inputs_of("t5"), output_attentions=True).encoder_attentions[0]
        own = weights.diagonal(dim1=-2, dim2=-1)
        assert own[0].min() > 0.99


def test_tuples_come_back_as_tuples() -> None:
    model, batch = converted("bert").train(), inputs_of("bert")
    set_sampling(model, True, seed=1)
    torch.manual_seed(0)
    outputs = model(**batch)
    torch.manual_seed(0)
    as_tuple = model(**batch, return_dict=False)
    assert isinstance(as_tuple, tuple) and len(as_tuple) == 5  # loss, logits, kl, kl_cost, task_loss
    assert torch.equal(as_tuple[0], loss_of(outputs)) and torch.equal(as_tuple[2], outputs.kl)
