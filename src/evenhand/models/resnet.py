"""The smaller ResNet-18 of the FairFedAvgALM experiments (needs the `torch` extra)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class _Block(nn.Module):
    """Two 3 × 3 convolutions with batch normalisation, and a short cut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(self.path(images) + self.shortcut(images))


class ResNet18Network(nn.Module):
    """Four stages of two blocks each, with 64, 128, 256 and 512 channels by default.

    The first convolution is 7 × 7 with stride 2 and a pooling of stride 2 follows it, as for photographs;
    `small_images` takes a 3 × 3 convolution of stride 1 without pooling, for images of about 32 × 32.
    """

    def __init__(
        self,
        outputs: int = 1,
        input_channels: int = 3,
        channels: tuple[int, int, int, int] = (64, 128, 256, 512),
        small_images: bool = False,
    ) -> None:
        super().__init__()
        size, stride = (3, 1) if small_images else (7, 2)
        first: list[nn.Module] = [
            nn.Conv2d(input_channels, channels[0], size, stride, padding=size // 2, bias=False),
            nn.BatchNorm2d(channels[0]),
            nn.ReLU(),
        ]
        if not small_images:
            first.append(nn.MaxPool2d(3, stride=2, padding=1))
        blocks: list[nn.Module] = []
        width = channels[0]
        for stage, wanted in enumerate(channels):
            blocks += [_Block(width, wanted, 1 if stage == 0 else 2), _Block(wanted, wanted, 1)]
            width = wanted
        self.features = nn.Sequential(*first, *blocks)
        self.head = nn.Linear(width, outputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        pooled: Tensor = self.features(images).mean(dim=(2, 3))
        output: Tensor = self.head(pooled)
        return output
