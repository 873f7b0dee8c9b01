"""A rule with all of its fields filled in, and the scalars of a profile that edit rules. Free of torch."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from models.errors import ConfigurationError, invalid_choice
from stages.constrain.config import AccelConfig, Rule
from stages.constrain.kinds import DIMS, EFFECTS, KINDS, SCALARS, TENSOR_ROLES, check_patterns

log = logging.getLogger(__name__)


def validated(rule: Rule, key: str) -> Rule:
    """``rule`` with every field that means something to it filled in; ConfigurationError where one is not valid."""
    if rule.rule not in KINDS:
        raise invalid_choice(f"{key}.rule", rule.rule, KINDS)
    kind = KINDS[rule.rule]
    effect = kind.effect if rule.effect is None else rule.effect
    if effect not in EFFECTS:
        raise invalid_choice(f"{key}.effect", effect, EFFECTS)
    if rule.value is None:
        raise ConfigurationError(f"{key}.value: the rule {rule.rule!r} has none. Try: {kind.example}")
    kind.check(rule.value, f"{key}.value", kind.example)
    if rule.operations is not None and kind.operations:
        check_patterns(rule.operations, f"{key}.operations", f"{key}.operations=[aten.mm]")
        if not rule.operations:
            raise ConfigurationError(f"{key}.operations: got []: the rule would look at nothing. Try: null for all")
    meaningless = [name for name in ("dims", "roles", "unit") if not getattr(kind, _PLURAL[name])]
    meaningless += [] if kind.operations else ["operations"]
    ignored = [name for name in meaningless if getattr(rule, name) is not None]
    if ignored:
        log.warning("%s: %s have no effect on the rule %s", key, ", ".join(ignored), rule.rule)
    roles = kind.default_roles if rule.roles is None else rule.roles
    for role in rule.roles or []:
        if kind.roles and role not in kind.roles:
            raise invalid_choice(f"{key}.roles", role, kind.roles)
    return replace(
        rule,
        effect=effect,
        dims=_choice(rule.dims, kind.dims, f"{key}.dims"),
        roles=None if roles is None else list(roles),
        unit=_choice(rule.unit, kind.units, f"{key}.unit"),
    )


_PLURAL = {"dims": "dims", "roles": "roles", "unit": "units"}


def _choice(value: str | None, valid: Sequence[str], key: str) -> str | None:
    if not valid:
        return None
    if value is not None and value not in valid:
        raise invalid_choice(key, value, valid)
    return valid[0] if value is None else value


def edited(rules: list[Rule], config: AccelConfig) -> list[Rule]:
    """``rules`` as the scalars of ``config`` edit them: a scalar replaces its rule's value, or makes the rule."""
    for scalar in SCALARS:
        rules = _edit(rules, scalar, getattr(config, scalar))
    return _edit_alignment(rules, config)


def _edit(rules: list[Rule], scalar: str, value: Any) -> list[Rule]:
    if value is None or (scalar == "denied" and not value):
        return rules
    name, key = SCALARS[scalar], f"accel.{scalar}"
    if scalar == "allowed":
        check_patterns(value, key, "accel.allowed=[aten.add,aten.mm]")
        value = {"allow": list(value)}
    KINDS[name].check(value, key, KINDS[name].example)

    def concerned(rule: Rule) -> bool:
        same_form = name != "operation" or isinstance(rule.value, Mapping) == (scalar == "allowed")
        return rule.rule == name and same_form

    if any(map(concerned, rules)):
        return [replace(rule, value=value) if concerned(rule) else rule for rule in rules]
    return [*rules, validated(Rule(rule=name, value=value), key)]


def _edit_alignment(rules: list[Rule], config: AccelConfig) -> list[Rule]:
    if config.alignment_dims is not None and config.alignment_dims not in DIMS:
        raise invalid_choice("accel.alignment_dims", config.alignment_dims, DIMS)
    for role in config.alignment_roles or []:
        if role not in TENSOR_ROLES:
            raise invalid_choice("accel.alignment_roles", role, TENSOR_ROLES)
    changes: dict[str, Any] = {}
    if config.alignment_dims is not None:
        changes["dims"] = config.alignment_dims
    if config.alignment_roles is not None:
        changes["roles"] = list(config.alignment_roles)
    if changes and not any(rule.rule == "alignment" for rule in rules):
        log.warning(
            "accel.alignment_dims and accel.alignment_roles have no effect: profile %s has no alignment rule",
            config.name,
        )
    return [replace(rule, **changes) if rule.rule == "alignment" else rule for rule in rules]
