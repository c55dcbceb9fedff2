"""The networks of images and sentences, from LeNet to U-Net."""

from vademecum.convolution.networks.alexnet import AlexNet
from vademecum.convolution.networks.densenet import DenseBlock, DenseNet
from vademecum.convolution.networks.googlenet import GoogLeNet, GoogLeNetOutput, InceptionModule
from vademecum.convolution.networks.lenet import LeNet5, scaled_tanh
from vademecum.convolution.networks.resnet import ResidualBlock, ResNet
from vademecum.convolution.networks.tcn import TCN
from vademecum.convolution.networks.textcnn import TextCNN
from vademecum.convolution.networks.unet import UNet
from vademecum.convolution.networks.vgg import VGG

__all__ = [
    "AlexNet", "DenseBlock", "DenseNet", "GoogLeNet", "GoogLeNetOutput", "InceptionModule",
    "LeNet5", "ResNet", "ResidualBlock", "TCN", "TextCNN", "UNet", "VGG", "scaled_tanh",
]  # fmt: skip
