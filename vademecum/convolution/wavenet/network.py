r"""WaveNet: the next sample of a signal, from thousands before it.

Samples are classes (256 by $\mu$-law). Layer $l$ has a causal convolution with two taps, a distance
$d_l$ apart, $d_l = 1, 2, \dots, 512$ and again, a gate, and a residual and a skip connection:

$$z = \tanh(W_f * x + V_f h) \odot \sigma(W_g * x + V_g h), \qquad
x \leftarrow x + W_r z, \qquad s \leftarrow s + W_s z,$$

where $h$ is a global condition, such as who speaks. Two layers on top of $s$ give the logits. With
$B$ blocks of $D$ layers an output knows $1 + B (2^D - 1)$ samples: 3070 for three blocks of ten.
Checked by `convolution.wavenet_context`; samples that are drawn step by step are those of the whole
network, up to rounding.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vademecum.arguments import floats, number, whole
from vademecum.convolution.wavenet._gated import GatedLayer
from vademecum.convolution.wavenet._stepping import Stepper
from vademecum.progress import ticking
from vademecum.randomness import source

__all__ = ["WaveNet"]


class WaveNet(nn.Module):
    """WaveNet, from a sequence of classes to the logits of each next one.

    Args:
        num_classes: How many classes a sample can have.
        width: How many residual channels there are.
        skip: How many skip channels there are.
        blocks: How many times the dilations 1, 2, 4, ... are run through.
        depth: How many layers a block has.
        condition: How many numbers the global condition has; 0 if there is none.

    References:
        Van den Oord et al., WaveNet: a generative model for raw audio, 2016.

    Example:
        >>> net = WaveNet(8, width=4, skip=6, blocks=2, depth=3)
        >>> net.field
        15
        >>> x = torch.zeros(2, 20, dtype=torch.long)
        >>> net(x).shape
        torch.Size([2, 8, 20])
        >>> net.generate(5, start=x).shape
        torch.Size([2, 5])
    """

    def __init__(
        self,
        num_classes: int = 256,
        *,
        width: int = 64,
        skip: int = 256,
        blocks: int = 3,
        depth: int = 10,
        condition: int = 0,
    ):
        super().__init__()
        self.num_classes = whole("num_classes", num_classes, low=2)
        self.blocks, self.depth = whole("blocks", blocks, low=1), whole("depth", depth, low=1)
        self.condition = whole("condition", condition, low=0)
        width, skip = whole("width", width, low=1), whole("skip", skip, low=1)
        self.embedding = nn.Embedding(num_classes, width)
        last = blocks * depth - 1
        self.layers = nn.ModuleList(
            GatedLayer(width, skip, 2 ** (i % depth), condition, residual=i < last)
            for i in range(blocks * depth)
        )
        self.head = nn.Conv1d(skip, skip, 1)
        self.logits = nn.Conv1d(skip, num_classes, 1)

    @property
    def gated(self) -> list[GatedLayer]:
        """Its layers, from the input on."""
        return [layer for layer in self.layers if isinstance(layer, GatedLayer)]

    @property
    def field(self) -> int:
        """How many samples an output knows."""
        return 1 + self.blocks * (2**self.depth - 1)

    def forward(
        self, x: Int[Tensor, " n T"], condition: Float[Tensor, " n h"] | None = None
    ) -> Float[Tensor, " n k T"]:
        """The logits of each next sample: those at $t$ come from the samples up to $t$.

        Args:
            x: The samples, as classes.
            condition: The global condition of each sequence, if the network has one.
        """
        self._check(x, condition)
        signal, skips = self.embedding(x).mT, []
        for layer in self.gated:
            signal, skip = layer(signal, condition)
            skips = [skip + skips.pop()] if skips else [skip]
        return self.logits(torch.relu(self.head(torch.relu(skips[0]))))

    @torch.no_grad()
    def generate(
        self,
        n: int,
        *,
        start: Int[Tensor, " batch T"] | None = None,
        condition: Float[Tensor, " batch h"] | None = None,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
        progress: bool = False,
    ) -> Int[Tensor, " batch n"]:
        """Draw samples, each from what the network says after those before it.

        A layer keeps the few inputs that it will need again, so that a sample costs one step and
        not a pass over all it knows; on CUDA devices the step is captured once and replayed.

        Args:
            n: How many samples to draw.
            start: What they continue; by default one sequence that begins with the middle class,
                which is silence.
            condition: The global condition of each sequence, if the network has one.
            temperature: What the logits are divided by; 0 takes the most probable class.
            generator: Where random numbers come from; torch's global generator by default.
            progress: Whether to show a progress bar on standard error.
        """
        n = whole("n", n, low=1)
        number("temperature", temperature, low=0)
        device = self.embedding.weight.device
        if start is None:
            rows = 1 if condition is None else len(condition)
            start = torch.full((rows, 1), self.num_classes // 2, device=device)
        self._check(start, condition)
        shape = (n, len(start))
        uniform = torch.rand(shape, dtype=torch.float64, **source(generator, device))
        stepper = Stepper(self, start, condition, temperature)
        drawn = torch.empty(shape, dtype=torch.long, device=device)
        with ticking("samples", n, progress=progress) as tick:
            for t, u in enumerate(uniform.to(device, stepper.uniform.dtype)):
                drawn[t] = stepper.sample(u)
                tick(1)
        return drawn.T.contiguous()

    def _check(self, x: Tensor, condition: Tensor | None) -> None:
        if x.ndim != 2 or x.is_floating_point() or not x.numel():
            raise ValueError(f"x must be classes (n, T), got {x.dtype} of shape {tuple(x.shape)}")
        if (condition is None) != (self.condition == 0):
            wanted = f"{self.condition} numbers" if self.condition else "None"
            raise ValueError(f"condition must be {wanted}, as the network was made for")
        if condition is not None:
            shape = (len(x), self.condition)
            if floats("condition", condition).shape != shape:
                raise ValueError(
                    f"condition must have the shape {shape}, got {tuple(condition.shape)}"
                )
