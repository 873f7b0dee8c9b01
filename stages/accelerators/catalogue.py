"""The profiles that come with the project, as a table for the documentation."""

from typing import Any

from inductor_debug.stages.accelerators.config import NumericsConfig, Rule
from inductor_debug.stages.accelerators.profile import load_config, profile_names, validate_profile

HEADER = """# Accelerator profiles

Which chips have a profile, and which rules does each state, with what source?

One row a rule of every profile in `conf/accel/`, made by `inductor-debug profiles --format markdown` (a test compares).
`accel=NAME` chooses one, and `accel.FIELD=VALUE` overrides a field. [Add a chip](../how-to/add-a-profile.md) tells
how to add your own.
"""
COLUMNS = ("profile", "rule", "effect", "what", "source", "version")


def rows() -> list[dict[str, Any]]:
    """One row a rule, profiles by name; a profile without rules has one row."""
    found = []
    for name in profile_names():
        config = load_config(name)
        profile = validate_profile(config, {})
        stated = {key: value for key, value in vars(config.numerics).items() if value != getattr(NumericsConfig(), key)}
        about = {"profile": name, "strict": profile.strict, "description": config.description, "numerics": stated}
        about["peaks"] = {key: value for key, value in vars(config.peaks).items() if value}
        for rule in profile.rules:
            published = {"source": rule.source or "", "version": rule.version or ""}
            found.append(about | {"rule": rule.rule, "effect": rule.effect, "what": what(rule)} | published)
        if not profile.rules:
            found.append(about | dict.fromkeys(COLUMNS[1:], "") | {"rule": "none"})
    return found


def what(rule: Rule) -> str:
    """A rule's value and what it looks at, in words."""
    keyed = rule.value.items() if isinstance(rule.value, dict) else ()
    parts = [", ".join(f"{key}: {_words(item)}" for key, item in keyed) or _words(rule.value)]
    parts[0] += f" {rule.unit.replace('_', ' ')}" if rule.unit else ""
    parts += [f"dims {rule.dims}"] if rule.dims else []
    parts += [f"of {', '.join(rule.roles)}"] if rule.roles else []
    parts += [f"for {_words(rule.operations)}"] if rule.operations else []
    return "; ".join(parts)


def _words(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value[:12])) + (f", … ({len(value)})" if len(value) > 12 else "")
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def markdown() -> str:
    """``docs/reference/profiles.md``."""
    lines = [HEADER]
    profile = None
    for row in rows():
        if row["profile"] != profile:
            profile = row["profile"]
            mode = "strict" if row["strict"] else "warning"
            lines += ["", f"## {profile}", "", f"{row['description']} ({mode} mode).", ""]
            if row["numerics"]:
                lines += [
                    f"`backend=emulated`: {', '.join(f'{key} {value}' for key, value in row['numerics'].items())}.",
                    "",
                ]
            if row["peaks"]:
                lines += [f"Ceiling: {', '.join(f'{key} {value}' for key, value in row['peaks'].items())}.", ""]
            lines += ["| rule | effect | what | source | version |", "|---|---|---|---|---|"]
        cells = [str(row[column]).replace("|", "\\|") for column in COLUMNS[1:]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
