"""The text side of a trained model: its subwords, and which of them it can produce."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from probattn.data.batches import TranslationBatch
from probattn.data.bpe import Tokenizer
from probattn.data.output_vocabulary import OutputVocabulary

__all__ = ["Subwords"]

TOKENIZER_FILE = "tokenizer.json"
OUTPUTS_FILE = "outputs.json"


@dataclass(frozen=True)
class Subwords:
    """Tokenizer of both languages, and the numbering of a model's softmax.

    Attributes:
        tokenizer: Words to ids of the joint vocabulary.
        outputs: The types that can be produced.
    """

    tokenizer: Tokenizer
    outputs: OutputVocabulary

    def to_output(self, batch: TranslationBatch) -> TranslationBatch:
        """The same batch with target words numbered as the softmax numbers them."""
        return replace(
            batch,
            target_in=self.outputs.to_output(batch.target_in),
            target_out=self.outputs.to_output(batch.target_out),
        )

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of output ids."""
        return self.tokenizer.decode(self._full(tokens))

    def word_index(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """For each output id the number of its word in `decode(tokens)`; -1 for none."""
        return self.tokenizer.word_index(self._full(tokens))

    def files(self) -> Mapping[str, bytes]:
        """Content of the files that `from_folder` reads."""
        outputs = {"full_ids": self.outputs.full_ids.tolist(), "tokenizer_digest": self.tokenizer.digest}
        return {TOKENIZER_FILE: self.tokenizer.to_bytes(), OUTPUTS_FILE: json.dumps(outputs).encode()}

    @classmethod
    def from_folder(cls, folder: Path) -> "Subwords":
        """Read what `files` gave.

        Raises:
            FileNotFoundError: A file is missing.
            ValueError: A file is damaged, or the two do not belong together.
        """
        path = folder / OUTPUTS_FILE
        try:
            outputs = json.loads(path.read_text(encoding="utf-8"))
            full_ids, digest = [int(number) for number in outputs["full_ids"]], str(outputs["tokenizer_digest"])
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is no list of output types, or was cut off ({error!r})") from error
        tokenizer = Tokenizer.load(folder / TOKENIZER_FILE, digest=digest)
        return cls(tokenizer, OutputVocabulary.from_ids(full_ids, vocabulary_size=tokenizer.vocabulary_size))

    def _full(self, tokens: Sequence[int]) -> Tensor:
        return self.outputs.to_full(torch.tensor(list(tokens), dtype=torch.int64))
