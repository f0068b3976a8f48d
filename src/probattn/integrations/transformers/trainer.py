"""What the Trainer of `transformers` needs to train a converted model."""

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from probattn.integrations.transformers.forward import conversions_of, kl_weight, set_kl_step

__all__ = ["KlSchedule"]


class KlSchedule(TrainerCallback):
    """Tells a converted model the step of the Trainer before every update, and logs its KL weight.

    `Trainer(..., callbacks=[KlSchedule()])`. A constant weight does not need it. After a resume the step is that of the
    checkpoint.
    """

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Refuse what would train without the KL.

        Raises:
            ValueError: If labels are smoothed: the Trainer then computes the loss from the logits by itself.
        """
        conversions_of(kwargs["model"])
        if args.label_smoothing_factor:
            raise ValueError(
                "label_smoothing_factor makes the Trainer compute a loss of its own, without the KL of the attention "
                "weights; set it to 0, or add outputs.kl_cost in compute_loss"
            )

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The steps of gradient accumulation are one step."""
        set_kl_step(kwargs["model"], state.global_step)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Write the KL weight beside the loss."""
        if logs is not None and "loss" in logs:
            # The Trainer has put a copy into its history before it asks; other callbacks read the original.
            logs["kl_weight"] = state.log_history[-1]["kl_weight"] = kl_weight(kwargs["model"])
