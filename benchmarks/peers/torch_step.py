"""Measures the training step of ResNet-9 in PyTorch, in its own environment; prints JSON.

    /tmp/peers/torch/bin/python -m benchmarks.peers.torch_step '{"batch": 512, …}'

The network, loss and optimizer are those of `own_networks.build_resnet9` and of the recipe `cifar`.
Needs only PyTorch and NumPy.
"""

import json
import sys
import time
from importlib import import_module
from typing import Any

torch = import_module("torch")
nn, functional = torch.nn, torch.nn.functional

_WIDTH, _CLASSES, _WARM_UP = 64, 10, 3


def main() -> None:
    """Measure the task in the only argument, which is JSON."""
    task = json.loads(sys.argv[1])
    network = _build().to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(
        [one for one in network.parameters() if one.requires_grad],
        lr=0.01,
        momentum=0.85,
        nesterov=True,
    )
    shape = [task["batch"], 3, task["size"], task["size"]]
    images = torch.randn(shape).to(memory_format=torch.channels_last)
    labels = torch.randint(0, _CLASSES, [task["batch"]])
    bfloat16 = task["precision"] == "bfloat16"

    def run(count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
                logits = network(images)
                loss = functional.cross_entropy(logits.float(), labels, label_smoothing=0.2)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        loss.item()
        return time.perf_counter() - started

    run(_WARM_UP)
    seconds = [run(task["steps"]) for _ in range(max(1, task["epochs"] - 1))]
    rates = [task["steps"] * task["batch"] / one for one in seconds]
    print(json.dumps({"images_per_second": rates, "version": torch.__version__}))


def _build() -> Any:
    """Build the network; [batch, 3, height, width] standardized pixels to logits."""
    whitening = nn.Conv2d(3, 24, 2)
    whitening.weight.requires_grad_(False)
    return nn.Sequential(
        whitening,
        nn.GELU(approximate="tanh"),
        _stage(24, _WIDTH, 1),
        _stage(_WIDTH, 4 * _WIDTH, 1),
        _stage(4 * _WIDTH, 4 * _WIDTH, 2),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * _WIDTH, _CLASSES, bias=False),
    )


def _stage(inputs: int, outputs: int, convolutions: int) -> Any:
    class Residual(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.branch = nn.Sequential(*(_convolve(outputs, outputs) for _ in range(convolutions)))

        def forward(self, features: Any) -> Any:
            return features + self.branch(features)

    return nn.Sequential(_convolve(inputs, outputs, nn.MaxPool2d(2)), Residual())


def _convolve(inputs: int, outputs: int, *pool: Any) -> Any:
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return nn.Sequential(convolution, *pool, nn.BatchNorm2d(outputs), nn.GELU(approximate="tanh"))


if __name__ == "__main__":
    main()
