"""What kind of answer a localization is."""

from collections import Counter

from inductor_debug.stages.artifacts.localization import Culprit


def kind_of(culprits: list[Culprit], *, failed: bool, same: bool | None, whole: bool) -> str:
    """The kind of a localization.

    Args:
        culprits: what was found.
        failed: whether the comparison of outputs was no pass.
        same: whether the run that was looked at gave the bits of the one that failed; None where that is not known.
        whole: whether every operation was checked.
    """
    kinds = {culprit.kind for culprit in culprits}
    if kinds == {"slope"}:
        targets = Counter(culprit.place.target for culprit in culprits)
        return "systematic" if max(targets.values()) > 1 else "operation"
    if kinds:
        return "operation" if "operation" in kinds else "region"
    if not failed:
        return "none"
    if same is False:
        return "probe_effect"
    return "accumulation" if whole and same else "none"
