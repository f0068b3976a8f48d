"""Edges of converted models: recomputation, other outputs, schedules, masks, modules that are hard to reach."""

import pickle
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from probattn import (
    GammaPrior,
    KeyPrior,
    Linear,
    Weibull,
    make_stochastic,
    record_latents,
    sampling,
    undo,
)
from tests.integrations.transformers_zoo import (
    BERT,
    HEADS,
    LAYERS,
    VISION,
    AroundBert,
    build,
    inputs_of,
    sites,
    transformers,
    without_dropout,
)

from probattn.integrations.transformers import set_kl_step  # isort: skip
from probattn.integrations.transformers.attention import StochasticAttention  # isort: skip

FAMILY = Weibull(2.0, anchor="softmax")


class TestRecomputation:
    @pytest.mark.parametrize("frozen", [False, True])
    def test_reentrant_checkpointing_is_refused_without_a_trainable_prior(self, frozen: bool) -> None:
        model = make_stochastic(build("bert"), FAMILY, "contextual" if frozen else "fixed")
        without_dropout(model)
        for site in sites(model):
            site.requires_grad_(False)
        assert model(**inputs_of("bert")).kl.requires_grad
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
        model.enable_input_require_grads()
        with pytest.raises(RuntimeError, match="the KL has no gradient: reentrant checkpointing cuts it off"):
            model(**inputs_of("bert"))

    def test_a_frozen_encoder_is_no_alarm(self) -> None:
        model = make_stochastic(build("bert"), FAMILY, "fixed").train()
        model.bert.requires_grad_(False)
        outputs = model(**inputs_of("bert"))
        assert not outputs.kl.requires_grad and outputs.loss.requires_grad

    @pytest.mark.parametrize("enabled", [True, False])
    def test_the_switch_of_the_forward_pass_is_repeated(self, enabled: bool) -> None:
        """Also where two passes with different seeds come before one backward pass."""
        model, batch = make_stochastic(build("bert"), Weibull(1.0, anchor="softmax"), None), inputs_of("bert")
        without_dropout(model)

        def gradient() -> Tensor:
            model.zero_grad()
            losses = []
            for seed in (3, 4):
                with sampling(model, enabled, seed=seed):
                    losses.append(model(**batch).loss)
            (losses[0] + 2.0 * losses[1]).backward()
            return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

        expected = gradient()
        model.gradient_checkpointing_enable()
        torch.testing.assert_close(gradient(), expected, atol=1e-5, rtol=1e-4)
        function = model.bert.encoder.layer[0]._gradient_checkpointing_func
        assert function.func is torch.utils.checkpoint.checkpoint  # nothing of ours stays there


class Returning(AroundBert):
    """Someone's model around BERT, with an output of another kind."""

    kind = "tensor"

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None) -> Any:
        logits = self.logits_of(input_ids, attention_mask)
        if self.kind == "dict":
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}
        return logits if self.kind == "tensor" else (logits, logits)


def returning(kind: str, prior: Any) -> Any:
    model = Returning(transformers.BertConfig(**BERT))
    model.kind = kind
    return make_stochastic(model, FAMILY, prior).train()


class TestOutputs:
    @pytest.mark.parametrize("kind", ["tensor", "tuple"])
    def test_what_cannot_carry_a_kl(self, kind: str) -> None:
        model, batch = returning(kind, "fixed"), inputs_of("bert")
        with pytest.raises(TypeError, match="which cannot carry a KL; return a dictionary or .*record_latents"):
            model(**batch)
        with record_latents(model) as record:
            model(**batch)
        assert record.kl().shape == (2,) and record.kl().requires_grad
        assert isinstance(returning(kind, None)(**batch), Tensor if kind == "tensor" else tuple)

    def test_a_configuration_that_wants_tuples(self) -> None:
        """The model's own `forward` does not know `return_dict`."""
        plain = type("Plain", (Returning,), {"forward": lambda self, input_ids: self.head(self.bert(input_ids)[1])})
        made = make_stochastic(plain(transformers.BertConfig(**BERT, return_dict=False)), FAMILY, None).train()
        assert made(inputs_of("bert")["input_ids"]).shape == (2, 2)

    def test_dictionaries(self) -> None:
        outputs = returning("dict", "fixed")(**inputs_of("bert"))
        assert type(outputs) is dict and list(outputs) == ["loss", "logits", "kl", "kl_cost", "task_loss"]
        torch.testing.assert_close(outputs["loss"], outputs["task_loss"] + outputs["kl_cost"])

    def test_they_can_be_pickled(self) -> None:
        model = make_stochastic(build("bert"), FAMILY).train()
        with torch.no_grad():
            outputs = model(**inputs_of("bert"))
        again = pickle.loads(pickle.dumps(outputs))
        assert type(again) is type(outputs) and list(again) == list(outputs)
        assert all(torch.equal(again[key], outputs[key]) for key in outputs)


