"""A scene as SVG: no script, no font and no file from outside, legible as it is."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from inductor_debug.stages.drawing import shorten
from inductor_debug.stages.graph_pictures.labels import Words, cells
from inductor_debug.stages.graph_pictures.layout import Line, Part, Scene, Wire
from inductor_debug.stages.graph_pictures.scene import LINE, PADDING, ROW, SMALL, all_parts

MARGIN = 20.0
EFFECTS = {"reject": "#cc3311", "fallback": "#ee7733", "copy": "#aa3377", "cast": "#4477aa", "pad": "#997700"}
"""Colors of findings by effect; any other is gray. Their words are in the boxes too."""
OTHER = "#666666"
HEADING = 9.2
"""Width of a heading's character in pixels."""

Heading = str | list[tuple[str, str]]
"""A line over the picture: text, or several pieces of it, each with where it leads."""

STYLE = Path(__file__).with_name("picture.css").read_text(encoding="utf-8")


class Writer:
    """Writes one picture.

    Args:
        words: texts, and with them the graph.
        head: lines over the picture, the first a heading: text, or several pieces as (text, link).
        page: for inside HTML, which knows what SVG is without its namespace.
    """

    def __init__(self, words: Words, head: Sequence[Heading], *, page: bool) -> None:
        self.words, self.head = words, head
        self.namespace = "" if page else ' xmlns="http://www.w3.org/2000/svg"'
        self.flow = words.flow
        self.total = max(words.flops(range(len(self.flow.operations))), 1)
        self.names: dict[int, str] = {}

    def write(self, scene: Scene | None) -> str:
        """The document; without a scene, its head alone."""
        high = MARGIN + 22 + 16 * (len(self.head) - 1) + 14
        shown = [line if isinstance(line, str) else "  ".join(text for text, _ in line) for line in self.head]
        width = max((LINE if number else HEADING) * cells(line) for number, line in enumerate(shown))
        height = high
        body: list[str] = []
        if scene is not None:
            width = max(width, scene.width)
            height += scene.height
            self._name(all_parts(scene))
            body = self._scene(scene, MARGIN + (width - scene.width) / 2, high)
        size = (_figure(width + 2 * MARGIN), _figure(height + MARGIN))
        return "\n".join([
            f'<svg{self.namespace} class="graph-picture" role="img" width="{size[0]}" '
            f'height="{size[1]}" viewBox="0 0 {size[0]} {size[1]}" data-graph={attribute(self.flow.record.id)}>',
            f"<title>{content(self.flow.record.id)}</title>",
            f"<style>\n{STYLE}</style>",
            f'<rect width="{size[0]}" height="{size[1]}" style="stroke: none"/>',
            *self._head(),
            *body,
            "</svg>",
            "",
        ])  # fmt: skip

    def _name(self, parts: Iterable[Part]) -> None:
        for number, part in enumerate(parts):
            if part.box is not None:
                self.names[id(part.box)] = f"{self.flow.record.id}-{number}"

    def _head(self) -> list[str]:
        found = []
        y = MARGIN + 10
        for number, line in enumerate(self.head):
            x = MARGIN
            for text, link in [(line, "")] if isinstance(line, str) else line:
                place = f'x="{_figure(x)}" y="{_figure(y)}" class="{"n" if number else "h"}"'
                shown = f"<text {place}>{content(text)}</text>"
                found.append(f"<a href={attribute(link)}>{shown}</a>" if link else shown)
                x += LINE * (cells(text) + 2)
            y += 16 if number else 22
        return found

    def _scene(self, scene: Scene, x: float, y: float) -> list[str]:
        """What is at a point; wires first, so that boxes lie over them."""
        found = [f'<g transform="translate({_figure(x)} {_figure(y)})">']
        for wire in scene.wires:
            found += self._wire(wire, [tip for target, tip in sorted(wire.tips.items()) if scene.parts[target].shown])
        for part in scene.parts:
            if part.shown:
                found += self._part(part)
        return [*found, "</g>"]

    def _wire(self, wire: Wire, tips: Sequence[tuple[float, float]]) -> list[str]:
        found = [f'<g class="wire{" kept" * wire.kept}">']
        if wire.tooltip:
            found.append(f"<title>{content(wire.tooltip)}</title>")
        found.append(f'<path d="{" ".join(map(_curve, wire.path))}"/>')
        if tips:
            tip = " ".join(f"M{_figure(x)} {_figure(y)}l-3.5 -7h7z" for x, y in tips)
            found.append(f'<path class="tip" d="{tip}"/>')
        if wire.label:
            middle, center = wire.label_at
            wide = SMALL * cells(wire.label) + 4
            found.append(_rect(middle - wide / 2, center - 6.5, wide, 13))
            found.append(
                f'<text x="{_figure(middle)}" y="{_figure(center + 3.5)}" text-anchor="middle">'
                f"{content(wire.label)}</text>"
            )
        return [*found, "</g>"]

    def _part(self, part: Part) -> list[str]:
        box = part.box
        kinds = ["part", part.shape if part.shape not in ("input", "output") else "end"]
        extra, style = "", ""
        if box is not None:
            kinds += ["backward"] * box.backward
            extra = f" id={attribute(self.names[id(box)])} data-module={attribute('.'.join(box.path))}"
            if part.shape != "frame":
                names = [self.flow.operations[number].name for number in sorted(box.stands)]
                extra += f" data-nodes={attribute(json.dumps(names))}"
                style = f"fill: {self._shade(part)}"
            effects = [effect for _, effect, _ in self.words.found(box)]
            if effects:
                kinds.append("found")
                style += f"{'; ' if style else ''}stroke: {EFFECTS.get(effects[0], OTHER)}"
        elif part.node is not None:
            extra = f" data-input={attribute(part.node.name)}"
            finding = self.words.findings.get(part.node.name)
            if finding is not None:
                kinds.append("found")
                style = f"stroke: {EFFECTS.get(finding[0], OTHER)}"
                part.tooltip.append(": ".join(finding))
        found = [f'<g class="{" ".join(kinds)}"{extra}>']
        if part.tooltip:
            found.append(f"<title>{content(chr(10).join(part.tooltip))}</title>")
        if part.shape == "stack":
            found += [_rect(part.x + 3 * step, part.y - 3 * step, part.width, part.height, 4) for step in (2, 1)]
        found.append(_rect(part.x, part.y, part.width, part.height, 12 if "end" in kinds else 4, style))
        if part.inside is not None:
            found.append(_rect(part.x, part.y, part.width, part.head - 4, 4, style))
        found += self._text(part)
        if part.inside is not None:
            found += self._scene(part.inside, part.x + (part.width - part.inside.width) / 2, part.y + part.head)
        return [*found, "</g>"]

    def _shade(self, part: Part) -> str:
        """The more of the graph's FLOPs, the darker."""
        share = self.words.flops(part.box.stands) / self.total if part.box is not None else 0.0
        strength = min(share, 1.0) ** 0.5
        low, high = (255, 255, 255), (150, 190, 235)
        mixed = (round(a + (b - a) * strength) for a, b in zip(low, high, strict=True))
        return f"#{''.join(f'{value:02x}' for value in mixed)}"

    def _text(self, part: Part) -> list[str]:
        left = part.x + PADDING
        y = part.y + PADDING + 9
        found = [f'<text class="t" x="{_figure(left)}" y="{_figure(y)}">{content(part.title)}</text>']
        like = part.box.like if part.box is not None else None
        for line in part.lines:
            y += ROW
            text = f'<text x="{_figure(left)}" y="{_figure(y)}">{content(line)}</text>'
            if like is not None and line.startswith("like "):
                text = f"<a href={attribute('#' + self.names[id(like)])}>{text}</a>"
            found.append(text)
        return found


def content(text: str) -> str:
    """Text between tags, every character printable or a line's end."""
    return escape("\n".join(shorten(line, 240) for line in text.split("\n")))


def attribute(text: str) -> str:
    """An attribute's value with its quotes."""
    return quoteattr("".join(letter if letter.isprintable() else "·" for letter in text))


def _rect(x: float, y: float, width: float, height: float, corner: int = 0, style: str = "") -> str:
    more = (f' rx="{corner}"' if corner else "") + (f' style="{style}"' if style else "")
    return f'<rect x="{_figure(x)}" y="{_figure(y)}" width="{_figure(width)}" height="{_figure(height)}"{more}/>'


def _curve(line: Line) -> str:
    x, to_x, to_y, middle = map(_figure, (line.x, line.to_x, line.to_y, (line.y + line.to_y) / 2))
    start = f"M{x} {_figure(line.y)}"
    return f"{start}V{to_y}" if line.x == line.to_x else f"{start}C{x} {middle} {to_x} {middle} {to_x} {to_y}"


def _figure(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
