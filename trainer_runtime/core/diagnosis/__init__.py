"""Finding what is wrong: parser, detectors, signatures, stacks, remedies."""