class TestSchedule:
    def passes(self, model: Any, number: int) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(number):
                model(**inputs_of("bert"))
        return [str(one.message) for one in caught]

    def test_nobody_tells_the_step(self) -> None:
        model = make_stochastic(build("bert"), FAMILY, "fixed", layers=[0], kl_weight=Linear(0.25, 1.0, steps=4))
        assert not self.passes(model.eval(), 101)
        (told,) = self.passes(model.train(), 220)
        assert told.startswith("kl_weight has a schedule, but after 100 training passes nobody has told the step: it ")
        assert "still is 0.25" in told and "set_kl_step" in told

    def test_someone_tells_it(self) -> None:
        model = make_stochastic(build("bert"), FAMILY, "fixed", layers=[0], kl_weight=Linear(0.0, 1.0, steps=4))
        set_kl_step(model, 0)
        assert not self.passes(model.train(), 101)
        undo(model)
        make_stochastic(model, FAMILY, "fixed", layers=[0])
        assert not self.passes(model.train(), 101)


class TestHeadsAndMasks:
    def test_numbers_per_head_are_of_the_chosen_heads(self) -> None:
        seen = []

        def prior(place: Any) -> KeyPrior:
            seen.append(place.num_heads)
            return KeyPrior(place.head_dim, GammaPrior(), num_heads=place.num_heads)

        family = Weibull(torch.tensor([1.0, 2.0]).view(2, 1, 1), anchor="softmax")
        model = make_stochastic(build("bert"), family, prior, heads=[0, 2]).train()
        assert seen == [2] * LAYERS
        assert model(**inputs_of("bert")).kl.shape == (2,)

    def test_numbers_per_head_that_do_not_fit(self) -> None:
        model = build("bert")
        family = Weibull(torch.ones(HEADS, 1, 1), anchor="softmax")
        with pytest.raises(ValueError, match=r"Weibull does not take scores .* 2 heads .* of shape \(2, 1, 1\)"):
            make_stochastic(model, family, heads=[0, 2])
        assert not sites(model)

    @pytest.mark.parametrize("enabled", [True, False])
    def test_whole_numbers_in_a_mask_of_four_axes(self, enabled: bool) -> None:
        model, batch = make_stochastic(build("bert"), FAMILY), inputs_of("bert")
        four = batch["attention_mask"][:, None, None, :].expand(-1, 1, batch["input_ids"].shape[1], -1)
        with (
            sampling(model, enabled),
            pytest.raises(TypeError, match="with 4 axes must be bool .* got torch.int64; pass attention_mask.bool"),
        ):
            model(**{**batch, "attention_mask": four})
        with sampling(model, enabled, seed=1):
            torch.testing.assert_close(model(**{**batch, "attention_mask": four.bool()}).logits, model(**batch).logits)


class TestReach:
    """Attention modules that say `head_size`, or nothing but their projections."""

    def test_pythia(self) -> None:
        config = transformers.GPTNeoXConfig(**BERT)
        model = make_stochastic(transformers.GPTNeoXForCausalLM(config), FAMILY).train()
        assert [(site.place.num_heads, site.place.head_dim) for site in sites(model)] == [(HEADS, 8)] * LAYERS
        assert model(**inputs_of("gpt2")).kl.shape == (2,)

    @pytest.mark.parametrize("kind", ["relative_key", "relative", "rotary"])
    def test_positions_of_wav2vec2_bert(self, kind: str) -> None:
        """Its scores for positions are in the mask; noise that is next to nothing leaves what eager attention has."""
        config = transformers.Wav2Vec2BertConfig(
            **{key: value for key, value in BERT.items() if "position" not in key},
            **{"feature_projection_input_dim": 16, "position_embeddings_type": kind},
        )
        model = transformers.Wav2Vec2BertForSequenceClassification(config).eval()
        model.set_attn_implementation("eager")
        features = torch.randn(2, 9, 16)
        with torch.no_grad():
            expected = model(features).logits
            make_stochastic(model, Weibull(1e6, anchor="softmax"))
            torch.testing.assert_close(model(features).logits, expected, atol=1e-5, rtol=1e-4)
            with sampling(model, False):
                assert torch.equal(model(features).logits, expected)

    def test_the_width_of_sams_heads(self) -> None:
        from transformers.models.sam.modeling_sam import SamAttention

        from probattn.integrations.transformers.reach import find_places

        config = transformers.SamMaskDecoderConfig(hidden_size=32, num_attention_heads=4, attention_downsample_rate=2)
        holder: Any = nn.ModuleDict({"attention": SamAttention(config, downsample_rate=2)})
        (place,) = find_places(holder)
        assert (place.num_heads, place.head_dim) == (4, 4)


