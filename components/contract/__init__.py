"""What the stages share: artifact classes and their files, feature keys, errors, configuration."""
