"""The small parts: settings, stages, random generators, log sums, learning rates, selection, diagnostics."""

import os
import random
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonargparse
import numpy as np
import pytest
import torch
from torch import nn

from probattn.core import Pathwise, RunningMean, ScoreFunction
from probattn.training import CheckpointError, Stage, TrainerSettings, effective_kl_gradient
from probattn.training.distributed import Processes
from probattn.training.fingerprint import check_fingerprint, make_fingerprint
from probattn.training.interrupt import Interrupt
from probattn.training.journal import Journal, LogSums
from probattn.training.optim import Clock, Selection, build_optimizer, set_learning_rate, set_trainable
from probattn.training.randomness import NOISE, capture, restore, seed_all, seeded
from probattn.training.settings import FREE_SETTINGS
from probattn.training.stage import check_stages


class TestSettings:
    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ({"accumulate": 0}, "accumulate must be positive, got 0"),
            ({"learning_rate": -1.0}, "learning_rate must be positive"),
            ({"validate_every": 0}, "validate_every must be positive"),
            ({"clip_norm": 0.0}, "clip_norm must be positive"),
            ({"warmup_updates": -1}, "warmup_updates must not be negative, got -1"),
            ({"min_learning_rate": -0.1}, "min_learning_rate must not be negative"),
            ({"decay_factor": 1.5}, r"decay_factor must lie in \(0, 1\], got 1.5"),
            ({"lr_schedule": "plateau"}, "lr_schedule: plateau needs `select_by`"),
            ({"early_stop": 3}, "early_stop needs `select_by`"),
            ({"early_stop": 3, "select_by": "ppl", "validate_every": None}, "and `validate_every`"),
        ],
    )
    def test_bad_values(self, values: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            TrainerSettings(**values)

    def test_command_line(self) -> None:
        parser = jsonargparse.ArgumentParser(exit_on_error=False)
        parser.add_argument("--training", type=TrainerSettings, default=TrainerSettings())
        chosen = parser.parse_args(["--training.validate_every=20", "--training.clip_norm=null"])
        settings = parser.instantiate(chosen).training
        assert settings == TrainerSettings(validate_every=20, clip_norm=None)

    def test_free_settings_exist(self) -> None:
        assert set(TrainerSettings.__dataclass_fields__) >= FREE_SETTINGS

    def test_what_an_older_checkpoint_does_not_know_and_nobody_asks_for(self) -> None:
        check_fingerprint({"stages": ["a"]}, {"stages": ["a"], "a.validate_every": None}, Path("run"))
        with pytest.raises(CheckpointError, match="validate_every: absent in the checkpoint, 5 now"):
            check_fingerprint({"stages": ["a"]}, {"stages": ["a"], "a.validate_every": 5}, Path("run"))

    def test_free_settings_of_an_older_checkpoint_do_not_count(self) -> None:
        check_fingerprint({"settings.seed": 1, "settings.save_every": 7}, {"settings.seed": 1}, Path("run"))
        with pytest.raises(CheckpointError, match="settings.seed: 1 in the checkpoint, 2 now"):
            check_fingerprint({"settings.seed": 1, "settings.save_every": 7}, {"settings.seed": 2}, Path("run"))


class TestStage:
    @pytest.mark.parametrize("lengths", [{}, {"updates": 3, "epochs": 1}, {"updates": 0}])
    def test_wants_one_length(self, lengths: dict[str, int]) -> None:
        with pytest.raises(ValueError, match="Stage 'a' wants either updates >= 1 or epochs >= 1"):
            Stage("a", **lengths)  # type: ignore[arg-type]

    def test_patterns_must_fit(self) -> None:
        model = nn.Sequential(nn.Linear(2, 2))
        with pytest.raises(ValueError, match=r"trainable pattern 'enc\*' fits no parameter.*0.weight, 0.bias"):
            check_stages([Stage("a", updates=1, trainable=["enc*"])], model)
        with pytest.raises(ValueError, match="learning_rates pattern 'x' fits no parameter"):
            check_stages([Stage("a", updates=1, learning_rates={"x": 0.1})], model)
        with pytest.raises(ValueError, match=r"different names, got \['a', 'a'\]"):
            check_stages([Stage("a", updates=1), Stage("a", updates=1)], model)

    def test_modules_inside_estimators(self) -> None:
        baseline = RunningMean()
        stage = Stage("a", updates=1, estimators={"z": ScoreFunction(baseline=baseline), "y": Pathwise(1)})
        assert stage.modules() == {"a.z.baseline": baseline}

    def test_fingerprint_has_no_addresses(self) -> None:
        class Rule:
            pass

        prints = [
            make_fingerprint(
                SimpleNamespace(model=nn.Linear(1, 1)),  # type: ignore[arg-type]
                TrainerSettings(),
                stages=[Stage("a", updates=1, update_rule=Rule())],  # type: ignore[arg-type]
                num_ranks=1,
            )
            for _ in range(2)
        ]
        assert prints[0] == prints[1]
        assert "0x" not in str(prints[0])


class TestRandomness:
    def draw(self) -> tuple[float, ...]:
        return (random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), float(torch.randn(())))

    def test_restore_continues_where_capture_was(self) -> None:
        self.draw()
        state = capture()
        first = self.draw()
        restore(state)
        assert self.draw() == first

    def test_state_survives_a_safe_file(self, tmp_path: Path) -> None:
        np.random.randn()  # leaves the second half of a pair in numpy's state
        state = capture()
        torch.save(state, tmp_path / "state.pt")
        first = self.draw()
        restore(torch.load(tmp_path / "state.pt", weights_only=True))
        assert self.draw() == first

    def test_keys_differ_in_every_part(self) -> None:
        draws = set()
        for key in [(NOISE, 0, 0), (NOISE, 0, 1), (NOISE, 1, 0), (1, 0, 0), (NOISE, -1, 0)]:
            seed_all(*key)
            draws.add(self.draw())
        assert len(draws) == 5
        assert len({value for draw in draws for value in draw}) == 25

    def test_seeded_restores_after_an_error(self) -> None:
        state = capture()
        first = self.draw()
        restore(state)
        with pytest.raises(KeyError), seeded(1, 2):
            raise KeyError
        assert self.draw() == first


