"""Models of the transformers library, tiny and with random weights, against eager."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from thunderfx import thunderfx

transformers = pytest.importorskip("transformers")

IDS = torch.arange(1, 25).reshape(2, 12) % 61
TINY = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
DECODER = {**TINY, "num_key_value_heads": 2, "max_position_embeddings": 32, "use_cache": False, "pad_token_id": 0}


def causal(model: str, config: str, **settings: Any) -> tuple[Any, dict[str, Any]]:
    built = getattr(transformers, model)(getattr(transformers, config)(**settings))
    return built, {"input_ids": IDS, "labels": IDS}


def llama() -> Any:
    return causal("LlamaForCausalLM", "LlamaConfig", **DECODER)


def qwen3() -> Any:
    return causal("Qwen3ForCausalLM", "Qwen3Config", **DECODER, head_dim=8)


def gemma3() -> Any:
    return causal("Gemma3ForCausalLM", "Gemma3TextConfig", **DECODER, head_dim=8, sliding_window=8)


def mixtral() -> Any:
    return causal("MixtralForCausalLM", "MixtralConfig", **DECODER, num_local_experts=4, num_experts_per_tok=2)


def gpt2() -> Any:
    sizes = {"vocab_size": 64, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4, "use_cache": False}
    return causal("GPT2LMHeadModel", "GPT2Config", **sizes, bos_token_id=1, eos_token_id=2)


def bert() -> Any:
    """In training mode, with dropout."""
    return causal("BertForMaskedLM", "BertConfig", **TINY, max_position_embeddings=32)


def t5() -> Any:
    sizes = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    return causal("T5ForConditionalGeneration", "T5Config", **sizes, use_cache=False, decoder_start_token_id=0)


def vit() -> Any:
    sizes = {key: value for key, value in TINY.items() if key != "vocab_size"}
    config = transformers.ViTConfig(**sizes, image_size=16, patch_size=8, num_labels=5)
    model = transformers.ViTForImageClassification(config)
    return model, {
        "pixel_values": torch.linspace(-1, 1, 2 * 3 * 16 * 16).reshape(2, 3, 16, 16),
        "labels": IDS[:, 0] % 5,
    }


def whisper() -> Any:
    sizes = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_mel_bins": 8}
    lengths = {"max_source_positions": 16, "max_target_positions": 32, "vocab_size": 64, "use_cache": False}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    model = transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(**sizes, **heads, **lengths, **tokens)
    )
    return model, {"input_features": torch.linspace(-1, 1, 2 * 8 * 32).reshape(2, 8, 32), "labels": IDS}


def mamba() -> Any:
    sizes = {"vocab_size": 64, "hidden_size": 32, "state_size": 4, "num_hidden_layers": 2, "time_step_rank": 4}
    return causal("MambaForCausalLM", "MambaConfig", **sizes, use_cache=False)


MODELS = [llama, qwen3, gemma3, mixtral, gpt2, bert, t5, vit, whisper, mamba]


def observed(model: torch.nn.Module, call: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Loss, logits, gradients, buffers, and the state of the generator after the step."""
    torch.manual_seed(3)
    output = call(**inputs)
    output.loss.backward()
    seen = {"loss": output.loss, "logits": output.logits, "random state": torch.get_rng_state()}
    seen |= {f"gradient of {name}": p.grad for name, p in model.named_parameters() if p.grad is not None}
    seen |= {f"buffer {name}": buffer for name, buffer in model.named_buffers()}
    return seen


@pytest.mark.timeout(300)
@pytest.mark.parametrize("build", MODELS, ids=lambda build: build.__name__)
def test_forward_and_backward_equal_eager(build: Callable[[], Any]) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, inputs = build()
    other = copy.deepcopy(model)
    expected = observed(model, model, inputs)
    compiled = thunderfx(other)
    actual = observed(other, compiled, inputs)
    assert compiled.fallbacks == []
    assert compiled.last_backward_traces
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            actual[name], value, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
        )
