"""How a pretrained network is fitted to new classes: every choice, its default and the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from components.contract.configuration import require
from components.contract.kinds import check_types


@dataclass(frozen=True)
class TransferConfig:
    """How a network that starts from `model.weights` is fitted to the classes.

    First a new head is trained on frozen features, then the unfrozen layers too, as `training`
    says. Without weights it has no effect.
    """

    head_epochs: int = 30
    """Largest number of epochs of the first phase, in which only the new last layer is trained. 0:
    there is none."""

    head_learning_rate: float = 1e-2
    """Learning rate of the first phase; larger than that of the second, as a single layer bears
    it."""

    cache_features: bool = True
    """Compute the frozen features of all images once; an epoch of the first phase then takes no
    more than a moment. The head sees no augmented images; false: it does, and an epoch takes as
    long as running the whole network. The second phase augments in either case."""

    unfreeze: int | Literal["all", "none"] = "all"
    """What the second phase trains beside the head: all layers, the last so many blocks of the
    network, or none; then there is no second phase."""

    train_batch_norm: bool = False
    """Let batch normalisation learn in the second phase. Off: its statistics, of many more images
    than there are here, would be replaced by those of a few batches."""

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        check_types(self, "transfer")
        require(
            self.head_epochs >= 0,
            f"transfer.head_epochs is {self.head_epochs}: it must not be negative.",
        )
        require(
            0 < self.head_learning_rate < float("inf"),
            f"transfer.head_learning_rate is {self.head_learning_rate}: it must be above 0.",
        )
        require(
            isinstance(self.unfreeze, str) or self.unfreeze >= 1,
            f"transfer.unfreeze is {self.unfreeze}: it must be all, none, or at least 1 block.",
        )
        require(
            self.head_epochs > 0 or self.unfreeze != "none",
            "transfer.head_epochs is 0 and transfer.unfreeze is none: nothing would be trained.",
        )
