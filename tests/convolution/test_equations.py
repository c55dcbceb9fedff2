"""What counts of parameters do not see: normalisation of responses, and the order of layers."""

import pytest
import torch
from torch import nn

from vademecum.convolution import AlexNet, DenseNet, GoogLeNet


@pytest.mark.parametrize("make", [
    lambda: AlexNet(2, width=6, variant="2012").features[2],
    lambda: AlexNet(2, width=6, variant="2012").features[6],
    lambda: GoogLeNet(2, width=2, variant="2014").response,
])  # fmt: skip
def test_responses_are_normalised_as_in_2012(make):
    """By the sum over five maps, with k = 2, alpha = 0.0001 and beta = 0.75."""
    y = 100 * torch.rand(1, 9, 2, 2, dtype=torch.float64)
    sums = [y[:, max(0, i - 2) : i + 3].square().sum(1) for i in range(9)]
    torch.testing.assert_close(make()(y), y / (2 + 1e-4 * torch.stack(sums, 1)) ** 0.75)


def test_densenet_is_its_equations():
    net = DenseNet(121, 3, width=2).double().eval()
    state = net.state_dict()
    for name, tensor in state.items():
        if name.endswith(("weight", "bias", "running_mean")) and tensor.ndim == 1:
            tensor.normal_()

    def rectified(y, name):
        mean, var, scale, shift = (
            state[f"features.{name}.{part}"][:, None, None]
            for part in ("running_mean", "running_var", "weight", "bias")
        )
        return ((y - mean) / (var + 1e-5).sqrt() * scale + shift).relu()

    def conv(y, name, *sizes):
        return nn.functional.conv2d(y, state[f"features.{name}.weight"], None, *sizes)

    x = torch.randn(1, 3, 64, 48, dtype=torch.float64)
    y = nn.functional.max_pool2d(rectified(conv(x, "conv0", 2, 3), "norm0"), 3, 2, 1)
    for block, layers in enumerate((6, 12, 24, 16), 1):
        for layer in range(1, layers + 1):
            at = f"denseblock{block}.denselayer{layer}"
            inner = conv(rectified(y, f"{at}.norm1"), f"{at}.conv1")
            added = conv(rectified(inner, f"{at}.norm2"), f"{at}.conv2", 1, 1)
            y = torch.cat([y, added], 1)
        if block < 4:
            at = f"transition{block}"
            y = nn.functional.avg_pool2d(conv(rectified(y, f"{at}.norm"), f"{at}.conv"), 2)
    y = rectified(y, "norm5").mean((2, 3))
    torch.testing.assert_close(net(x), y @ state["classifier.weight"].T + state["classifier.bias"])
