"""The KL in the loss of converted models: its size, schedule, recomputation, and losses that others compute."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from probattn import Linear, Weibull, make_stochastic, record_latents, set_sampling
from tests.integrations.transformers_zoo import (
    BERT,
    HEADS,
    LAYERS,
    LENGTH,
    PADDED,
    VISION,
    ZOO,
    build,
    inputs_of,
    loss_of,
    transformers,
    without_dropout,
)

from probattn.integrations.transformers import kl_weight, set_kl_step  # isort: skip

pytestmark = pytest.mark.filterwarnings("ignore:Version v4.12.0 introduces:FutureWarning")
FAMILY = Weibull(2.0, anchor="softmax")


def converted(name: str, **kwargs: Any) -> Any:
    model = make_stochastic(build(name), FAMILY, **kwargs)
    without_dropout(model)
    return model


def gradients(model: Any, batch: dict[str, Tensor]) -> tuple[Any, dict[str, Tensor]]:
    model.zero_grad()
    torch.manual_seed(5)
    outputs = model(**batch)
    loss_of(outputs).backward()
    return outputs, {key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None}


class TestLoss:
    @pytest.mark.parametrize("name", ZOO)
    def test_it_is_the_original_plus_the_cost(self, name: str) -> None:
        model, batch = converted(name, kl_weight=0.5, kl_per="example"), inputs_of(name)
        set_sampling(model, True, seed=1)
        outputs = model(**batch)
        torch.testing.assert_close(outputs.kl_cost, 0.5 * outputs.kl.mean())
        if "loss" in outputs:
            model.eval()
            torch.testing.assert_close(model(**batch).loss + outputs.kl_cost, outputs.loss)

    def test_cost_per_weight(self) -> None:
        model, batch = converted("bert", kl_weight=3.0), inputs_of("bert")
        outputs = model(**batch)
        num_weights = LAYERS * HEADS * torch.tensor([LENGTH**2, PADDED**2])
        torch.testing.assert_close(outputs.kl_cost, 3.0 * (outputs.kl / num_weights).mean())

    def test_cost_per_weight_of_causal_attention(self) -> None:
        model, batch = converted("llama"), inputs_of("llama")
        outputs = model(**batch)
        pairs = [length * (length + 1) // 2 for length in (LENGTH, PADDED)]
        torch.testing.assert_close(outputs.kl_cost, (outputs.kl / (LAYERS * HEADS * torch.tensor(pairs))).mean())

    def test_no_prior_no_cost(self) -> None:
        model, batch = converted("bert", prior=None), inputs_of("bert")
        outputs = model(**batch)
        assert torch.equal(outputs.kl, torch.zeros(2)) and outputs.kl_cost == 0

    def test_evaluation_has_no_kl_unless_someone_records(self) -> None:
        model, batch = converted("bert").eval(), inputs_of("bert")
        set_sampling(model, True, seed=1)
        outputs = model(**batch)
        assert list(outputs) == ["loss", "logits"]
        with record_latents(model) as record:
            recorded = model(**batch)
        assert torch.equal(outputs.loss, recorded.loss)
        torch.testing.assert_close(record.kl(), recorded.kl)

    def test_windows_of_one_image_are_one_example(self) -> None:
        """Swin attends inside windows, which it puts side by side into the batch."""
        config = transformers.SwinConfig(
            image_size=16, patch_size=2, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=2
        )
        model = transformers.SwinForImageClassification(config)
        make_stochastic(model, FAMILY)
        with record_latents(model) as record:
            outputs = model(pixel_values=torch.randn(3, 3, 16, 16))
        assert outputs.kl.shape == (3,)
        torch.testing.assert_close(outputs.kl.sum(), sum(latent.kl.sum() for latent in record.latents))

    def test_answers_to_choose_from_are_one_example(self) -> None:
        model = transformers.BertForMultipleChoice(transformers.BertConfig(**BERT))
        make_stochastic(model, FAMILY)
        outputs = model(input_ids=torch.randint(3, 50, (2, 3, 4)), labels=torch.tensor([0, 2]))
        assert outputs.kl.shape == (2,)

    def test_two_towers_on_different_batches(self) -> None:
        text = transformers.CLIPTextConfig(**{**BERT, "num_hidden_layers": 1}, projection_dim=8, eos_token_id=2)
        vision = transformers.CLIPVisionConfig(**{**VISION, "num_hidden_layers": 1}, projection_dim=8)
        model = transformers.CLIPModel(
            transformers.CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=8)
        )
        make_stochastic(model, FAMILY)
        ids, images = torch.randint(3, 50, (2, 4)), torch.randn(3, 3, 16, 16)
        assert model(input_ids=ids, pixel_values=images[:2]).kl.shape == (2,)
        with pytest.raises(ValueError, match=r"attention ran on batches of \[2, 3\] rows for 2 examples"):
            model(input_ids=ids, pixel_values=images)


class TestSchedule:
    def test_it_follows_the_step(self) -> None:
        model, batch = converted("bert", kl_weight=Linear(0.0, 1.0, steps=4)), inputs_of("bert")
        set_sampling(model, True, seed=1)
        costs = []
        for step in (0, 1, 4, 9):
            set_kl_step(model, step)
            costs.append(model(**batch).kl_cost.item())
        assert costs[0] == 0 and kl_weight(model) == 1.0
        assert costs[2] == costs[3] == pytest.approx(4 * costs[1])

    def test_a_model_that_was_not_converted(self) -> None:
        with pytest.raises(ValueError, match="BertForSequenceClassification has no converted transformers model"):
            set_kl_step(build("bert"), 1)


class TestCheckpointing:
    @pytest.mark.parametrize("name", [name for name, row in ZOO.items() if row.checkpoints])
    def test_same_kl_and_gradients(self, name: str) -> None:
        model, batch = converted(name), inputs_of(name)
        expected, plain = gradients(model, batch)
        model.gradient_checkpointing_enable()
        with record_latents(model) as record:
            outputs, recomputed = gradients(model, batch)
        assert len(record.latents) == ZOO[name].calls
        assert torch.equal(outputs.kl, expected.kl)
        assert plain.keys() == recomputed.keys()
        for key, grad in plain.items():
            torch.testing.assert_close(recomputed[key], grad, atol=1e-4, rtol=1e-4, msg=key)

    @pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")
    def test_reentrant_checkpointing_is_refused(self) -> None:
        model = converted("bert")
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
        with pytest.raises(RuntimeError, match="the KL has no gradient: reentrant checkpointing cuts it off"):
            model(**inputs_of("bert"))


class TestLossOfTheCaller:
    """Without labels a model has no loss; whoever computes one has to add the KL, or is told so."""

    def trains(self, model: Any, loss_from: Any, *, passes: int = 3) -> list[str]:
        """Texts of the warnings in some training passes."""
        batch = inputs_of("bert", labels=False)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(passes):
                loss_from(model(**batch))
        return [str(one.message) for one in caught]

    def test_a_kl_that_is_left_out_gets_one_warning(self) -> None:
        model = converted("bert")
        (told,) = self.trains(model, lambda outputs: outputs.logits.sum().backward(), passes=6)
        assert told.startswith(
            "expected the KL of the attention weights in the loss, but in the last training pass of "
        )
        assert "BertForSequenceClassification gradients came to the outputs and none to the KL" in told
        assert "Add outputs.kl_cost to the loss" in told and "label_smoothing_factor pops the labels" in told

    @pytest.mark.parametrize("entry", ["kl", "kl_cost"])
    def test_whoever_adds_it_is_left_alone(self, entry: str) -> None:
        model = converted("bert")
        assert not self.trains(model, lambda outputs: (outputs.logits.sum() + outputs[entry].sum()).backward())

    def test_also_in_a_backward_pass_of_its_own(self) -> None:
        def one_after_the_other(outputs: Any) -> None:
            outputs.logits.sum().backward(retain_graph=True)
            outputs.kl_cost.backward()

        assert not self.trains(converted("bert"), one_after_the_other)

    def test_passes_without_a_backward_pass_are_no_training(self) -> None:
        model = converted("bert")
        assert not self.trains(model, lambda outputs: None)
        with torch.no_grad():
            assert not self.trains(model, lambda outputs: None)

    @pytest.mark.parametrize("options", [{"prior": None}, {"kl_weight": 0.0}])
    def test_without_a_kl_there_is_nothing_to_say(self, options: dict[str, Any]) -> None:
        assert not self.trains(converted("bert", **options), lambda outputs: outputs.logits.sum().backward())

    def test_whoever_records_is_left_alone(self) -> None:
        model, batch = converted("bert"), inputs_of("bert", labels=False)
        for _ in range(3):  # a warning would be an error here
            with record_latents(model) as record:
                logits = model(**batch).logits
            (logits.sum() + record.kl().sum()).backward()

    def test_with_labels_the_model_has_added_it(self) -> None:
        model, batch = converted("bert"), inputs_of("bert")
        for _ in range(3):
            model(**batch).loss.backward()
