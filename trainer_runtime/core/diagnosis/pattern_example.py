"""An example of a pattern for a log's lines, for advice; apart, so that advice needs no parser."""

EXAMPLE = "it {step}/{target} L={loss} lr {lr}"
