"""What is converted, what is refused, what is undone, and what a folder keeps."""

import copy
import inspect
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from probattn import (
    Categorical,
    Constant,
    Fixed,
    GammaPrior,
    GumbelSoftmax,
    KeyPrior,
    Linear,
    Lognormal,
    LognormalPrior,
    Weibull,
    load_stochastic,
    make_stochastic,
    record_latents,
    sampling,
    undo,
)
from tests.integrations.transformers_zoo import (
    BART,
    BERT,
    HEADS,
    LAYERS,
    LENGTH,
    VISION,
    VOCABULARY,
    ZOO,
    build,
    inputs_of,
    result_of,
    transformers,
)

from probattn.integrations.transformers import kl_weight, set_kl_step  # isort: skip
from probattn.integrations.transformers.attention import StochasticAttention  # isort: skip


@dataclass(frozen=True)
class Tempered(Weibull):
    """A family that the library does not have."""


pytestmark = pytest.mark.filterwarnings("ignore:Version v4.12.0 introduces:FutureWarning")
FAMILY = Weibull(2.0, anchor="softmax")


def paths(model: Any) -> list[str]:
    return [path for path, module in model.named_modules() if isinstance(module, StochasticAttention)]


class TestSelection:
    def test_layers(self) -> None:
        model = make_stochastic(build("bert"), FAMILY, layers=[-1])
        assert paths(model) == ["bert.encoder.layer.1.attention.self.stochastic"]
        with record_latents(model) as record:
            model(**inputs_of("bert"))
        assert record.names == ["bert.encoder.layer.1.attention.self"]

    def test_layers_below_the_first_are_eager_attention(self) -> None:
        model = make_stochastic(build("bert"), FAMILY, layers=range(1, LAYERS))
        expected = build("bert")(**inputs_of("bert"), output_hidden_states=True).hidden_states
        states = model(**inputs_of("bert"), output_hidden_states=True).hidden_states
        assert torch.equal(states[1], expected[1]) and not torch.allclose(states[2], expected[2], atol=1e-4)

    @pytest.mark.parametrize("name", ["t5", "bart", "encoder-decoder"])
    @pytest.mark.parametrize(("only", "number"), [("self", 2), ("cross", 1), ("all", 3)])
    def test_kinds(self, name: str, only: Any, number: int) -> None:
        model = make_stochastic(build(name), FAMILY, only=only, layers=[0])
        assert len(paths(model)) == number
        crosses = [path for path in paths(model) if "EncDec" in path or "cross" in path or "encoder_attn" in path]
        assert len(crosses) == (0 if only == "self" else 1)

    @pytest.mark.parametrize("name", ["bert", "llama", "t5"])
    def test_heads(self, name: str) -> None:
        """Heads that do not draw have the weights of eager attention, those that do have others."""
        batch = inputs_of(name)
        key = "encoder_attentions" if name == "t5" else "attentions"
        expected = build(name)(**batch, output_attentions=True)[key][0]
        model = make_stochastic(build(name), FAMILY, heads=[3, 1])
        with record_latents(model) as record:
            weights = model(**batch, output_attentions=True)[key][0]
        assert torch.equal(weights[:, [0, 2]], expected[:, [0, 2]])
        assert not torch.allclose(weights[:, 1], expected[:, 1], atol=1e-3)
        assert not torch.allclose(weights[:, 3], expected[:, 3], atol=1e-3)
        assert all(latent.kl.shape[1] == 2 for latent in record.latents)

    def test_all_heads_by_number_are_all_heads(self) -> None:
        batch, results = inputs_of("llama"), []
        for heads in (None, range(HEADS)):
            model = make_stochastic(build("llama"), FAMILY, heads=heads)
            with sampling(model, True, seed=1):
                results.append(result_of(model, batch))
        torch.testing.assert_close(results[0], results[1])