class TestLogSums:
    def test_sums_go_on_after_a_round_trip(self) -> None:
        whole, part = LogSums(), LogSums()
        for number in range(10):
            for sums in (whole, part):
                sums.add("loss", torch.tensor(0.1 * number), 2.0)
                sums.add("kl", 0.3, 1.0)
            if number == 4:
                state = part.state()
                part = LogSums()
                part.load(state)
        assert whole.state() == part.state()
        assert whole.state()["loss"] == pytest.approx((4.5, 20.0))

    def test_journal_writes_what_json_cannot_say(self, tmp_path: Path) -> None:
        with Journal(tmp_path, 0, update=0, use_tensorboard=False) as journal:
            journal.write("train", 1, {"loss": float("inf"), "kl": 0.5}, speed={})
        assert (tmp_path / "log.jsonl").read_text() == '{"kind": "train", "update": 1, "loss": "inf", "kl": 0.5}\n'


class TestOptim:
    def model(self) -> nn.Module:
        return nn.ModuleDict({"encoder": nn.Linear(2, 2), "decoder": nn.Linear(2, 2)})

    def test_first_pattern_wins(self) -> None:
        model = self.model()
        stage = Stage("a", updates=1, learning_rates={"*.bias": 0.3, "encoder.*": 0.2})
        optimizer = build_optimizer(set_trainable(model, stage), stage, TrainerSettings(learning_rate=0.1))
        rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
        found = {name: rates[id(parameter)] for name, parameter in model.named_parameters()}
        assert found == {"encoder.weight": 0.2, "encoder.bias": 0.3, "decoder.weight": 0.1, "decoder.bias": 0.3}

    def test_adam_is_fused(self) -> None:
        stage = Stage("a", updates=1)
        optimizer = build_optimizer(set_trainable(self.model(), stage), stage, TrainerSettings())
        assert optimizer.defaults["fused"] is True

    @pytest.mark.parametrize(
        ("schedule", "rates"),
        [
            ("constant", (0.5, 1.0, 1.0)),
            ("linear", (0.5, 0.75, 0.25)),
            ("epoch", (0.5, 0.5, 0.25)),
            ("plateau", (0.35, 0.7, 0.7)),
        ],
    )
    def test_schedules(self, schedule: Any, rates: tuple[float, ...]) -> None:
        settings = TrainerSettings(
            learning_rate=1.0, lr_schedule=schedule, warmup_updates=2, min_learning_rate=0.2, select_by="x"
        )
        stage = Stage("a", updates=4)
        optimizer = build_optimizer(set_trainable(self.model(), stage), stage, settings)
        clocks = [Clock(0, 0, 0.0), Clock(1, 1, 0.25), Clock(3, 2, 0.75)]
        found = [set_learning_rate(optimizer, settings, clock=clock, plateau=0.7) for clock in clocks]
        assert tuple(found) == rates
        assert set_learning_rate(optimizer, settings, clock=Clock(9, 9, 1.0), plateau=0.0) == pytest.approx(
            1.0 if schedule == "constant" else 0.2
        )

    @pytest.mark.parametrize(("mode", "values"), [("min", [3.0, 2.0, 2.0, 4.0]), ("max", [1.0, 2.0, 2.0, 0.0])])
    def test_selection(self, mode: Any, values: list[float]) -> None:
        settings = TrainerSettings(select_by="x", select_mode=mode, early_stop=2, lr_schedule="plateau")
        selection = Selection()
        assert [selection.observe(value, update, settings) for update, value in enumerate(values)] == [
            True,
            True,
            False,
            False,
        ]
        assert (selection.best, selection.best_update, selection.stale) == (2.0, 1, 2)
        assert selection.plateau_factor == 0.25
        assert selection.is_exhausted(settings)


