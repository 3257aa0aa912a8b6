"""The few parts that the charts share: tags with escaped text, round ticks, markers, and names beside a panel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 580, 52, 216, 28, 46  # of the drawing's own units; the panel lies inside
NAME_GAP = 17  # between two names beside a panel
MAX_NAME = 25  # letters that fit beside it
SHAPES = (  # the shapes of plots.style.MARKERS, in its order, around (0, 0)
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "M-3.6-3.6h7.2v7.2h-7.2z",
    "M0-4.6L4.4 3.4H-4.4z",
    "M0-5L5 0L0 5L-5 0z",
    "M0 4.6L4.4-3.4H-4.4z",
    "M-1.6-4.8h3.2v3.2h3.2v3.2h-3.2v3.2h-3.2v-3.2h-3.2v-3.2h3.2z",
    "M-4.6-2.4L-2.4-4.6L0-2.2L2.4-4.6L4.6-2.4L2.2 0L4.6 2.4L2.4 4.6L0 2.2L-2.4 4.6L-4.6 2.4L-2.2 0z",
)


@dataclass(frozen=True, slots=True)
class Look:
    """How a row looks in every figure of a domain: colour and marker by number; variants dashed; None: grey, for what is not ranked."""

    index: int | None = None
    is_dashed: bool = False

    @property
    def css(self) -> str:
        colour = "grey" if self.index is None else f"s{self.index % len(SHAPES)}"
        return f"{colour} dashed" if self.is_dashed else colour

    def marker(self, x: float, y: float) -> Markup:
        """The shape changes with the colour, and once more when the colours begin again."""
        place = 0 if self.index is None else (self.index + self.index // len(SHAPES)) % len(SHAPES)
        css = "hollow" if self.is_dashed else "marker"
        return tag("path", d=SHAPES[place], transform=f"translate({number(x)} {number(y)})", class_=css)


def tag(name: str, *children: str, **attributes: str | float) -> Markup:
    """<name attributes>children</name>: all text that is not Markup is escaped; class_ is class, stroke_width stroke-width."""
    words = [
        f' {key.rstrip("_").replace("_", "-")}="{escape(number(value) if isinstance(value, float) else value)}"'
        for key, value in attributes.items()
    ]
    inner = "".join(escape(child) for child in children)
    return Markup(f"<{name}{''.join(words)}>{inner}</{name}>")


def number(value: float) -> str:
    """One decimal is a fifth of a pixel; the same bytes for 0 and -0."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def drawing(height: float, label: str, *children: str) -> Markup:
    """The whole SVG, which a screen reader meets as one image with this label."""
    return tag("svg", *children, viewBox=f"0 0 {WIDTH} {number(height)}", role="img", aria_label=label)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten inside [low, high], about so many."""
    if not high > low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = min((factor * power for factor in (1, 2, 2.5, 5, 10)), key=lambda size: abs(math.log(size / raw)))
    return [step * place for place in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def tick_texts(values: Sequence[float]) -> list[str]:
    """With the fewest decimals that are exact."""
    for digits in range(7):
        texts = [f"{value:,.{digits}f}" for value in values]
        if all(abs(float(text.replace(",", "")) - value) < 1e-9 for text, value in zip(texts, values, strict=True)):
            break
    return texts


def names(entries: Sequence[tuple[str, Look | None, float]], bottom: float) -> tuple[list[Markup], list[float]]:
    """Names right of the panel near the height each wants, NAME_GAP apart, and those heights. Look None: a dashed line's name."""
    order = sorted(range(len(entries)), key=lambda index: (entries[index][2], index))
    places = [0.0] * len(entries)
    least = TOP
    for index in order:
        places[index] = max(entries[index][2], least)
        least = places[index] + NAME_GAP
    most = bottom
    for index in reversed(order):
        places[index] = min(places[index], most)
        most = places[index] - NAME_GAP
    x = WIDTH - RIGHT + 22
    drawn = []
    for (name, look, _), y in zip(entries, places, strict=True):
        shown = name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"
        text = tag("text", shown, tag("title", name) if shown != name else "", x=x + 10.0, y=y + 4.5)
        drawn.append(tag("g", look.marker(x, y) if look else "", text, class_=f"name {look.css}" if look else "name muted", data_row=name))
    return drawn, places


def height_for(count: int) -> float:
    """High enough for so many names, and for a panel that is not flat."""
    return max(330.0, TOP + BOTTOM + NAME_GAP * count)


def y_axis(low: float, high: float, bottom: float, title: str) -> list[Markup]:
    """Grid lines with numbers, and the title level above them."""
    parts = [tag("text", title, x=0.0, y=14.0, class_="axis")]
    values = ticks(low, high)
    for value, text in zip(values, tick_texts(values), strict=True):
        y = bottom - (value - low) / (high - low) * (bottom - TOP)
        parts.append(tag("line", x1=float(LEFT), x2=float(WIDTH - RIGHT), y1=y, y2=y, class_="grid"))
        parts.append(tag("text", text, x=LEFT - 8.0, y=y + 4.5, class_="tick end"))
    return parts


def x_tick(x: float, bottom: float, text: str) -> Markup:
    rule = tag("line", x1=x, x2=x, y1=bottom, y2=bottom + 4, class_="rule")
    return tag("g", rule, tag("text", text, x=x, y=bottom + 18, class_="tick mid"))


def padded(values: Sequence[float], share: float = 0.05) -> tuple[float, float]:
    """The range of the values and a little more on both sides."""
    low, high = min(values), max(values)
    extra = share * (high - low) or max(abs(high) * share, 1e-6)
    return low - extra, high + extra
