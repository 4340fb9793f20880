"""How the network is trained: every choice, its default and the reason for it."""

from __future__ import annotations

from dataclasses import dataclass

from components.contract.configuration import require


@dataclass(frozen=True)
class TrainingConfig:
    """How the network is trained."""

    epochs: int = 20
    """Largest number of passes over the training images."""

    patience: int = 5
    """Stop after this many epochs without a lower loss on the eval split, and keep the best."""

    batch_size: int = 32
    """Images per training step."""

    learning_rate: float = 1e-3
    """Initial learning rate of Adam; it falls to zero along a cosine over all epochs."""

    seed: int = 0
    """Seed of the initial weights, of shuffling and of augmentation."""

    checkpoint_steps: int = 0
    """Save the state of training after every so many steps, to go on from there when it is killed,
    and at the end of every epoch. 0: only there."""

    profile_steps: int = 0
    """Steps of which a profile is recorded for TensorBoard, from the tenth step on. 0: none."""

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        for name in ("epochs", "patience", "batch_size"):
            value = getattr(self, name)
            require(value >= 1, f"training.{name} is {value}: it must be at least 1.")
        for name in ("checkpoint_steps", "profile_steps"):
            value = getattr(self, name)
            require(value >= 0, f"training.{name} is {value}: it must not be negative.")
        require(
            self.learning_rate > 0,
            f"training.learning_rate is {self.learning_rate}: it must be above 0.",
        )
