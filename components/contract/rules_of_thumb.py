"""Limits that both the choice of a network and the report's advice use."""

OWN_NETWORKS = ("cnn", "resnet9")
"""Networks of this repository, for small images, which have no ImageNet weights."""

LARGE_NETWORK = 1_000_000
"""Weights from which a network needs many images, or pretrained weights."""

SMALL_SIDE = 64
"""Pixels; smaller images suit networks that keep the resolution in their first layers."""

LONGEST_INPUT_WAIT = 0.1
"""Fraction of the training time spent waiting for input above which advice is printed."""

FEW_IMAGES = 1_000
"""Images, of all splits, below which cross-validation judges the model: a tenth of them, held out,
would leave an accuracy of 0.9 uncertain by more than 0.06 either way."""

FEW_FOR_WEIGHTS = 2_000
"""The same for a model that starts from pretrained weights, which folds hardly take longer."""

LEAST_FOR_FOLDS = 20
"""Images from which folds are made: fewer prove nothing in any case."""

# On 160 photographs MobileNetV2 from random weights stayed below the majority class, the small
# network at 96 pixels did not; a few thousand are still few for 2 million weights.
# 8,000 training images are 10,000 with the other splits.
ENOUGH_TO_START_AT_RANDOM = 8_000
"""Training images from which a network for photographs needs no pretrained weights."""

FEW_FOR_BEAM = 5_000
"""Images for which Beam is not started if they are written to a disk: it takes 0.3 s of CPU time,
and other machines would save seconds at most."""
