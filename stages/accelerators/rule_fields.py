"""A rule with all of its fields filled in, and the scalars of a profile that edit rules."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from inductor_debug.models.errors import ConfigurationError, example_of, invalid_choice
from inductor_debug.stages.accelerators.config import AccelConfig, Rule
from inductor_debug.stages.accelerators.rule_kinds import DIMS, KINDS, SCALARS, TENSOR_ROLES, check_patterns

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Written:
    """A rule and where the user wrote it, for messages.

    Attributes:
        rule: every field filled in.
        key: of the whole rule, e.g. ``accel.rules[0]``. value_key: of its value: a scalar may have edited it.
    """

    rule: Rule
    key: str
    value_key: str


def validated(rule: Rule, key: str) -> Written:
    """``rule`` with every field that means something to it filled in; ConfigurationError where one is not valid."""
    if rule.rule not in KINDS:
        raise invalid_choice(f"{key}.rule", rule.rule, KINDS)
    kind, value_key = KINDS[rule.rule], f"{key}.value"
    usual = "cast" if rule.rule == "dtype" and isinstance(rule.value, Mapping) else kind.effects[0]
    effect = usual if rule.effect is None else rule.effect
    if effect not in kind.effects:
        raise invalid_choice(f"{key}.effect", effect, kind.effects, where=f"a rule {rule.rule}")
    if rule.value is None:
        raise ConfigurationError(
            f"the rule {rule.rule!r} has none", key=value_key, valid="a value", hint=example_of(value_key, kind.example)
        )
    value = kind.read(rule.value, value_key, kind.example)
    if rule.operations is not None and kind.operations:
        check_patterns(rule.operations, f"{key}.operations", "[aten.mm]")
        _not_empty(rule.operations, f"{key}.operations")
    meaningless = [name for name in ("dims", "roles", "unit") if not getattr(kind, _PLURAL[name])]
    meaningless += [] if kind.operations else ["operations"]
    ignored = [name for name in meaningless if getattr(rule, name) is not None]
    if ignored:
        log.warning("%s: %s have no effect on the rule %s", key, ", ".join(ignored), rule.rule)
    if kind.roles:
        check_roles(rule.roles, kind.roles, f"{key}.roles")
    roles = kind.default_roles if rule.roles is None else rule.roles
    filled = replace(
        rule,
        effect=effect,
        value=value,
        dims=_choice(rule.dims, kind.dims, f"{key}.dims"),
        roles=None if roles is None else list(roles),
        unit=_choice(rule.unit, kind.units, f"{key}.unit"),
    )
    return Written(filled, key, value_key)


def check_roles(roles: Sequence[str] | None, valid: Sequence[str], key: str) -> None:
    """ConfigurationError for a role that is not one of ``valid``, or for none at all."""
    for role in roles or ():
        if role not in valid:
            raise invalid_choice(key, role, valid, example=example_of(key, "[{}]"))
    _not_empty(roles, key)


def _not_empty(value: Sequence[str] | None, key: str) -> None:
    if value is not None and not value:
        raise ConfigurationError(
            "got []: the rule would look at nothing",
            key=key,
            valid="at least one, or null for the usual ones",
            hint=example_of(key, "null"),
        )


_PLURAL = {"dims": "dims", "roles": "roles", "unit": "units"}


def _choice(value: str | None, valid: Sequence[str], key: str) -> str | None:
    if not valid:
        return None
    if value is not None and value not in valid:
        raise invalid_choice(key, value, valid)
    return valid[0] if value is None else value


def edited(rules: list[Written], config: AccelConfig) -> list[Written]:
    """``rules`` as the scalars of ``config`` edit them: a scalar replaces its rule's value, or makes the rule.

    Of several rules of the name those for all operations are edited, those for some where there are no others.
    """
    for scalar in SCALARS:
        rules = _edit(rules, scalar, getattr(config, scalar))
    return _edit_alignment(rules, config)


def _edit(rules: list[Written], scalar: str, value: Any) -> list[Written]:
    if value is None or (scalar == "denied" and not value):
        return rules
    name, key = SCALARS[scalar], f"accel.{scalar}"
    if scalar == "allowed":
        check_patterns(value, key, "[aten.add,aten.mm]")
        value = {"allow": list(value)}
    value = KINDS[name].read(value, key, KINDS[name].example)

    # a scalar's value can stand for a rule's of its form: a list of dtypes is no mapping of casts
    named = [item.rule for item in rules if item.rule.rule == name]
    named = [rule for rule in named if name == "size" or isinstance(rule.value, Mapping) == isinstance(value, Mapping)]
    general = [rule for rule in named if not rule.operations]
    edited = general or named  # one for some operations alone is another limit where there is one for all
    if not edited:
        return [*rules, replace(validated(Rule(rule=name, value=value), key), value_key=key)]
    return [
        replace(item, rule=_with_value(item.rule, value), value_key=key) if item.rule in edited else item
        for item in rules
    ]


def _with_value(rule: Rule, value: Any) -> Rule:
    """The rule with a scalar's value, which is the largest size of a range, and in elements for alignment."""
    if rule.rule == "size" and isinstance(rule.value, Mapping):
        limits = {**rule.value, "max": value}
        return _with(rule, value=KINDS["size"].read(limits, "accel.max_size", KINDS["size"].example))
    return _with(rule, value=value, unit="elements" if rule.rule == "alignment" else rule.unit)


def _with(rule: Rule, **changes: Any) -> Rule:
    """The rule with fields changed; one that is another then is no longer its source's."""
    changed = replace(rule, **changes)
    return rule if changed == rule else replace(changed, source=None, version=None)


def _edit_alignment(rules: list[Written], config: AccelConfig) -> list[Written]:
    if config.alignment_dims is not None and config.alignment_dims not in DIMS:
        raise invalid_choice("accel.alignment_dims", config.alignment_dims, DIMS)
    check_roles(config.alignment_roles, TENSOR_ROLES, "accel.alignment_roles")
    roles = None if config.alignment_roles is None else list(config.alignment_roles)
    given = {"dims": config.alignment_dims, "roles": roles}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if changes and not any(item.rule.rule == "alignment" for item in rules):
        log.warning(
            "accel.alignment_dims and accel.alignment_roles have no effect: profile %s has no alignment rule",
            config.name,
        )
    return [
        replace(item, rule=_with(item.rule, **changes)) if item.rule.rule == "alignment" else item for item in rules
    ]
