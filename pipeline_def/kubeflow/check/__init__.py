"""What a target would refuse in a specification."""
