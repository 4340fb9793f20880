"""What a target would refuse in a specification; `spec_check` is the door."""
