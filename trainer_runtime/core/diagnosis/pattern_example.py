"""What advice says of logs that are not understood; apart, so that it needs no parser."""

LOG_NOT_UNDERSTOOD = "log_not_understood"
# A pattern for lines.
EXAMPLE = "it {step}/{target} L={loss} lr {lr}"
