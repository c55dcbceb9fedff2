r"""One step of WaveNet: a queue a layer, and as few operations as it takes.

Layer $l$ needs its input $d_l$ steps ago, so it keeps $d_l$ inputs in a ring; all rings lie in one
tensor, which is read and written once a step for all layers. What the old inputs contribute is one
batched product, and so are the skips at the end. In between a layer costs four operations:

$$g = \tanh(D_l + x W_l), \qquad z = g_a + g_a \odot g_b, \qquad x \leftarrow x + z R_l,$$

since $\tanh(a) \sigma(b) = \tfrac12 (\tanh a + \tanh a \tanh \tfrac b2)$: the halves are in the
weights. So are the biases of $R_l$: the signal is kept without what they have added up to, $c_l$,
which is in $D_l$ instead, and zeros before the beginning are kept as $-c_l$.

Every tensor has a place of its own, so that the step can be captured as a CUDA graph.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from vademecum.convolution.causal import CausalConv1d
from vademecum.models import Replay
from vademecum.randomness import categorical

if TYPE_CHECKING:
    from vademecum.convolution.wavenet.network import WaveNet

__all__ = ["Stepper"]


class Stepper:
    """Draws sample after sample from a WaveNet as it is now."""

    def __init__(self, net: "WaveNet", start: Tensor, condition: Tensor | None, temperature: float):
        self.temperature = temperature
        self._weights(net, condition)
        self._buffers(len(start))
        self._begin(net, start, condition)
        state = (self.queue, self.time, self.token)
        self._step = Replay(self._one, state)

    def sample(self, uniform: Tensor) -> Tensor:
        """The next sample of each sequence, from a number between 0 and 1 for each."""
        self.uniform.copy_(uniform)
        self._step()
        return self.token

    def _weights(self, net: "WaveNet", condition: Tensor | None) -> None:
        layers = net.gated
        halves = torch.ones_like(_bias(layers[0].conv))
        halves[len(halves) // 2 :] = 0.5
        kernels = torch.stack([layer.conv.weight for layer in layers]) * halves[:, None, None]
        self.old, self.new = kernels[..., 0].mT.contiguous(), kernels[..., 1].mT.contiguous()
        drives = torch.stack([_bias(layer.conv) for layer in layers])[:, None] * halves
        if condition is not None:
            ours = [layer.condition for layer in layers if layer.condition is not None]
            drives = drives + torch.stack([linear(condition) for linear in ours]) * halves
        inner = [layer.residual for layer in layers if layer.residual is not None]
        self.residuals = [(conv.weight[:, :, 0].T / 2).contiguous() for conv in inner]
        added = [torch.zeros_like(net.embedding.weight[0]), *map(_bias, inner)]
        self.offset = torch.stack(added).cumsum(0)[:, None]
        self.bias = drives + self.offset @ (self.old + self.new)
        self.skips = torch.cat([layer.skip.weight[:, :, 0].T / 2 for layer in layers])
        self.skip_bias = torch.stack([_bias(layer.skip) for layer in layers]).sum(0)
        self.embedding = net.embedding.weight.detach()
        top = net.head, net.logits
        self.head = [(_bias(conv), conv.weight[:, :, 0].T.contiguous()) for conv in top]
        self.dilations = torch.tensor([layer.conv.dilation for layer in layers]).to(halves.device)

    def _buffers(self, rows: int) -> None:
        layers, width = self.new.shape[:2]
        like = self.embedding
        self.inputs = like.new_zeros(layers, rows, width)
        self.gates = like.new_zeros(rows, 2 * width)
        self.signals = like.new_zeros(rows, layers, width)
        self.drive = like.new_zeros(layers, rows, 2 * width)
        self.bias = self.bias.expand_as(self.drive).contiguous()
        self.first = self.dilations.cumsum(0) - self.dilations
        total = int(self.dilations.sum())
        owner = torch.repeat_interleave(torch.arange(layers, device=like.device), self.dilations)
        self.queue = (-self.offset[owner]).expand(total, rows, width).contiguous()
        self.slots = torch.zeros_like(self.dilations)
        self.time = torch.zeros(1, dtype=torch.long, device=like.device)
        self.uniform = like.new_zeros(rows, dtype=torch.promote_types(like.dtype, torch.float32))
        halves = self.gates.chunk(2, 1)
        inner = [*zip(self.residuals, self.inputs[1:], strict=True), (None, None)]
        views = [
            (self.drive[i], self.inputs[i], self.new[i], *halves, self.signals[:, i])
            for i in range(layers)
        ]
        self.layers = list(zip(views, inner, strict=True))

    def _begin(self, net: "WaveNet", start: Tensor, condition: Tensor | None) -> None:
        """Fill the queues with the inputs that all but the last given sample have left behind."""
        self.token = start[:, -1].clone()
        past = start[:, -net.field : -1]
        self.time.fill_(start.shape[1] - 1)
        if not past.shape[1]:
            return
        signal = net.embedding(past).mT
        times = torch.arange(start.shape[1] - 1 - past.shape[1], start.shape[1] - 1)
        first = self.first.tolist()
        for i, layer in enumerate(net.gated):
            d = layer.conv.dilation
            slots = (first[i] + times[-d:] % d).to(signal.device)
            self.queue[slots] = signal[:, :, -d:].permute(2, 0, 1) - self.offset[i]
            signal, _ = layer(signal, condition)

    def _one(self) -> None:
        torch.remainder(self.time, self.dilations, out=self.slots).add_(self.first)
        torch.baddbmm(self.bias, self.queue.index_select(0, self.slots), self.old, out=self.drive)
        torch.index_select(self.embedding, 0, self.token, out=self.inputs[0])
        for (drive, x, weight, a, b, z), (residual, following) in self.layers:
            torch.addmm(drive, x, weight, out=self.gates).tanh_()
            torch.addcmul(a, a, b, out=z)
            if residual is not None and following is not None:
                torch.addmm(x, z, residual, out=following)
        self.queue.index_copy_(0, self.slots, self.inputs)
        self.time.add_(1)
        y = torch.addmm(self.skip_bias, self.signals.flatten(1), self.skips)
        for bias, weight in self.head:
            y = torch.addmm(bias, y.relu_(), weight)
        self.token.copy_(self._drawn(y))

    def _drawn(self, logits: Tensor) -> Tensor:
        if self.temperature == 0:
            return logits.argmax(1)
        return categorical(logits.to(self.uniform.dtype) / self.temperature, self.uniform)


def _bias(layer: nn.Conv1d | CausalConv1d) -> Tensor:
    assert layer.bias is not None, "all layers of a WaveNet have biases"
    return layer.bias
