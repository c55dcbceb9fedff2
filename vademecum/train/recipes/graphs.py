"""Recipes for graphs and clouds of points; both are built in or drawn."""

from typing import Literal

from vademecum.train.recipes._task import Task

__all__ = ["nodes", "pointnet"]


def nodes(
    *,
    data: Literal["karate", "blocks"] = "karate",
    name: Literal["gcn", "gat", "gin"] = "gcn",
    width: int = 16,
    layers: int = 2,
    labels: int = 2,
) -> Task:
    """Tell the classes of a graph's nodes from a few: GCN, GAT or GIN.

    Args:
        data: The karate club, or a random graph of four blocks.
        name: Which network.
        width: How wide its hidden layers are.
        layers: How many layers it has.
        labels: How many nodes of each class are known.
    """
    import torch

    from vademecum.errors import UsageError
    from vademecum.train.recipes import _graph_parts as parts
    from vademecum.train.recipes._objective import Objective

    graph = parts.karate() if data == "karate" else parts.blocks()
    y, edges = graph[2], graph[1]
    degrees = torch.bincount(edges[0], minlength=len(y))
    by_degree = degrees.argsort(descending=True, stable=True)
    most = int(torch.bincount(y).min()) - 1
    if not 1 <= labels <= most:
        raise UsageError(f"--labels must be from 1 to {most} for {data}, got {labels}")
    known = torch.cat([by_degree[y[by_degree] == c][:labels] for c in y.unique()])
    objective = Objective(parts.OnGraph(name, graph, width=width, layers=layers), parts.node_loss)
    settings = {"optimizer": "adamw", "lr": 0.01, "weight_decay": 0.05, "batch_size": len(known),
                "steps": 200, "evaluate_every": 50}  # fmt: skip
    return Task(objective, known, parts.other_nodes(known), "accuracy", True, settings)


def pointnet(*, points: int = 64, noise: float = 0.02, width: int = 64, clouds: int = 2000) -> Task:
    """Tell surfaces by clouds of points on them: PointNet.

    Args:
        points: How many points a cloud has.
        noise: How far points lie off the surface.
        width: How many global features there are.
        clouds: How many clouds to train on.
    """
    from torch.nn import functional as F

    from vademecum.geometry import PointNet
    from vademecum.train import Supervised
    from vademecum.train.recipes import _graph_parts as parts
    from vademecum.train.recipes._image_losses import accuracy

    net = PointNet(3, len(parts.SHAPES), width=width)
    settings = {"optimizer": "adamw", "lr": 3e-3, "weight_decay": 0.01, "batch_size": 64,
                "steps": 400, "schedule": "cosine", "warmup": 20,
                "evaluate_every": 100}  # fmt: skip
    data = parts.clouds(clouds, points, noise=noise, seed=0)
    judge = accuracy(parts.clouds(500, points, noise=noise, seed=1))
    return Task(Supervised(net, F.cross_entropy), data, judge, "accuracy", True, settings)
