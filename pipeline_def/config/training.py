"""How the network is trained: every choice, its default and the reason for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from components.contract.configuration import require
from components.contract.kinds import check_types

_RANGES = {
    "momentum": (0, 0.999),
    "weight_decay": (0, 1),
    "label_smoothing": (0, 0.9),
    "clip_norm": (0, 1e6),
    "ema": (0, 0.99999),
    "warmup_epochs": (0, 1e4),
    # The largest that is known to train well; a batch is an array of the reader.
    "batch_size": (1, 65_536),
}
_AT_LEAST = {
    "epochs": 1,
    "patience": 1,
    "accumulate": 1,
    "steps_per_call": 0,
    "checkpoint_steps": 0,
    "profile_steps": 0,
    "seed": 0,
}


@dataclass(frozen=True)
class TrainingConfig:
    """How the network is trained."""

    recipe: Literal["auto", "small", "photos", "transfer", "cifar"] = "auto"
    """Sets options of training, model and augmentation that are not given, all together.
    small: few or small images, from random weights. cifar: thousands of images up to 64 pixels.
    photos: photographs, from random weights. transfer: from pretrained weights. auto: by the number
    of images, their size and `model.weights`; the run says which and why."""

    epochs: int = 20
    """Largest number of passes over the training images."""

    patience: int = 5
    """Stop after this many epochs without a better `metric` on the eval split, and keep the
    best."""

    metric: Literal["loss", "accuracy", "balanced_accuracy"] = "loss"
    """What `patience` and the choice of the best epoch watch, on the eval split. loss: the
    cross-entropy, which still tells epochs apart when few images are left to get right.
    balanced_accuracy: the mean of the recalls of all classes, where rare classes matter as much as
    frequent ones."""

    batch_size: int = 32
    """Images per update of the weights, on all accelerators together."""

    accumulate: int = 1
    """Parts that a batch is computed in, one after the other, before the weights are updated once;
    for batches that do not fit into the accelerator's memory. Batch normalisation sees a part."""

    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    """adam: works with hardly any tuning (Kingma and Ba, 2015). adamw: the same with weight decay
    of its own (Loshchilov and Hutter, 2019). sgd: with Nesterov momentum; the best accuracy of
    convolutional networks with a long schedule."""

    learning_rate: float = 1e-3
    """Largest learning rate, after warm-up; in fine-tuning, that of the unfrozen layers."""

    momentum: float = 0.9
    """Nesterov momentum of sgd."""

    schedule: Literal["cosine", "linear", "step", "constant"] = "cosine"
    """How the learning rate falls after warm-up. cosine, linear: to zero at the last epoch. step:
    to a tenth at 50, 75 and 90 % of all epochs. constant: not at all."""

    warmup_epochs: float = 0.0
    """Epochs, or parts of one, in which the learning rate rises from zero. Off for adam, which
    scales its steps by itself; large rates of sgd need it."""

    weight_decay: float = 0.0
    """Fraction of each weight that is taken off in every update, times the learning rate. Never of
    biases and the parameters of normalisation, which do not overfit. Off: for a short training from
    few images early stopping does more."""

    label_smoothing: float = 0.0
    """Part of each label that is spread over all classes (Szegedy et al., 2016). Off, because it
    makes probabilities less extreme; 0.1 is usual for long trainings and wrong labels."""

    calibrate: bool = False
    """Fit a temperature on the eval split after training, by which the exported model divides its
    logits (Guo et al., 2017): the answers stay the same, their probabilities come nearer to how
    often they are right. Off, because a fit to fewer than some hundred images may do harm."""

    clip_norm: float = 0.0
    """Largest norm of all gradients together; larger ones are scaled down. 0: off, as batch
    normalisation keeps them in bounds; 1 is usual for ConvNeXt and large learning rates."""

    ema: float = 0.0
    """Decay of the moving average of all weights, per update; the average is what is evaluated and
    exported. 0: off, because a schedule that ends at zero averages by itself; 0.999 steadies short
    or noisy trainings. It starts fast: at update n the decay is at most (1 + n) / (10 + n)."""

    balance: Literal["none", "weights", "sampling"] = "none"
    """What is done for rare classes. weights: the loss of an image counts in inverse proportion to
    the frequency of its class. sampling: an epoch draws all classes equally often; needs the reader
    indexed. Off: it costs accuracy on the frequent classes."""

    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """What convolutions compute in; weights stay float32. bfloat16: twice as fast on GPUs from
    Ampere on, TPUs, and CPUs with AVX-512 BF16 or AMX. float16: for older GPUs, with loss scaling.
    The exported model computes in float32."""

    xla: bool = False
    """Compile the step with XLA. Off: it takes minutes to compile large networks; on CPU it was
    twice as slow."""

    accelerator: Literal["auto", "cpu", "gpu", "mirrored", "workers", "tpu"] = "auto"
    """auto: the TPU that TPU_NAME names, else the workers of TF_CONFIG, else all GPUs, else the
    CPU. mirrored: all GPUs of this machine. gpu: its first one."""

    deterministic: bool | None = None
    """Same seed, same weights bit for bit. Unset: on for CPU; off for accelerators, where it costs
    speed and some operations do not have it."""

    steps_per_call: int = 0
    """Steps that run on the device before Python looks at the result. 0: as many as take about a
    second."""

    seed: int = 0
    """Seed of the initial weights, of shuffling and of augmentation."""

    checkpoint_steps: int = 0
    """Save the state of training after every so many steps, to go on from there when it is killed,
    and at the end of every epoch. 0: only there."""

    profile_steps: int = 0
    """Steps of which a profile is recorded for TensorBoard, from the tenth step on. 0: none."""

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        check_types(self, "training")
        for name, least in _AT_LEAST.items():
            value = getattr(self, name)
            limit = "not be negative" if least == 0 else f"be at least {least}"
            require(value >= least, f"training.{name} is {value}: it must {limit}.")
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            require(
                low <= value <= high,
                f"training.{name} is {value}: it must be from {low} to {high}.",
            )
        require(
            0 < self.learning_rate < float("inf"),
            f"training.learning_rate is {self.learning_rate}: it must be above 0, and finite.",
        )
        require(
            self.weight_decay == 0 or self.optimizer != "adam",
            f"training.weight_decay is {self.weight_decay}: choose training.optimizer adamw, which "
            f"is adam with weight decay.",
        )
