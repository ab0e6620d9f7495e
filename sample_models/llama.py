"""A Llama-style transformer: RMSNorm, rotary embeddings, SwiGLU and grouped-query attention, with cross-entropy."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LAYERS = 4
HEADS = 4
KV_HEADS = 2  #: each key and value head serves HEADS // KV_HEADS query heads
WIDTH = 128
HIDDEN = 352  #: the inner width of SwiGLU
CONTEXT = 64  #: the longest sequence, and the length of the one that ``inputs`` makes
VOCAB = 512
BATCH = 4
ROPE_BASE = 10000.0
EPS = 1e-5

HEAD_WIDTH = WIDTH // HEADS


class RMSNorm(nn.Module):
    """Scale by the reciprocal root mean square, computed in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        h = x.float()
        h = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + EPS)
        return h.type_as(x) * self.weight


class Rotary(nn.Module):
    """Rotate each pair of channels by an angle that grows with the position."""

    cos: Tensor
    sin: Tensor

    def __init__(self) -> None:
        super().__init__()
        frequencies = ROPE_BASE ** -(torch.arange(0, HEAD_WIDTH, 2).float() / HEAD_WIDTH)
        angles = torch.outer(torch.arange(CONTEXT).float(), frequencies).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[-2]
        first, second = x.chunk(2, dim=-1)
        rotated = torch.cat((-second, first), dim=-1)
        return (x * self.cos[:length] + rotated * self.sin[:length]).type_as(x)


class Attention(nn.Module):
    """Causal attention with fewer key and value heads than query heads."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(WIDTH, HEADS * HEAD_WIDTH, bias=False)
        self.k_proj = nn.Linear(WIDTH, KV_HEADS * HEAD_WIDTH, bias=False)
        self.v_proj = nn.Linear(WIDTH, KV_HEADS * HEAD_WIDTH, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_WIDTH, WIDTH, bias=False)
        self.rotary = Rotary()

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, HEADS, HEAD_WIDTH).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, KV_HEADS, HEAD_WIDTH).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, KV_HEADS, HEAD_WIDTH).transpose(1, 2)
        q, k = self.rotary(q), self.rotary(k)
        k = k.repeat_interleave(HEADS // KV_HEADS, dim=1)
        v = v.repeat_interleave(HEADS // KV_HEADS, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, HEADS * HEAD_WIDTH))


class SwiGLU(nn.Module):
    """A feed-forward layer gated by SiLU."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.up_proj = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down_proj = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """Attention and SwiGLU, each normalised before and added to the residual stream."""

    def __init__(self) -> None:
        super().__init__()
        self.attn_norm = RMSNorm()
        self.attn = Attention()
        self.mlp_norm = RMSNorm()
        self.mlp = SwiGLU()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.attn_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Llama(nn.Module):
    """Token embedding, ``LAYERS`` blocks, a last RMSNorm and a head with a weight of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = RMSNorm()
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, idx: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embed(idx)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def model() -> nn.Module:
    return Llama()


def inputs() -> tuple[Tensor, Tensor]:
    tokens = torch.randint(VOCAB, (BATCH, CONTEXT + 1))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def loss(output: tuple[Tensor, Tensor]) -> Tensor:
    return output[1]
