"""Models of treelm in transformers: ``import treelm.hf`` registers the classes that open what ``treelm export`` writes.

These are a config, a network and a tokenizer. Tokens are those of the model's vocabulary, 0 to V - 1. The end of a
sentence, V, also stands before each sentence: it is the beginning of sequence and the end of sequence.

Needs ``pip install 'treelm[hf]'``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from treelm.configs import from_plain
from treelm.corpora.tokens import words_of
from treelm.corpora.vocabularies import load_vocabulary, save_vocabulary, vocabulary_from_json
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError, import_extra
from treelm.io.atomic import atomic_directory
from treelm.models import config_class, system_class
from treelm.models.base import LanguageModel
from treelm.models.persistence.hub import EXPORTED, save_parts
from treelm.models.persistence.storage import describe_model
from treelm.models.streams import StreamLM

import_extra("transformers", "hf")
from transformers import (  # noqa: E402
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationMixin,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizer,
)
from transformers.modeling_outputs import CausalLMOutput  # noqa: E402

__all__ = ["TreelmConfig", "TreelmForCausalLM", "TreelmTokenizer", "export_model"]

END = "</s>"
_IGNORED = -100  # the label of what has no loss, in transformers


class TreelmConfig(PretrainedConfig):  # type: ignore[misc]
    """The content of the ``config.json`` of a run, and the vocabulary."""

    model_type = EXPORTED

    def __init__(
        self, treelm: dict[str, Any] | None = None, vocabulary: dict[str, Any] | None = None, **options: Any
    ) -> None:
        """Keep the description of a model (``describe_model``) and the content of its vocabulary."""
        self.treelm, self.vocabulary = treelm, vocabulary
        super().__init__(**options)


class TreelmForCausalLM(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """A model that reads step by step. It gives logits of the token, or the end, that follows each token."""

    config_class = TreelmConfig
    base_model_prefix = "lm"

    def __init__(self, config: TreelmConfig) -> None:
        """Build the network that the config describes. Raises ``InputError`` for a config that describes none."""
        super().__init__(config)
        if config.treelm is None or config.vocabulary is None:
            raise InputError("a config that describes no model", remedy="export one with `treelm export`")
        vocabulary = vocabulary_from_json(config.vocabulary, where="config.json vocabulary")
        with torch.device("cpu"):  # here a system may be imported, and transformers builds without memory (on "meta")
            system = system_class(config.treelm["system"])
            values, where = config.treelm["config"], "config.json treelm.config"
            plain = from_plain(config_class(system), values, where=where)
            build: Any = system
            self.lm: StreamLM = build(config=plain, vocabulary=vocabulary, labels=config.treelm["labels"])
        self.post_init()
        self.generation_config.use_cache = False

    @classmethod
    def of(cls, lm: LanguageModel) -> Self:
        """Wrap a model of treelm, with copies of its weights.

        Raises ``InputError`` for a system that has no logits of the next token.
        """
        if not isinstance(lm, StreamLM):
            found = f"{lm.system} does not read step by step"
            raise InputError(found, remedy="export a run of lstm, on-lstm, palm, prpn or transformer")
        end = len(lm.vocabulary)
        special = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), end)
        config = TreelmConfig(
            treelm=describe_model(lm),
            vocabulary=lm.vocabulary.to_json(),
            vocab_size=end + 1,
            tie_word_embeddings=False,
            use_cache=False,
            **special,
        )
        model = cls(config)
        model.lm.load_state_dict(lm.state_dict())
        model.eval()
        return model

    def get_submodule(self, target: str) -> nn.Module:
        """A part of the network, by the name that its weights have.

        Where a method has the same name, the network knows which of them is meant.
        """
        first, _, rest = target.partition(".")
        return self.lm.get_submodule(rest) if first == "lm" else super().get_submodule(target)

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        """Return False: nothing is kept between steps, and programs that ask for a cache get none."""
        return False

    def _init_weights(self, module: Any) -> None:
        """Leave the weights as the system has drawn them."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None, **_: Any
    ) -> CausalLMOutput:
        """Logits (B, T, V + 1) of what follows each token (B, T), read from the end of a sentence on.

        Padding may stand on either side. With ``labels``, the loss is the mean over those that are not -100, in nats.
        """
        shift = None
        if attention_mask is not None and not bool(attention_mask[:, 0].all()):
            missing = (attention_mask.cumsum(1) == 0).sum(1, keepdim=True)  # before each text
            places = torch.arange(input_ids.shape[1], device=input_ids.device)
            input_ids = input_ids.gather(1, (places + missing) % len(places))
            shift = (places - missing) % len(places)
        reading = self.lm.forward(input_ids.T, self.lm.init_state(len(input_ids)))
        logits = functional.linear(reading.outputs, self.lm.decoder_weight, self.lm.decoder_bias).transpose(0, 1)
        if shift is not None:
            logits = logits.gather(1, shift[..., None].expand_as(logits))
        loss = None
        if labels is not None:
            loss = functional.cross_entropy(
                logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=_IGNORED
            )
        return CausalLMOutput(loss=loss, logits=logits)

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> dict[str, Any]:
        """Give the whole text at every step: nothing is kept from one step to the next."""
        return {"input_ids": input_ids, "attention_mask": attention_mask}


