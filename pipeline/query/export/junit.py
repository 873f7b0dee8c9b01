"""Runs as JUnit XML: a suite for each run, a case for each of its stages."""

import xml.etree.ElementTree as xml
from collections import Counter
from pathlib import Path

from inductor_debug.models.visible import visible, visible_lines
from inductor_debug.pipeline.query.runs import Runs
from inductor_debug.stages.artifacts.records import StageEntry
from inductor_debug.stages.formatting import headline
from inductor_debug.stages.stored_run import StoredRun

_ELEMENTS = {"failed": "failure", "crashed": "error", "timed_out": "error", "skipped": "skipped"}
"""Status of a stage → the element that says so; a stage that passed has none."""
_COUNTED = {"failures": "failure", "errors": "error", "skipped": "skipped"}


def junit(found: Runs) -> str:
    """The document. A run without a result is a suite with an error."""
    root = xml.Element("testsuites", name="inductor-debug")
    several = len(found.runs) + len(found.lost) > 1
    suites = [_suite(run, several) for run in found.runs] + [_lost(*item) for item in found.lost.items()]
    for name in ("tests", *_COUNTED):
        root.set(name, str(sum(int(suite.get(name) or 0) for suite in suites)))
    root.set("time", f"{sum(float(suite.get('time') or 0) for suite in suites):.3f}")
    root.extend(suites)
    xml.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{xml.tostring(root, encoding="unicode")}\n'


def _lost(folder: Path, reason: str) -> xml.Element:
    name = visible(folder.name)
    suite = xml.Element("testsuite", name=name, tests="1", failures="0", errors="1", skipped="0", time="0.000")
    case = xml.SubElement(suite, "testcase", name="run", classname=name, time="0.000")
    xml.SubElement(case, "error", type="no result", message=visible(reason))
    return suite


def _suite(run: StoredRun, several: bool) -> xml.Element:
    about, stages = run.head.run, run.head.stages
    found = (about.model, about.accel, about.backend, about.dtype, about.device, about.mode)
    name = " ".join(visible(str(part)) for part in (*found, *((run.folder.name,) if several else ())))
    suite = xml.Element("testsuite", name=name, tests=str(len(stages)))
    counts = Counter(_ELEMENTS.get(stage.status, "") for stage in stages)
    for attribute, element in _COUNTED.items():
        suite.set(attribute, str(counts[element]))
    suite.set("time", f"{sum(float(stage.seconds or 0) for stage in stages):.3f}")
    if about.started:
        suite.set("timestamp", visible(about.started)[:19])
    properties = xml.SubElement(suite, "properties")
    for key, value in (("run", str(run.folder)), ("verdict", run.head.verdict)):
        xml.SubElement(properties, "property", name=key, value=visible(value))
    for stage in stages:
        suite.append(_case(stage, name))
    return suite


def _case(stage: StageEntry, suite: str) -> xml.Element:
    case = xml.Element("testcase", name=visible(stage.name), classname=suite, time=f"{float(stage.seconds or 0):.3f}")
    message = visible_lines(stage.message or "")
    element = _ELEMENTS.get(stage.status)
    if element is not None:
        told = xml.SubElement(case, element, message=headline(message))
        if element != "skipped":
            told.set("type", stage.status)
            told.text = message
    elif message:
        xml.SubElement(case, "system-out").text = message
    return case
