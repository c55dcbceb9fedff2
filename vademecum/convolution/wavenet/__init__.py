"""WaveNet: the network, and its samples one by one."""

from vademecum.convolution.wavenet.network import WaveNet

__all__ = ["WaveNet"]