class TestTorchsAttention:
    """torch.nn.MultiheadAttention beside or inside a model of transformers."""

    def test_beside(self) -> None:
        model = nn.ModuleDict({"text": build("bert"), "pool": nn.TransformerEncoderLayer(32, HEADS, 48)})
        with pytest.raises(ValueError, match="holds a model of transformers, text, beside .* convert that model first"):
            make_stochastic(model, FAMILY)
        assert not any(isinstance(module, StochasticAttention) for module in model.modules())
        make_stochastic(model["text"], FAMILY)
        make_stochastic(model, FAMILY)
        assert type(model["pool"].self_attn).__name__ == "ConvertedMultiheadAttention"
        undo(model)
        assert type(model["pool"].self_attn) is nn.MultiheadAttention and not sites(model)

    def test_beside_a_model_without_attention(self) -> None:
        resnet = transformers.ResNetModel(transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1]))
        model = nn.ModuleDict({"image": resnet, "pool": nn.TransformerEncoderLayer(32, HEADS, 48)})
        make_stochastic(model, FAMILY)
        undo(model)

    def test_inside(self) -> None:
        model = transformers.SiglipVisionModel(transformers.SiglipVisionConfig(**VISION))
        with pytest.warns(UserWarning, match="head.attention of SiglipVisionModel is a torch.nn.MultiheadAttention"):
            make_stochastic(model, FAMILY)
        make_stochastic(undo(model), FAMILY, layers=[0])  # who chooses layers does not ask for all attention


def test_windows_that_are_hidden_by_minus_100_are_not_in_the_kl() -> None:
    """Swin's shifted windows; with them the KL of every weight was several times that of the other blocks."""
    torch.manual_seed(0)
    config = transformers.SwinConfig(
        image_size=32, patch_size=4, embed_dim=16, depths=[2], num_heads=[2], window_size=4, num_labels=2
    )
    model = transformers.SwinForImageClassification(config).train()
    make_stochastic(model)
    with record_latents(model) as record:
        model(torch.randn(2, 3, 32, 32))
    kls = [float(latent.kl.detach().mean()) for latent in record.latents]
    assert len(kls) == 2 and 0.0 < kls[1] < kls[0]  # fewer keys a query, and so a smaller sum


def test_answers_to_choose_from_are_one_example_whatever_they_are_given_as() -> None:
    torch.manual_seed(0)
    model = transformers.BertForMultipleChoice(transformers.BertConfig(**BERT))
    make_stochastic(model, FAMILY, "fixed", kl_per="example")
    without_dropout(model)
    ids = torch.randint(3, BERT["vocab_size"], (2, 3, 5))  # two questions of three answers
    vectors = model.get_input_embeddings()(ids)
    torch.manual_seed(1)
    by_number = model(ids)
    torch.manual_seed(1)
    by_vector = model(inputs_embeds=vectors)
    assert by_number.kl.shape == by_vector.kl.shape == (2,)
    assert torch.allclose(by_number.kl_cost, by_vector.kl_cost)


def test_labels_that_are_no_tensor() -> None:
    torch.manual_seed(0)
    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8] * 4, depths=[1] * 4, out_features=["stage4"], layer_type="basic"
    )
    sizes = {"d_model": 16, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "num_queries": 3, "num_labels": 2}
    depths = {f"{part}_{what}": 2 for part in ("encoder", "decoder") for what in ("layers", "attention_heads")}
    config = transformers.DetrConfig(backbone_config=backbone, **sizes, **depths)
    model = transformers.DetrForObjectDetection(config)
    make_stochastic(model, FAMILY)
    model.train()
    boxes = [{"class_labels": torch.tensor([1]), "boxes": torch.full((1, 4), 0.3)}] * 2
    outputs = model(torch.randn(2, 3, 64, 64), labels=boxes)
    assert outputs.kl.shape == (2,) and torch.allclose(outputs.loss, outputs.task_loss + outputs.kl_cost)
