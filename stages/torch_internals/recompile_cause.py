"""What a recompilation is due to, so that two of one cause are told alike.

Relies on Dynamo's words for a guard that failed, as ``torch._dynamo.utils.guard_failures`` keeps them. The function
stands in scripts as it is here: it needs ``re`` alone.
"""

import re


def recompile_cause(reason: str) -> str:
    """What changed between two calls, of Dynamo's reason: ``attribute calls``, ``size of dimension 1``."""
    guard = re.sub(r"\s{2,}# .*|\nUser stack trace:.*", "", reason, flags=re.DOTALL)
    guard = re.sub(r"^[\d!]*\d+/\d+(_\d+)?: ", "", guard).strip()
    tensor = re.match(r"tensor '.*?' (.+?) mismatch(?: at index (\d+))?", guard)
    if tensor is not None:
        return tensor[1] if tensor[2] is None else f"{tensor[1]} of dimension {tensor[2]}"
    if re.search(r"\.(size|stride|storage_offset)\(\)", guard):
        return "a condition on sizes"
    if guard.startswith(("len(", "not ")) or " in " in guard:
        return "the length or the keys of a container"
    name = re.match(r"(?:G\['(\w+)'\]|.*\.(\w+)) == ", guard)
    if name is not None:
        return f"attribute {name[2]}" if name[2] and "G['__import_" not in guard else f"global {name[1] or name[2]}"
    value = re.search(r" == (.+)$", guard)
    if value is not None:
        kinds = {"a string": r"['\"]", "a bool": r"True|False", "an int": r"-?\d+$", "a float": r"-?[\d.]|inf|nan"}
        found = next((kind for kind, pattern in kinds.items() if re.match(pattern, value[1])), "a value")
        return f"{found} that is given"
    check = re.match(r"_*(\w+)\(", guard)
    return f"the guard {check[1]}" if check is not None else re.sub(r"\d+|'.*?'|\[.*?\]", "…", guard)[:60]