class TreelmTokenizer(PreTrainedTokenizer):  # type: ignore[misc]
    """Words separated by spaces, each in the tokens of a vocabulary, with the end of sentence before them."""

    vocab_files_names = {"vocabulary_file": "treelm-vocabulary.json"}  # noqa: RUF012
    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012

    def __init__(self, vocabulary_file: str, **options: Any) -> None:
        """Read the vocabulary from a file.

        Raises ``InputError`` if two of its tokens are written alike.
        """
        self.vocabulary = load_vocabulary(Path(vocabulary_file))
        self._names = [self.vocabulary.token(index) for index in range(len(self.vocabulary))]
        self._ids = {name: index for index, name in enumerate(self._names)}
        if len(self._ids) < len(self._names) or END in self._ids:
            raise InputError("tokens that are written alike", remedy="export a model with another vocabulary")
        for name in ("bos_token", "eos_token", "pad_token"):
            options.setdefault(name, END)
        super().__init__(**options)

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> Self:
        """The tokenizer of a vocabulary."""
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            save_vocabulary(vocabulary, Path(folder) / "vocabulary.json")
            return cls(str(Path(folder) / "vocabulary.json"))

    @property
    def vocab_size(self) -> int:
        """The number of tokens V, without the end of sentence."""
        return len(self._names)

    def get_vocab(self) -> dict[str, int]:
        """The ids of tokens, that of the end of sentence among them."""
        return {**self._ids, **self.added_tokens_encoder}

    def _tokenize(self, text: str, **_: Any) -> list[str]:
        words = words_of(text)
        first, rest = self.vocabulary.encode(words[:1], sentence_initial=True), self.vocabulary.encode(words[1:])
        return [self._names[index] for index in (*first.ids.tolist(), *rest.ids.tolist())]

    def _convert_token_to_id(self, token: str) -> int | None:
        return self._ids.get(token)

    def _convert_id_to_token(self, index: int) -> str:
        return self._names[index]

    def build_inputs_with_special_tokens(
        self, token_ids_0: list[int], token_ids_1: list[int] | None = None
    ) -> list[int]:
        """The end of sentence, then the tokens of a text, and of a second one."""
        return [self.bos_token_id, *token_ids_0, *(token_ids_1 or [])]

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """The words that tokens spell, with spaces between them; an end of sentence counts as a word."""
        words, word = list[str](), list[int]()
        for token in tokens:
            if token not in self._ids:
                words.append(token)
                continue
            word.append(self._ids[token])
            if self.vocabulary.ends_word[word[-1]]:
                words.append(self.vocabulary.spell(word))
                word = []
        return " ".join([*words, *([self.vocabulary.spell(word)] if word else [])])

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str]:
        """Write the vocabulary, and return the name of its file."""
        prefix = f"{filename_prefix}-" if filename_prefix else ""
        path = Path(save_directory) / f"{prefix}{self.vocab_files_names['vocabulary_file']}"
        save_vocabulary(self.vocabulary, path)
        return (str(path),)


AutoConfig.register(TreelmConfig.model_type, TreelmConfig, exist_ok=True)
AutoModelForCausalLM.register(TreelmConfig, TreelmForCausalLM, exist_ok=True)
AutoTokenizer.register(TreelmConfig, slow_tokenizer_class=TreelmTokenizer, exist_ok=True)


def export_model(lm: LanguageModel, folder: Path) -> None:
    """Write a model as a folder that transformers reads, with its tokenizer; a new folder appears when it is complete.

    Raises ``InputError`` for a model that does not read step by step.
    """
    network, tokenizer = TreelmForCausalLM.of(lm), TreelmTokenizer.of(lm.vocabulary)
    path = Path(folder)
    with nullcontext(path) if path.is_dir() else atomic_directory(path) as new:
        save_parts(network, tokenizer, new)