class TestInterrupt:
    def test_second_ctrl_c_stops_at_once(self) -> None:
        with Interrupt() as interrupt:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)  # a launcher passing on the first one: too soon for a second wish
            assert interrupt.signal == signal.SIGINT
            interrupt._noted_at -= 2.0
            os.kill(os.getpid(), signal.SIGTERM)  # a launcher in a hurry; the save is under way
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)

    def test_other_threads_have_no_handlers(self) -> None:
        before = signal.getsignal(signal.SIGINT)
        seen = []

        def work() -> None:
            with Interrupt():
                seen.append(signal.getsignal(signal.SIGINT))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert seen == [before]


def test_launcher_that_accelerate_does_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rank would take itself for the only one and write the same files."""
    Processes()  # from now on accelerate does not look at the environment
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match=r"WORLD_SIZE is 2, but accelerate sees 1 process\(es\); .* torchrun"):
        Processes()


class TestEffectiveKlGradient:
    def test_against_norms_by_hand(self) -> None:
        weight = torch.tensor([1.0, 2.0], requires_grad=True)
        other = torch.tensor([3.0], requires_grad=True)
        likelihood, kl = (weight * 3.0).sum() + 4.0 * other.sum(), 0.5 * weight[0]
        ratio = effective_kl_gradient([weight, other], likelihood, kl)
        assert ratio == pytest.approx(0.5 / (3.0**2 + 3.0**2 + 4.0**2) ** 0.5)
        (likelihood + kl).backward()
        assert weight.grad is not None, "the graph is still there"

    def test_limits(self) -> None:
        weight, constant = torch.ones(2, requires_grad=True), torch.zeros(())
        assert effective_kl_gradient([weight], weight.sum(), constant) == 0.0
        assert effective_kl_gradient([weight], constant, constant) == 0.0
        assert effective_kl_gradient([weight], constant, weight.sum()) == float("inf")
        assert effective_kl_gradient([weight, torch.ones(2)], weight.sum(), weight.sum()) == pytest.approx(1.0)