class TestPriors:
    def test_contextual(self) -> None:
        model = make_stochastic(build("bert"), FAMILY)
        prior = model.bert.encoder.layer[0].attention.self.stochastic.prior
        assert isinstance(prior, KeyPrior) and prior.family == GammaPrior(rate=1e-2)
        assert prior.hidden_weight.shape == (1, 8, 5) and prior.normalises == "memory"

    def test_contextual_in_causal_attention_looks_at_no_later_key(self) -> None:
        model = make_stochastic(build("gpt2"), FAMILY)
        assert model.transformer.h[0].attn.stochastic.prior.normalises == "set"
        batch = inputs_of("gpt2", labels=False)
        other = {**batch, "input_ids": batch["input_ids"].clone()}
        other["input_ids"][:, -1] = 7
        kls = []
        for one in (batch, other):
            with sampling(model, True, seed=2), record_latents(model) as record:
                model(**one)
            kls.append(record.latents[0].kl[0, :, :-1])
        torch.testing.assert_close(kls[0], kls[1])

    def test_a_text_encoder_with_causal_masks_is_causal(self) -> None:
        """CLIP's attention modules say nothing of it; BERT's, which can be a decoder, are not meant."""
        config = transformers.CLIPTextConfig(**{**BERT, "max_position_embeddings": 16})
        model = make_stochastic(transformers.CLIPTextModel(config), FAMILY).eval()
        sites = [module for module in model.modules() if isinstance(module, StochasticAttention)]
        assert len(sites) == LAYERS and all(site.prior.normalises == "set" for site in sites)
        words = torch.randint(3, VOCABULARY - 1, (1, 6))
        other = words.clone()
        other[0, -1] = 7
        kls = []
        for one in (words, other):
            with sampling(model, True, seed=2), record_latents(model) as record:
                model(one)
            kls.append(record.latents[0].kl[..., :-1])
        torch.testing.assert_close(kls[0], kls[1])

    def test_keys_that_are_wider_than_their_rotated_part(self) -> None:
        config = transformers.DeepseekV3Config(
            **{"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": HEADS},
            **{"num_key_value_heads": HEADS, "intermediate_size": 48, "moe_intermediate_size": 16, "n_group": 1},
            **{"n_routed_experts": 4, "topk_group": 1, "num_experts_per_tok": 2, "q_lora_rank": 16},
            **{"kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8},
        )
        model = make_stochastic(transformers.DeepseekV3ForCausalLM(config), FAMILY).train()
        assert model(torch.randint(3, VOCABULARY, (2, 6))).kl.shape == (2,)

    def test_fixed_has_no_parameters(self) -> None:
        model = make_stochastic(build("bert"), Lognormal(0.3, anchor="softmax"), "fixed").train()
        assert model.state_dict().keys() == build("bert").state_dict().keys()
        assert (model(**inputs_of("bert")).kl > 0).all()

    def test_a_function_of_the_place(self) -> None:
        places = []

        def prior(place: Any) -> Fixed:
            places.append((place.path, place.kind, place.number, place.num_heads, place.head_dim))
            return Fixed(GammaPrior(rate=1.0), psi=1.0)

        make_stochastic(build("bert"), FAMILY, prior)
        assert places == [(f"bert.encoder.layer.{n}.attention.self", "self", n, HEADS, 8) for n in range(LAYERS)]

    def test_other_families_draw_without_a_prior(self) -> None:
        model = make_stochastic(build("bert"), GumbelSoftmax(0.5), None)
        with sampling(model, False):
            soft = result_of(model, inputs_of("bert"))
        assert not torch.allclose(result_of(model, inputs_of("bert")), soft, atol=1e-4)

    def test_the_default_is_the_softmax_anchor(self) -> None:
        model = make_stochastic(build("bert"))
        assert model.bert.encoder.layer[0].attention.self.stochastic.family == Weibull(10.0, anchor="softmax")

    def test_the_exp_anchor_gets_a_warning(self) -> None:
        with pytest.warns(UserWarning, match="anchor='exp' puts exp.scores. into the KL"):
            make_stochastic(build("bert"), Weibull(10.0))
        make_stochastic(build("bert"), Weibull(10.0), None)  # without a prior it makes no difference


def unreachable() -> dict[str, Any]:
    small = {key: value for key, value in BERT.items() if key != "pad_token_id"}
    return {
        "DebertaV2Model": transformers.DebertaV2Model(transformers.DebertaV2Config(**small)),
        "VisualBertModel": transformers.VisualBertModel(transformers.VisualBertConfig(**small, visual_embedding_dim=8)),
        "XLNetModel": transformers.XLNetModel(
            transformers.XLNetConfig(vocab_size=50, d_model=32, n_layer=1, n_head=4, d_inner=48)
        ),
        "LEDModel": transformers.LEDModel(transformers.LEDConfig(**BART, attention_window=4)),
        "Gemma2Model": transformers.Gemma2Model(
            transformers.Gemma2Config(
                **{"vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1},
                **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8},
            )
        ),
        "DiffLlamaModel": transformers.DiffLlamaModel(
            transformers.DiffLlamaConfig(
                **{"vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1},
                **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8},
            )
        ),
        "GPT2Model": transformers.GPT2Model(
            transformers.GPT2Config(
                **{"vocab_size": 50, "n_embd": 32, "n_layer": 1, "n_head": 4, "reorder_and_upcast_attn": True},
                **{"bos_token_id": 0, "eos_token_id": 2},
            )
        ),
    }


class TestErrors:
    @pytest.mark.parametrize("name", list(unreachable()))
    def test_models_with_attention_of_their_own(self, name: str) -> None:
        model = unreachable()[name]
        keys = list(model.state_dict())
        with pytest.raises(
            ValueError, match=f"{name} computes attention in its own way .* BERT, .*EncoderDecoder, and"
        ):
            make_stochastic(model)
        assert list(model.state_dict()) == keys and not paths(model)

    def test_a_model_around_one_of_transformers(self) -> None:
        class Wrapper(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.text = build("bert").bert

            def forward(self, **inputs: Any) -> Any:
                return self.text(**inputs)

        model = Wrapper()
        with pytest.raises(ValueError, match="holds one, text; convert that one, make_stochastic.model.text."):
            make_stochastic(model)
        make_stochastic(model.text)
        outputs = model.train()(**inputs_of("bert", labels=False))
        assert outputs.kl.shape == (2,)
        assert outputs.kl_cost.requires_grad

    def test_models_without_attention(self) -> None:
        model = transformers.ResNetModel(transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1]))
        with pytest.raises(ValueError, match="ResNetModel has no attention that transformers' attention interface"):
            make_stochastic(model)

    def test_what_is_no_model(self) -> None:
        name: Any = "bert-base-uncased"
        with pytest.raises(TypeError, match="an nn.Module, got 'bert-base-uncased'; load it first, e.g. AutoModel"):
            make_stochastic(name)
        with pytest.raises(TypeError, match="an nn.Module, got None$"):
            undo(None)  # type: ignore[type-var]

    def test_twice(self) -> None:
        model = make_stochastic(build("bert"), FAMILY, layers=[0])
        with pytest.raises(ValueError, match=r"has stochastic attention already; undo\(model\) first"):
            make_stochastic(model, FAMILY, layers=[1])

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"layers": [LAYERS]}, r"layers must be numbers from -2 to 1, at least one; got \[2\]"),
            ({"layers": []}, "layers must be numbers from -2 to 1, at least one"),
            ({"heads": [HEADS]}, "heads must be numbers from 0 to 3, at least one"),
            ({"heads": []}, "heads must be numbers from 0 to 3, at least one"),
            ({"only": "both"}, "only must be 'self', 'cross' or 'all', got 'both'"),
            ({"only": "cross"}, "the model has no cross-attention, only self-attention"),
            ({"prior": "learned"}, "prior must be 'contextual', 'fixed', a prior family .* got 'learned'"),
            (
                {"family": Lognormal(0.1, anchor="softmax"), "prior": GammaPrior()},
                "no KL of Lognormal weights to a Gamma",
            ),
            (
                {"prior": lambda place: KeyPrior(place.head_dim, LognormalPrior(), hidden_dim=2)},
                "no KL of Weibull weights to a LognormalPrior; pass prior='contextual'",
            ),
            ({"family": Weibull(10.0, anchor="soft")}, "anchor must be 'exp' or 'softmax', got 'soft'"),
            ({"kl_weight": -0.5}, "kl_weight must be finite and not negative, got -0.5 at step 0"),
            ({"kl_weight": float("nan")}, "kl_weight must be finite and not negative, got nan"),
            ({"kl_per": "token"}, "kl_per must be 'weight' or 'example', got 'token'"),
            ({"family": GumbelSoftmax()}, "GumbelSoftmax weights have no usual prior"),
            ({"family": Categorical(), "prior": None}, "Categorical makes hard choices"),
        ],
    )
    def test_arguments(self, arguments: dict[str, Any], message: str) -> None:
        model = build("bert")
        with pytest.raises(ValueError, match=message):
            make_stochastic(model, **{"family": FAMILY, **arguments})
        assert not paths(model) and "forward" not in model.__dict__

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"family": "weibull"}, "family must be e.g. probattn.Weibull"),
            ({"prior": lambda place: place.head_dim}, "must return e.g. a KeyPrior, it returned 8"),
            (
                {"prior": KeyPrior(8, GammaPrior())},
                "prior got a KeyPrior; .* pass a function that makes it, e.g. prior=lambda place: KeyPrior",
            ),
            ({"kl_weight": "linear"}, "kl_weight must be a number or a schedule"),
            ({"layers": 1}, r"layers must be a list of whole numbers, e.g. layers=\[0\]; got 1"),
            ({"layers": "last"}, "layers must be a list of whole numbers, .* got 'last'"),
            ({"layers": [True]}, r"layers must be a list of whole numbers, .* got \[True\]"),
            ({"heads": 1}, r"heads must be a list of whole numbers, e.g. heads=\[0\]; got 1"),
            ({"heads": [0.5]}, r"heads must be a list of whole numbers, .* got \[0.5\]"),
        ],
    )
    def test_types(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(TypeError, match=message):
            make_stochastic(build("bert"), **{"family": FAMILY, **arguments})

    @pytest.mark.parametrize("name", ["bert", "t5", "encoder-decoder"])
    def test_another_implementation_afterwards(self, name: str) -> None:
        model = make_stochastic(build(name), FAMILY)
        model.set_attn_implementation("sdpa")
        with pytest.raises(
            RuntimeError, match="was set to 'sdpa' after the conversion, which would leave no attention"
        ):
            model(**inputs_of(name))
        undo(model)(**inputs_of(name))

    def test_nothing_to_undo(self) -> None:
        with pytest.raises(ValueError, match="was not converted: there is nothing to undo"):
            undo(build("bert"))


class TestUndo:
    @pytest.mark.parametrize("name", ZOO)
    def test_everything_is_as_before(self, name: str) -> None:
        model, batch = build(name, "sdpa"), inputs_of(name)
        expected = result_of(model, batch)  # which writes the kind of problem into the configuration
        before = (type(model), list(model.state_dict()), model.config.to_dict(), set(vars(model)))
        configs = {id(m.config): m.config._attn_implementation for m in model.modules() if hasattr(m, "config")}
        make_stochastic(model, FAMILY)
        assert undo(model) is model
        assert before == (type(model), list(model.state_dict()), model.config.to_dict(), set(vars(model)))
        after = {id(m.config): m.config._attn_implementation for m in model.modules() if hasattr(m, "config")}
        assert after == configs
        assert torch.equal(result_of(model, batch), expected)

    def test_trained_weights_stay(self) -> None:
        model = make_stochastic(build("bert"), FAMILY)
        with torch.no_grad():
            model.classifier.bias.add_(1.0)
        expected = build("bert").classifier.bias + 1.0
        assert torch.equal(undo(model).classifier.bias, expected)

    def test_a_forward_of_someone_else_is_kept(self) -> None:
        model, batch = build("bert"), inputs_of("bert")
        original, calls = model.forward, []

        def forward(*args: Any, **kwargs: Any) -> Any:
            calls.append(kwargs)
            return original(*args, **kwargs)

        model.forward = forward
        make_stochastic(model, FAMILY)
        model(**batch)
        assert len(calls) == 1
        assert undo(model).forward is forward

    def test_the_signature_is_that_of_the_model(self) -> None:
        expected = inspect.signature(build("bert").forward)
        assert inspect.signature(make_stochastic(build("bert"), FAMILY).forward) == inspect.Signature(
            list(expected.parameters.values())
        )


class TestFolders:
    @pytest.mark.parametrize("name", ZOO)
    def test_round_trip(self, name: str, tmp_path: Path) -> None:
        model = make_stochastic(build(name), FAMILY, GammaPrior(rate=0.1), layers=[-1], kl_weight=Linear(0.5, 1, 4))
        set_kl_step(model, 4)
        model.save_pretrained(tmp_path)
        loaded = load_stochastic(tmp_path)
        assert type(loaded) is type(model) and loaded.forward.settings == model.forward.settings
        assert paths(loaded) == paths(model) and not loaded.training
        assert kl_weight(loaded) == 0.5  # a step is not part of a model
        state = model.state_dict()
        assert state.keys() == loaded.state_dict().keys()
        assert all(torch.equal(tensor, state[key]) for key, tensor in loaded.state_dict().items())
        batch = inputs_of(name)
        with sampling(model, True, seed=1), sampling(loaded, True, seed=1), record_latents(loaded) as record:
            assert torch.equal(result_of(loaded, batch), result_of(model, batch))
        assert record.kl().shape == (2,)
        assert type(undo(loaded)) is type(model) and loaded.config._attn_implementation == "sdpa"

    def test_a_plain_model_can_be_loaded_from_it(self, tmp_path: Path) -> None:
        model = make_stochastic(build("bert"), FAMILY)
        model.save_pretrained(tmp_path)
        plain = type(model).from_pretrained(tmp_path, attn_implementation="eager")
        with sampling(model, False):
            assert torch.equal(result_of(plain, inputs_of("bert")), result_of(model, inputs_of("bert")))

    def test_functions_and_tensors(self, tmp_path: Path) -> None:
        def prior(place: Any) -> KeyPrior:
            return KeyPrior(place.head_dim, GammaPrior(), hidden_dim=2)

        model = make_stochastic(build("bert"), Weibull(torch.tensor(3.0), anchor="softmax"), prior, heads=[1])
        model.save_pretrained(tmp_path)
        with pytest.raises(ValueError, match="the priors of this model were made by a function; pass it again"):
            load_stochastic(tmp_path)
        loaded = load_stochastic(tmp_path, prior=prior)
        assert loaded.forward.settings.family.concentration == 3.0 and loaded.forward.settings.heads == (1,)
        assert loaded.forward.settings.kl_weight == Constant(1.0)

    def test_a_folder_without_a_conversion(self, tmp_path: Path) -> None:
        build("bert").save_pretrained(tmp_path)
        with pytest.raises(ValueError, match="holds no converted model; load it with from_pretrained"):
            load_stochastic(tmp_path)

    def test_a_folder_without_the_weights_of_the_priors(self, tmp_path: Path) -> None:
        model = make_stochastic(build("bert"), FAMILY)
        settings = model.config.stochastic_attention
        undo(model).save_pretrained(tmp_path)
        config = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps({**config, "stochastic_attention": settings}))
        with pytest.raises(ValueError, match="lacks weights of the priors: bert.encoder.layer.0"):
            load_stochastic(tmp_path)

    def test_a_class_of_a_later_release(self, tmp_path: Path) -> None:
        make_stochastic(build("bert"), FAMILY).save_pretrained(tmp_path)
        text = (tmp_path / "config.json").read_text().replace('"Weibull"', '"Cauchy"')
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ValueError, match="'Cauchy' is no family, prior family or schedule of this release"):
            load_stochastic(tmp_path)

    def test_a_family_of_ones_own(self, tmp_path: Path) -> None:
        model = make_stochastic(build("bert"), Tempered(7.0, anchor="softmax"), GammaPrior(rate=0.1))
        model.save_pretrained(tmp_path)
        again = load_stochastic(tmp_path)
        assert again.config.stochastic_attention == model.config.stochastic_attention
        assert again.config.stochastic_attention["family"]["class"] == f"{__name__}.Tempered"
        text = (tmp_path / "config.json").read_text().replace(f"{__name__}.Tempered", "mine.Tempered")
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ValueError, match=r"'mine.Tempered' is no family.*; if it is yours, import mine first"):
            load_stochastic(tmp_path)

    def test_a_prior_that_was_not_asked_for(self, tmp_path: Path) -> None:
        make_stochastic(build("bert"), FAMILY).save_pretrained(tmp_path)
        with pytest.raises(ValueError, match=r"saved with the prior 'contextual', .*; leave out prior=\.\.\."):
            load_stochastic(tmp_path, prior="fixed")

    def test_settings_that_someone_changed(self, tmp_path: Path) -> None:
        make_stochastic(build("bert"), FAMILY).save_pretrained(tmp_path)
        config = json.loads((tmp_path / "config.json").read_text())
        del config["stochastic_attention"]["prior"]
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(ValueError, match="conversion, with the entries family, prior, layers, .* got {'family'"):
            load_stochastic(tmp_path)

    @pytest.mark.parametrize("name", ["nothing", "a/b/c", "./nothing", "~/nothing"])
    def test_a_folder_that_is_not_there(self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        path: Any = Path(name) if name == "nothing" else name
        with pytest.raises(FileNotFoundError, match="there is no folder .*; name the one that save_pretrained wrote"):
            load_stochastic(path)
        with pytest.raises(FileNotFoundError, match="has no config.json; name the folder that save_pretrained wrote"):
            load_stochastic(tmp_path)

    def test_a_class_that_is_none(self, tmp_path: Path) -> None:
        make_stochastic(build("bert"), FAMILY).save_pretrained(tmp_path)
        with pytest.raises(TypeError, match="model_class must be a class of transformers' models, got 'BertModel'"):
            load_stochastic(tmp_path, model_class="BertModel")


class TestParts:
    """Several conversions inside one model."""

    def test_parts_follow_one_step_and_are_undone_together(self) -> None:
        text = transformers.CLIPTextConfig(**{**BERT, "max_position_embeddings": 16})
        vision = transformers.CLIPVisionConfig(**VISION)
        model = transformers.CLIPModel(
            transformers.CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict())
        )
        for part in (model.vision_model, model.text_model):
            make_stochastic(part, FAMILY, kl_weight=Linear(0.0, 1.0, steps=10))
        set_kl_step(model, 10)
        assert [float(kl_weight(part)) for part in (model.vision_model, model.text_model)] == [1.0, 1.0]
        undo(model)
        assert not any(isinstance(module, StochasticAttention) for module in model.modules())

    def test_a_pretrained_part_beside_torchs_layers(self) -> None:
        model = torch.nn.ModuleDict(
            {"bert": build("bert"), "top": torch.nn.TransformerEncoderLayer(32, HEADS, 48, batch_first=True)}
        )
        make_stochastic(model["bert"], FAMILY)
        make_stochastic(model["top"], FAMILY)
        undo(model)
        kinds = {type(module).__name__ for module in model.modules()}
        assert kinds.isdisjoint({"StochasticAttention", "ConvertedMultiheadAttention"})

    def test_two_models_with_one_configuration_are_refused(self) -> None:
        config = transformers.BertConfig(**BERT)
        first, second = (transformers.BertModel(config) for _ in range(2))
        make_stochastic(first, FAMILY)
        with pytest.raises(ValueError, match="a configuration of its own, copied before the first one is converted"):
            make_stochastic(second, FAMILY)
        third = transformers.BertModel(copy.deepcopy(config))  # a copy says that it is converted, and is nobody's
        with pytest.raises(ValueError, match=r"is a copy already, call model\.set_attn_implementation\('eager'\)"):
            make_stochastic(third, FAMILY)
        third.set_attn_implementation("eager")
        make_stochastic(third, FAMILY)
        undo(first)
        make_stochastic(second, FAMILY)
        undo(second)
        assert config._attn_implementation == "sdpa"


def test_a_static_cache_has_the_kl_of_a_growing_one() -> None:
    model = make_stochastic(build("llama"), FAMILY).eval()
    words = inputs_of("llama", labels=False)["input_ids"]
    kls = []
    for cache in (
        transformers.DynamicCache(config=model.config),
        transformers.StaticCache(config=model.config, max_cache_len=2 * LENGTH),
    ):
        with torch.no_grad(), sampling(model, True, seed=1), record_latents(model) as record:
            model(words, past_key_values=cache, use_cache=True)
            model(words[:, :2], past_key_values=cache, use_cache=True)
        kls.append(torch.stack([latent.kl.sum() for latent in record.latents]))
    assert bool((kls[0] > 0).all())
    torch.testing.assert_close(kls[0], kls[1], rtol=1e-4, atol=1e-4)
