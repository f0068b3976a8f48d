"""What a converted model learns and what its folder keeps: learnt numbers, own families, parts."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from probattn import (
    Fixed,
    GammaPrior,
    KeyPrior,
    Weibull,
    load_stochastic,
    make_stochastic,
    sampling,
    undo,
)
from probattn.core.schedules import Schedule
from probattn.core.support import Support
from probattn.distributions import Family
from probattn.nn import Conditional
from tests.integrations.transformers_zoo import (
    BERT,
    LAYERS,
    VISION,
    build,
    inputs_of,
    result_of,
    sites,
    transformers,
)

FAMILY = Weibull(2.0, anchor="softmax")


def learnt(value: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor(value))


def drawn(model: Any) -> Tensor:
    with sampling(model, True, seed=1), torch.no_grad():
        return result_of(model.eval(), inputs_of("bert"))


class TestLearntNumbers:
    @pytest.mark.parametrize("layers", [None, [-1]])
    def test_of_the_family(self, layers: list[int] | None, tmp_path: Path) -> None:
        concentration = learnt(10.0)
        model = make_stochastic(build("bert"), Weibull(concentration, anchor="softmax"), layers=layers).train()
        assert sum(parameter is concentration for parameter in model.parameters()) == 1
        model(**inputs_of("bert")).loss.backward()
        assert concentration.grad is not None and concentration.grad != 0
        with torch.no_grad():
            concentration.fill_(3.0)
        model.save_pretrained(tmp_path)
        loaded = load_stochastic(tmp_path)
        found = sites(loaded)[0].family.concentration
        assert isinstance(found, nn.Parameter) and found == 3.0
        assert sum(parameter is found for parameter in loaded.parameters()) == 1
        assert all(site.family.concentration is found for site in sites(loaded))
        assert torch.equal(drawn(loaded), drawn(model))

    @pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
    def test_they_move_and_are_copied(self, copied: Callable[[Any], Any]) -> None:
        model = make_stochastic(build("bert"), Weibull(learnt(10.0), anchor="softmax"))
        twin = copied(model).to(torch.float64)
        assert {site.family.concentration.dtype for site in sites(twin)} == {torch.float64}
        assert len({id(site.family.concentration) for site in sites(twin)}) == 1
        assert sites(model)[0].family.concentration.dtype == torch.float32

    @pytest.mark.parametrize("prior", ["family", "function"])
    def test_of_the_prior(self, prior: str, tmp_path: Path) -> None:
        rate = learnt(0.01)
        recipe: Any = GammaPrior(rate=rate)  # type: ignore[arg-type]
        if prior == "function":
            recipe = lambda place: Fixed(GammaPrior(rate=rate), psi=1.0)  # type: ignore[arg-type]  # noqa: E731
        model = make_stochastic(build("bert"), FAMILY, recipe).train()
        assert sum(parameter is rate for parameter in model.parameters()) == 1
        model(**inputs_of("bert")).loss.backward()
        assert rate.grad is not None
        with torch.no_grad():
            rate.fill_(0.5)
        model.save_pretrained(tmp_path)
        with torch.no_grad():
            rate.fill_(0.1)
        loaded = load_stochastic(tmp_path, **({"prior": recipe} if prior == "function" else {}))
        rates = [site.prior.family.rate for site in sites(loaded)]
        assert len(rates) == LAYERS and all(one is rates[0] and one == 0.5 for one in rates)

    def test_one_prior_for_all_places(self, tmp_path: Path) -> None:
        def shared() -> Any:
            prior = KeyPrior(8, GammaPrior(rate=0.01))
            return lambda place: prior

        model = make_stochastic(build("bert"), FAMILY, shared())
        model.save_pretrained(tmp_path)
        loaded = load_stochastic(tmp_path, prior=shared())
        first, second = sites(loaded)
        assert first.prior is second.prior
        torch.testing.assert_close(first.prior.out_weight, sites(model)[0].prior.out_weight)

    def test_loading_tells_of_nothing_that_is_missing(self, tmp_path: Path) -> None:
        model = make_stochastic(build("bert"), Weibull(learnt(10.0), anchor="softmax"))
        model.save_pretrained(tmp_path)
        loaded, report = load_stochastic(tmp_path, output_loading_info=True)
        assert not report["missing_keys"] and not report["unexpected_keys"]
        assert len(sites(loaded)) == LAYERS


class Own(Family):
    """No dataclass, so no file can hold it."""

    def __init__(self, concentration: float):
        self.concentration = concentration

    def __call__(self, scores: Tensor, support: Support) -> Any:
        return Weibull(self.concentration, anchor="softmax")(scores, support)


class OwnModule(nn.Module, Family):
    """A family that is a module."""

    def __init__(self) -> None:
        super().__init__()
        self.concentration = learnt(5.0)

    def __call__(self, scores: Tensor, support: Support) -> Any:
        return Weibull(self.concentration, anchor="softmax")(scores, support)


class Steps(Schedule):
    """No dataclass either."""

    def __call__(self, step: int) -> float:
        return 1.0


class TestFamiliesOfOnesOwn:
    def test_no_dataclass(self, tmp_path: Path) -> None:
        model = make_stochastic(build("bert"), Own(3.0), GammaPrior(rate=0.1))
        model.save_pretrained(tmp_path)
        with pytest.raises(ValueError, match="the family of this model is no dataclass, .* pass it as family=..."):
            load_stochastic(tmp_path)
        assert torch.equal(drawn(load_stochastic(tmp_path, family=Own(3.0))), drawn(model))

    def test_a_module(self, tmp_path: Path) -> None:
        model = make_stochastic(build("bert"), OwnModule(), GammaPrior(rate=0.1))
        assert any(parameter is sites(model)[0].family.concentration for parameter in model.parameters())
        with torch.no_grad():
            sites(model)[0].family.concentration.fill_(3.0)
        model.save_pretrained(tmp_path)
        loaded = load_stochastic(tmp_path, family=OwnModule())
        assert sites(loaded)[1].family.concentration == 3.0
        assert torch.equal(drawn(loaded), drawn(model))

    def test_a_family_that_was_not_asked_for(self, tmp_path: Path) -> None:
        make_stochastic(build("bert"), FAMILY).save_pretrained(tmp_path)
        with pytest.raises(ValueError, match=r"saved with the family Weibull\(.*; leave out family=\.\.\."):
            load_stochastic(tmp_path, family=FAMILY)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"kl_weight": Steps()}, "Steps cannot be written into a file: make it a dataclass"),
            ({"family": Weibull(object(), anchor="softmax")}, "family must be of numbers, strings and tensors"),  # type: ignore[arg-type]
        ],
    )
    def test_what_cannot_be_written_changes_nothing(self, arguments: dict[str, Any], message: str) -> None:
        model = build("bert", "sdpa")
        before = (list(model.state_dict()), set(vars(model)), model.config.to_dict())
        with pytest.raises(TypeError, match=message):
            make_stochastic(model, **{"family": FAMILY, "prior": "fixed", **arguments})
        assert before == (list(model.state_dict()), set(vars(model)), model.config.to_dict())
        assert model.config._attn_implementation == "sdpa"

    def test_numbers_of_numpy(self, tmp_path: Path) -> None:
        numpy = pytest.importorskip("numpy")
        model = make_stochastic(
            build("bert"), Weibull(numpy.float32(3.0), anchor="softmax"), kl_weight=numpy.float32(0.5)
        )
        model.save_pretrained(tmp_path)
        assert load_stochastic(tmp_path).forward.settings == model.forward.settings


class Buffered(Conditional):
    """A prior with tensors that no file holds."""

    def __init__(self) -> None:
        super().__init__()
        self.family = GammaPrior(rate=0.01)
        self.scale = learnt(1.5)
        self.register_buffer("shift", torch.tensor(2.0), persistent=False)
        self.constant = torch.tensor(3.0)

    def forward(self, given: Any) -> Any:
        log_psi = torch.zeros_like(given.scores).log_softmax(-1) * self.shift * self.constant.item() * self.scale
        return self.family(log_psi, given.memory.support)


class TestFolders:
    def test_tensors_of_a_prior_that_are_not_saved(self, tmp_path: Path) -> None:
        model = make_stochastic(build("bert"), FAMILY, lambda place: Buffered())
        with torch.no_grad():
            sites(model)[0].prior.scale.fill_(0.5)
        model.save_pretrained(tmp_path)
        loaded = load_stochastic(tmp_path, prior=lambda place: Buffered())
        prior = sites(loaded)[0].prior
        assert prior.shift == 2.0 and prior.constant == 3.0 and prior.scale == 0.5 and prior.scale.requires_grad
        assert sites(loaded)[1].prior.scale == 1.5
        small = load_stochastic(tmp_path, prior=lambda place: Buffered(), dtype=torch.bfloat16)
        prior = sites(small)[0].prior
        assert prior.constant.dtype == torch.float32 and prior.scale.dtype == prior.shift.dtype == torch.bfloat16

    def test_a_subfolder(self, tmp_path: Path) -> None:
        model = make_stochastic(build("bert"), FAMILY)
        model.save_pretrained(tmp_path / "inner")
        loaded = load_stochastic(tmp_path, subfolder="inner")
        assert torch.equal(drawn(loaded), drawn(model))
        with pytest.raises(FileNotFoundError, match="other has no config.json"):
            load_stochastic(tmp_path, subfolder="other")

    def test_an_automatic_class(self, tmp_path: Path) -> None:
        make_stochastic(build("bert"), FAMILY).save_pretrained(tmp_path)
        for asked in (transformers.AutoModelForSequenceClassification, transformers.BertForSequenceClassification):
            assert type(load_stochastic(tmp_path, model_class=asked)) is transformers.BertForSequenceClassification
        with pytest.raises(ValueError, match="AutoModelForSpeechSeq2Seq has no model for BertConfig"):
            load_stochastic(tmp_path, model_class=transformers.AutoModelForSpeechSeq2Seq)

    def test_undo_of_a_model_that_was_loaded_plainly(self, tmp_path: Path) -> None:
        make_stochastic(build("bert"), FAMILY).save_pretrained(tmp_path)
        plain = transformers.BertForSequenceClassification.from_pretrained(tmp_path)
        assert undo(plain) is plain and "stochastic_attention" not in plain.config.to_dict()
        with pytest.raises(ValueError, match="there is nothing to undo"):
            undo(plain)

    def test_undo_of_a_part_of_what_was_converted(self) -> None:
        model = make_stochastic(build("bert"), FAMILY)
        with pytest.raises(ValueError, match="BertModel is a part of a model that was converted as a whole; undo that"):
            undo(model.bert)
        assert len(sites(model)) == LAYERS and "stochastic_attention" in model.config.to_dict()


def clip() -> Any:
    text = transformers.CLIPTextConfig(**{**BERT, "max_position_embeddings": 16}, projection_dim=8)
    vision = transformers.CLIPVisionConfig(**VISION, projection_dim=8)
    config = transformers.CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=8)
    return transformers.CLIPModel(config)


class TestSavedParts:
    """A part of a model was converted, and the whole saved."""

    def check(self, model: Any, tmp_path: Path, **arguments: Any) -> Any:
        model.save_pretrained(tmp_path)
        loaded = load_stochastic(tmp_path, **arguments)
        names = {path for path, module in model.named_modules() if "stochastic_forward" in vars(module)}
        assert names == {path for path, module in loaded.named_modules() if "stochastic_forward" in vars(module)}
        state = model.state_dict()
        assert state.keys() == loaded.state_dict().keys()
        assert all(torch.equal(tensor, state[key]) for key, tensor in loaded.state_dict().items())
        return loaded

    def test_with_a_configuration_of_its_own(self, tmp_path: Path) -> None:
        model = clip()
        make_stochastic(model.vision_model, Weibull(learnt(3.0), anchor="softmax"))
        self.check(model, tmp_path / "one")
        make_stochastic(model.text_model, FAMILY, lambda place: KeyPrior(place.head_dim, GammaPrior()), layers=[-1])
        self.check(model, tmp_path / "two", prior=lambda place: KeyPrior(place.head_dim, GammaPrior()))

    def test_with_the_configuration_of_the_whole(self, tmp_path: Path) -> None:
        model = build("bert")
        make_stochastic(model.bert, FAMILY, layers=[-1])
        loaded = self.check(model, tmp_path).train()
        assert "kl" not in loaded(**inputs_of("bert"))
        assert "kl" in loaded.bert(**inputs_of("bert", labels=False))
        with pytest.raises(ValueError, match="whose BertModel was converted, but GPT2LMHeadModel has no such part"):
            load_stochastic(tmp_path, model_class=transformers.GPT2LMHeadModel)

    @pytest.mark.parametrize(("name", "part"), [("bart", "model.encoder"), ("encoder-decoder", "decoder")])
    def test_one_side_of_an_encoder_and_a_decoder(self, name: str, part: str, tmp_path: Path) -> None:
        model = build(name)
        make_stochastic(model.get_submodule(part), FAMILY)
        self.check(model, tmp_path)

    def test_a_part_whose_configuration_is_a_copy(self, tmp_path: Path) -> None:
        model = build("t5")
        make_stochastic(model.encoder, FAMILY)
        model.save_pretrained(tmp_path)
        with pytest.raises(ValueError, match=r"part whose configuration is a copy \(T5's encoder\) nothing is written"):
            load_stochastic(tmp_path)

    def test_a_whole_in_another_class(self, tmp_path: Path) -> None:
        make_stochastic(build("bert").bert, FAMILY).save_pretrained(tmp_path)
        loaded = load_stochastic(tmp_path, model_class=transformers.BertForSequenceClassification).train()
        assert "kl" in loaded(**inputs_of("bert"))


def test_a_frozen_number_stays_frozen(tmp_path: Path) -> None:
    concentration = nn.Parameter(torch.tensor(10.0), requires_grad=False)
    model = make_stochastic(build("bert"), Weibull(concentration, anchor="softmax"))
    model.save_pretrained(tmp_path)
    loaded = sites(load_stochastic(tmp_path))[0].family.concentration
    assert isinstance(loaded, nn.Parameter) and not loaded.requires_grad


def test_an_encoder_without_gradients_is_no_alarm_where_the_prior_learns_nothing() -> None:
    class Quiet(transformers.BertForSequenceClassification):  # type: ignore[name-defined,misc]
        def forward(self, input_ids: Tensor, labels: Tensor | None = None, **kwargs: Any) -> Any:
            with torch.no_grad():
                pooled = self.bert(input_ids)[1]
            logits = self.classifier(pooled)
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    tokens, labels = torch.randint(5, 30, (2, 4)), torch.tensor([0, 1])
    model = make_stochastic(Quiet(transformers.BertConfig(**BERT, num_labels=2)), FAMILY, "fixed").train()
    assert model(tokens, labels=labels)["loss"].requires_grad
    model = make_stochastic(Quiet(transformers.BertConfig(**BERT, num_labels=2)), FAMILY).train()
    with pytest.raises(RuntimeError, match=r"ran without gradients, under torch\.no_grad\(\).*prior='fixed' or None"):
        model(tokens, labels=labels)
