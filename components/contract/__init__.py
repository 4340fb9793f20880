"""What the stages share: artifact classes, feature keys, errors, configuration, progress."""
