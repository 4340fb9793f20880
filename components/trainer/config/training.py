"""The sections `training` and `transfer`, and all that the Trainer step reads."""

import dataclasses
from dataclasses import field
from typing import Annotated, Literal

from annotated_types import Gt, Interval

from components.contract.configuration import (
    Count,
    Fraction,
    Number,
    Positive,
    Text,
    configuration,
    require,
)
from components.contract.error_messages import did_you_mean
from components.images.options import TransformConfig
from components.trainer.config.input import AugmentationConfig, InputConfig
from components.trainer.config.model import ExportConfig, ModelConfig


@configuration("training")
class TrainingConfig:
    """How the network is trained."""

    recipe: Literal["auto", "small", "photos", "transfer", "cifar"] = "auto"
    """Set of defaults for training, model and augmentation; options that you set stay as they are.
    small: few or small images, from random weights. cifar: thousands of images up to 64 pixels.
    photos: photographs, from random weights. transfer: from pretrained weights. auto: chosen by the
    number of images, their size and `model.weights`; the run prints which and why."""

    epochs: Positive = 20
    """Maximum number of passes over the training images."""

    patience: Positive = 5
    """Stop after this many epochs without a better `metric` on the eval split."""

    folds: Annotated[Count, Interval(le=20)] | Literal["auto"] = "auto"
    """Cross-validation below 1,000 images besides `test`, or 2,000 with pretrained weights, unless
    you name the eval split. Each fold of the images is judged by a model that has not seen it, and
    the exported model is trained on all. auto: 5 folds if they are worth their time, which images,
    epochs and network tell: about 5 minutes on two cores, a quarter of `minutes`, or one for each
    0.01 by which they narrow the interval of the accuracy; with pretrained weights 3 if these take
    less than twice as long; else 0, none."""

    metric: Literal["loss", "accuracy", "balanced_accuracy"] = "loss"
    """Metric on the eval split that chooses the best epoch. loss: cross-entropy, which still ranks
    epochs when accuracy is nearly perfect. balanced_accuracy: mean recall over the classes, where
    rare classes matter as much as frequent ones."""

    keep: Literal["best", "last"] = "best"
    """Epoch to export. best: that with the best `metric` on the eval split. last: the last one,
    without early stopping. Long trainings with strong augmentation improve until the learning rate
    is zero, which few eval images cannot show."""

    # The largest that is known to train well; a batch is one array of the reader.
    batch_size: Annotated[Positive, Interval(le=65_536)] = 32
    """Images per weight update, over all accelerators together."""

    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    """Update rule of the weights, and how the learning rate falls to zero at the last epoch. adam:
    along a cosine; works with hardly any tuning (Kingma and Ba, 2015). adamw: Adam with decoupled
    weight decay (Loshchilov and Hutter, 2019), along a cosine after an epoch of warm-up. sgd: with
    Nesterov momentum 0.85, linearly after two epochs of warm-up; most accurate for convolutional
    networks with many epochs."""

    learning_rate: Annotated[Number, Gt(0)] = 1e-3
    """Peak learning rate, after warm-up; in fine-tuning, of the unfrozen layers."""

    minutes: Annotated[Number, Gt(0)] | None = None
    """Search for a more accurate training for about this long. It varies network, learning rate,
    augmentation, length, regularization and width where you have not set them. The recipe's own
    training always runs to its end, and a trial only replaces it if it is better on the
    images that select the epoch by more than chance gives the best of as many trials. Unset: no
    search."""

    fixed: list[Text] = field(default_factory=list)
    """Options that a search leaves alone, of the sections training, transfer, augmentation and
    model, such as training.learning_rate. Those that you have set are among them."""

    weight_decay: Fraction = 0.0
    """Fraction of each weight subtracted per update, times the learning rate. Biases and
    normalization parameters are excluded, because they do not overfit. Off: for short trainings on
    few images early stopping helps more."""

    label_smoothing: Annotated[Number, Interval(ge=0, le=0.9)] = 0.0
    """Fraction of each label spread over all classes (Szegedy et al., 2016). Off because it makes
    probabilities less extreme; 0.1 is common for long trainings and noisy labels."""

    calibrate: bool = False
    """Fit a temperature on the eval split, so that probabilities match the accuracy better. The
    exported model divides its logits by it (Guo et al., 2017); predictions stay the same. Off
    because fitting on fewer than a few hundred images may do harm."""

    balance: Literal["none", "weights"] = "none"
    """How to treat rare classes. weights: weight the loss of an image inversely to the frequency of
    its class. Off because it lowers the accuracy on frequent classes."""

    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """Precision of the computation; weights stay float32. bfloat16: faster on GPUs from Ampere
    on, and CPUs with AVX-512 BF16 or AMX. float16: for older GPUs, with loss scaling. The exported
    model computes in float32."""

    accelerator: Literal["auto", "cpu", "gpu", "mirrored", "workers"] = "auto"
    """What to train on. auto: the workers of TF_CONFIG, else all GPUs, else the CPU. mirrored: all
    GPUs of this machine. gpu: the first GPU."""

    deterministic: bool | None = None
    """Same seed, same weights on as many CPUs: bit for bit with cnn, while larger networks may
    differ in the last bits on several. Unset: on for CPU; off for accelerators, where it is slower
    and some operations do not support it."""

    seed: Count = 0
    """Seed of the initial weights, shuffling and augmentation."""

    checkpoint_steps: Count = 0
    """Save a checkpoint every so many training steps, besides every epoch. 0: every epoch only."""

    def __post_init__(self) -> None:
        """Check the fields against each other."""
        require(self.folds != 1, "training.folds is 1: it must be auto, 0, or from 2 to 20.")
        require(
            self.weight_decay == 0 or self.optimizer != "adam",
            f"training.weight_decay is {self.weight_decay}: set training.optimizer to adamw, which "
            f"is adam with weight decay.",
        )
        for option in self.fixed:
            require(
                can_search(option),
                f"training.fixed names {option!r}, which no search changes."
                f"{did_you_mean(option, _SEARCHABLE)}",
            )
        require(
            self.minutes is None or self.accelerator != "workers",
            "training.minutes searches on one machine: set training.accelerator to another value.",
        )


