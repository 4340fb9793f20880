"""A network of your own."""

from tf_keras import Model, Sequential, layers


def build(*, size: int, classes: int) -> Model:
    """Return a network from uint8 [batch, size, size, 3] to logits [batch, classes]."""
    return Sequential(
        [
            layers.InputLayer((size, size, 3), dtype="uint8"),
            layers.Rescaling(1 / 127.5, offset=-1),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(classes),
        ]
    )
