r"""All linear maps $W$ that are equivariant, $\rho_2(g) W = W \rho_1(g)$ for all $g$.

They are a vector space, and it is enough to ask generators. Between permutation representations it
is spanned by the indicator matrices of the orbits of pairs $(i, j)$: exact, for groups of any
order. Otherwise it is a null space, found by singular values in double precision.

Its dimension is the inner product $\frac1{|G|} \sum_g \chi_2(g) \chi_1(g^{-1})$ of the characters,
by which the null space is checked. The symmetric group has 2 such maps between vectors of $n$
numbers and, from $n = 4$ on, 15 between matrices.
"""

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from vademecum.geometry.groups._generated import MOST
from vademecum.geometry.groups.finite_groups import Group
from vademecum.geometry.groups.representations import Representation

__all__ = ["equivariant_basis"]


def equivariant_basis(
    group: Group, rep_in: Representation, rep_out: Representation
) -> Float[Tensor, " dimension d_out d_in"]:
    """A basis of all linear equivariant maps between two representations.

    Args:
        group: The group.
        rep_in: How it acts on inputs.
        rep_out: How it acts on outputs.

    Returns:
        Matrices in float64: of zeros and ones, no two of which overlap, for permutations, and
        orthonormal ones otherwise.

    Raises:
        ValueError: If representations are of another group, or are none.

    Example:
        >>> from vademecum.geometry import Group
        >>> group = Group.symmetric(4)
        >>> points = group.natural()
        >>> equivariant_basis(group, points, points)[0].diagonal()
        tensor([1., 1., 1., 1.], dtype=torch.float64)
        >>> [len(equivariant_basis(group, r, r)) for r in (points, points * points)]
        [2, 15]
    """
    for name, rep in (("rep_in", rep_in), ("rep_out", rep_out)):
        if rep.group != group:
            raise ValueError(f"{name} must be a representation of {group}, got one of {rep.group}")
    if rep_in.exact and rep_out.exact:
        return _orbits(group, rep_in, rep_out)
    basis = _null_space(group, rep_in, rep_out)
    if group.order <= MOST:
        back = rep_in.characters().double()[group.inverses]
        wanted = float((rep_out.characters().double() * back).mean())
        if abs(wanted - len(basis)) > 1e-3:
            raise ValueError(
                "representations must be homomorphisms, and by their characters there are"
                f" {wanted:.6g} maps, by their generators {len(basis)}"
            )
    return basis


def _orbits(group: Group, rep_in: Representation, rep_out: Representation) -> Tensor:
    """Indicators of the orbits of pairs of coordinates, in the order of their first pairs."""
    n = rep_out.d * rep_in.d
    start = np.arange(n)
    ends = [start]  # which is nobody's neighbour but for itself
    for g in group.generators:
        rows, columns = rep_out.permutation(g), rep_in.permutation(g)
        ends.append((rows[:, None] * rep_in.d + columns).flatten().numpy())
    edges = np.tile(start, len(ends)), np.concatenate(ends)
    graph = coo_array((np.ones(len(edges[0]), dtype=bool), edges), shape=(n, n))
    count, labels = connected_components(graph, directed=False)
    first = np.unique(labels, return_index=True)[1]
    places = np.argsort(np.argsort(first))[labels]
    basis = torch.zeros(count, n, dtype=torch.float64, device="cpu")
    basis[torch.from_numpy(places).long(), torch.arange(n, device="cpu")] = 1
    return basis.view(count, rep_out.d, rep_in.d)


def _null_space(group: Group, rep_in: Representation, rep_out: Representation) -> Tensor:
    """Maps W, row after row, on which all generators agree."""
    one, other = (torch.eye(r.d, dtype=torch.float64, device="cpu") for r in (rep_in, rep_out))
    rows = [torch.zeros(1, rep_in.d * rep_out.d, dtype=torch.float64, device="cpu")]
    for g in group.generators:
        a, b = rep_in.matrix(g).double(), rep_out.matrix(g).double()
        rows.append(torch.kron(b, one) - torch.kron(other, a.mT.contiguous()))
    _, values, right = torch.linalg.svd(torch.cat(rows))
    values = torch.nn.functional.pad(values, (0, len(right) - len(values)))
    small = values <= 1e-7 * values.max().clamp(min=1)
    return right[small].reshape(-1, rep_out.d, rep_in.d)
