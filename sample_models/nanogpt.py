"""nanoGPT: a decoder-only transformer in the style of GPT-2, with tied embeddings and a cross-entropy loss."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LAYERS = 4
HEADS = 4
WIDTH = 128
CONTEXT = 64  #: the longest sequence, and the length of the one that ``inputs`` makes
VOCAB = 512
BATCH = 4


class CausalSelfAttention(nn.Module):
    """Attention in which each position sees itself and those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, HEADS, width // HEADS).transpose(1, 2) for part in self.qkv(x).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))


class MLP(nn.Module):
    """Widen four times, GELU, narrow again."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(WIDTH, 4 * WIDTH)
        self.gelu = nn.GELU()
        self.proj = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(self.gelu(self.fc(x)))


class Block(nn.Module):
    """Attention and MLP, each normalised before and added to the residual stream."""

    def __init__(self) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attn = CausalSelfAttention()
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.mlp = MLP()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class NanoGPT(nn.Module):
    """Token and position embeddings, ``LAYERS`` blocks, and a head that shares the token embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(VOCAB, WIDTH)
        self.wpe = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.apply(self._init_weights)
        self.lm_head.weight = self.wte.weight

    @staticmethod
    def _init_weights(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, idx: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        positions = torch.arange(idx.shape[1], device=idx.device)
        x = self.wte(idx) + self.wpe(positions)
        for block in self.blocks:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def model() -> nn.Module:
    return NanoGPT()


def inputs() -> tuple[Tensor, Tensor]:
    tokens = torch.randint(VOCAB, (BATCH, CONTEXT + 1))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def loss(output: tuple[Tensor, Tensor]) -> Tensor:
    return output[1]
