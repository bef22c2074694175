"""The outcomes of a comparison with a publication."""
import enum


class Verdict(enum.Enum):
    AGREES = "agrees"
    DIFFERS = "differs"
    BETTER = "better"
    UNKNOWN = "unknown"
