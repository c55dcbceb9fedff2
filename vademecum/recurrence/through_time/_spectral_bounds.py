r"""What the weights alone say of $\|\partial z_T / \partial z_t\|$.

With slopes $|\dot\phi| \le \alpha$ a layer $z = \phi(U z' + V x)$ has $\|\partial z / \partial z'\|
\le \alpha\, \sigma_{\max}(U)$ and $\|\partial z / \partial x\| \le \alpha\, \sigma_{\max}(V)$. In a
stack of layers $N_{lk} = \alpha \sigma(V_l) \cdots \alpha \sigma(V_{k+1}) \cdot \alpha \sigma(U_k)$
for $k \le l$ bounds the block of the Jacobian from layer $k$ to layer $l$, and so

$$\Big\| \frac{\partial z_T}{\partial z_t} \Big\|_2 \le \|N^{T-t}\|_2 ,$$

which for one layer is $(\alpha\, \sigma_{\max}(U))^{T-t}$. The slopes of tanh and ReLU are at most
1, those of the sigmoid 1/4, and the Jacobian of a softmax has a norm of at most 1/2. Gated layers
have no such bound.
"""

import math

import torch
from torch import Tensor, nn

from vademecum.recurrence._stepping import Chain
from vademecum.recurrence._torch_cells import kind_of
from vademecum.recurrence.elman import ElmanRNN
from vademecum.recurrence.linear_recurrences import LinearRecurrence
from vademecum.recurrence.linear_units import LRU

__all__ = ["log_powers", "norm_matrix"]

_SLOPES = {"identity": 1.0, "relu": 1.0, "tanh": 1.0, "sigmoid": 0.25, "softmax": 0.5}


def norm_matrix(model: nn.Module, chain: Chain) -> Tensor | None:
    """The matrix N for a chain of a model, if something is known of its slopes."""
    if isinstance(model, nn.RNNCell):
        return _of_layers([(model.weight_ih, model.weight_hh)])
    if isinstance(model, nn.RNNBase) and kind_of(model).startswith("RNN"):
        pairs = [
            (getattr(model, f"weight_ih_{place}"), getattr(model, f"weight_hh_{place}"))
            for place in chain.places
        ]
        return _of_layers(pairs)
    if isinstance(model, ElmanRNN):
        return _of_layers([(model.V, model.U)], _SLOPES[model.activation])
    if isinstance(model, LinearRecurrence):
        A = model.A.diag() if model.A.ndim == 1 else model.A
        return _of_layers([(model.B, A)])
    if isinstance(model, LRU) and len(model.layers) == 1:
        return model.eigenvalues.detach().abs().amax(1, keepdim=True).double().cpu()
    return None


def _of_layers(pairs: list[tuple[Tensor, Tensor]], alpha: float = 1.0) -> Tensor:
    """N for layers with input and recurrent weights, and slopes up to alpha."""
    norms = [[alpha * _sigma(V), alpha * _sigma(U)] for V, U in pairs]
    N = torch.zeros(len(pairs), len(pairs), dtype=torch.float64)
    for k, (_, own) in enumerate(norms):
        N[k, k] = own
        for above in range(k + 1, len(norms)):
            N[above, k] = norms[above][0] * N[above - 1, k]
    return N


def _sigma(matrix: Tensor) -> float:
    wide = torch.promote_types(matrix.dtype, torch.float64)
    return float(torch.linalg.matrix_norm(matrix.detach().to(wide), 2))


def log_powers(N: Tensor, T: int) -> Tensor:
    r"""$\log \|N^k\|_2$ for k = 0 .. T - 1, however large or small."""
    P, scale, found = torch.eye(len(N), dtype=torch.float64), 0.0, []
    for _ in range(T):
        size = float(torch.linalg.matrix_norm(P, 2))
        scale += math.log(size) if size else -math.inf
        found.append(scale)
        P = N @ (P / size if size else P)
    return torch.tensor(found, dtype=torch.float64)