@configuration("transfer")
class TransferConfig:
    """How a network that starts from `model.weights` is fine-tuned.

    First a logistic regression on the features of all images gives the new head. Then the unfrozen
    layers are trained, too, as `training` says, and replace the first answer if they are better
    beyond chance. Without weights this section has no effect.
    """

    unfreeze: Positive | Literal["top", "all", "none"] = "top"
    """What the second phase trains besides the head. A number: the last so many blocks of layers.
    top: half of them. The frozen layers see four augmented views of each image, once, if what they
    compute fits in 2 GiB. all: all layers; every epoch runs the whole network. none: nothing, which
    skips the phase. Depthwise filters are trained with all layers only."""


@configuration()
class TrainerConfig:
    """All sections that the Trainer step reads."""

    transform: TransformConfig = field(default_factory=TransformConfig)
    input: InputConfig = field(default_factory=InputConfig)
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    transfer: TransferConfig = field(default_factory=TransferConfig)

    export: ExportConfig = field(default_factory=ExportConfig)
    """Its `max_drop` is for the Evaluator."""

    judged_by_folds: bool = False
    """Whether `training.folds` auto may divide the images. Off: an Evaluator that knows nothing of
    folds would judge the model by images that it was trained on."""

    tuner_run: Text = ""
    """Where ImageTrainer finds the chosen training of ImageTuner; its executor sets it."""

    checkpoints: Text = ""
    """Folder, a path or URL, for checkpoints of trainings whose model is not exported yet. Empty:
    beside the logs of this attempt, where no other attempt finds them."""

    code: Text = ""
    """Digest of the step's code, so that no other code resumes its checkpoints; the executor takes
    it from the property `code_digest`."""


# The search itself, and what all of its trials must have in common.
_SHARED = {*("minutes", "fixed", "recipe", "folds", "metric", "seed", "accelerator", "calibrate")}
_SEARCHABLE = [
    f"{section}.{option.name}"
    for section in ("training", "transfer", "augmentation", "model")
    for option in dataclasses.fields(getattr(TrainerConfig(), section))
    if option.name not in _SHARED
]


def can_search(option: str) -> bool:
    """Return whether a search may change an option, as `section.field`."""
    return option in _SEARCHABLE
