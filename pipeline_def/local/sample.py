"""The built-in sample: scikit-learn's handwritten digits as a folder of images."""

from __future__ import annotations

import os


def write_digits(folder: str) -> int:
    """Write the 1,797 digits, 8 x 8 pixels, as `folder/<digit>/<number>.png`, unless they exist.

    Source: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine
    Learning Repository, 1998; the test set, which scikit-learn includes.

    Returns:
        The number of images.
    """
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    # Pixel values are from 0 to 16.
    images = np.round(digits.images * (255 / 16)).astype(np.uint8)
    for number, (pixels, label) in enumerate(zip(images, digits.target, strict=True)):
        path = os.path.join(folder, str(label), f"{number:04d}.png")
        # Not rewritten: a new modification time would look like a new image.
        if not os.path.exists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            unfinished = f"{folder}.unfinished"
            Image.fromarray(pixels).save(unfinished, "PNG")
            os.replace(unfinished, path)
    return len(images)
