"""A figure as a Vega-Lite specification: the one place that knows how Vega-Lite draws.

Colours are named (`c0` … `c5`, `ink`, `soft`) and given their values by a `theme`, so that the same specification is
drawn on white paper, on a light page and on a dark one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence

from flipscope.basics import wording
from flipscope.figures import Figure, Panel, Rule
from flipscope.figures.coloured import HEAT, WORD_FONT, WORD_SIZES, Place, Spec, coloured_panels
from flipscope.figures.layout import Axes, Marks, axes_of, legend_of, scaled, unscaled, whisker
from flipscope.figures.text import clean, cut, in_lines, number_text

Keys = dict[tuple[str, int], str]  # of label and number

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
MEDIA_TYPE = "application/vnd.vegalite.v6+json"
FONT = "DejaVu Sans, Verdana, sans-serif"
PANEL = (200, 130)  # points (1/72 inch) of the plot itself; a figure of one column is wider
WIDE, NARROW = (340, 180), (150, 110)  # in one column, and in four or more
LEAST_BAR = 1.5  # points that a bar is wide, at least
DIGITS = 7  # of each number in the data: more than a pixel needs
TITLE_CHARACTERS, LABEL_CHARACTERS, NAME_CHARACTERS = 46, 34, 24
CROWDED = 34  # characters of categories' names that fit under a panel
FADED = 0.12  # opacity of series that are not chosen
DASH, DOTS = [5, 3], [2, 2]
DASHES = "M-1.6,0H-0.4M0.4,0H1.6"  # the symbol of a dashed line: the edge of a marker would be dashed, too
STROKE = "M-1.6,0H1.6"  # that of a line without markers
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right")

# Told apart under every common kind of colour blindness, and from the ground; shapes and dashes do it as well.
PALETTES: dict[Place, tuple[str, ...]] = {
    "paper": ("#2f6f9f", "#c8553d", "#0aa568", "#b8860b", "#852c65", "#5191ff"),
    "dark": ("#4f9fd8", "#f0845f", "#62e8b0", "#ecc63a", "#a06bff", "#cae6ff"),
}
PALETTES["light"] = PALETTES["paper"]
_INKS: dict[Place, dict[str, str]] = {
    "paper": {"ink": "#1f2933", "soft": "#52606d", "grid": "#e4e7eb", "ground": "#ffffff"},
    "dark": {"ink": "#e4e8ec", "soft": "#a7b1bb", "grid": "#262d35", "ground": "#14181d"},
}
_INKS["light"] = _INKS["paper"]
COLOURS = len(PALETTES["paper"])


def theme(place: Place) -> Spec:
    """The configuration for a place: the values of the named colours, and sizes of text."""
    inks, small = _INKS[place], 8 if place == "paper" else 11.5
    axis = {
        "labelFontSize": small,
        "titleFontSize": small + 0.5,
        "titleFontWeight": "normal",
        "labelColor": inks["soft"],
    }
    axis |= {"titleColor": inks["ink"], "gridColor": inks["grid"], "domainColor": inks["soft"], "tickSize": 3}
    axis |= {"tickColor": inks["soft"], "labelOverlap": "greedy", "titlePadding": 5, "grid": True}
    legend = {"orient": "bottom", "labelFontSize": small, "titleFontSize": small, "titleFontWeight": "normal"}
    legend |= {
        "labelColor": inks["ink"],
        "titleColor": inks["ink"],
        "labelLimit": 400,
        "columnPadding": 14,
        "symbolOpacity": 1,
        "symbolLimit": 0,
    }
    title = {"fontSize": small + 1, "anchor": "start", "color": inks["ink"], "offset": 8, "frame": "group"}
    named = {**{f"c{number}": colour for number, colour in enumerate(PALETTES[place])}, **inks, **HEAT[place]}
    return {
        "font": FONT,
        "aria": False,  # the figure as a whole is described, not each mark
        "background": inks["ground"] if place == "paper" else "transparent",
        "params": [{"name": name, "value": value} for name, value in named.items()],
        "view": {"stroke": None},
        "axis": axis,
        "legend": legend,
        "title": title,
        "text": {"fontSize": small, "color": inks["ink"]},
        "style": {"word": {"font": WORD_FONT, "fontSize": WORD_SIZES[place]}},
    }


def complete(figure: Figure) -> Spec:
    """The specification with the colours of a light page, which needs nothing else."""
    return {**specification(figure, "light"), "config": theme("light")}


def specification(figure: Figure, place: Place = "paper") -> Spec:
    """The figure in Vega-Lite for a place, whose `theme` gives its colours and sizes of text."""
    axes = axes_of(figure)
    columns = max(1, min(figure.columns, len(figure.panels)))
    keys = _keys(axes)
    size = WIDE if columns == 1 else PANEL if columns < 4 else NARROW
    legend = _legend(axes, keys, columns * size[0])
    symbols = _symbols(axes, keys)
    charts = [_panel(each, symbols, keys, legend, size) for each in axes]
    if legend is not None:
        _let_choose(charts)
    in_order = iter(charts)
    coloured_kinds = [panel for panel in figure.panels if not isinstance(panel, Panel)]
    coloured = coloured_panels(coloured_kinds, place, columns)
    panels = [next(in_order if isinstance(panel, Panel) else coloured) for panel in figure.panels]
    # Images and texts share one scale of colours; heatmaps have one each.
    own = any(marks.values is not None for each in axes for marks in each.marks)
    scales = "independent" if own or not coloured_kinds else "shared"
    return {
        "$schema": SCHEMA,
        "columns": columns,
        "spacing": 24,
        "concat": panels,
        "resolve": {"scale": {"fill": scales}},
    }


def _let_choose(panels: Sequence[Spec]) -> None:
    """A click on the legend fades all other series; with shift it takes one more."""
    coloured = [layer for panel in panels for layer in panel["layer"] if "color" in layer["encoding"]]
    for layer in coloured:
        full = layer["mark"].get("opacity", 1)
        layer["encoding"]["opacity"] = {"condition": {"param": "chosen", "value": full}, "value": FADED * full}
    # One layer holds the choice: Vega-Lite has no place for it above the panels.
    select = {"type": "point", "fields": ["s"]}
    for layer in coloured[:1]:
        layer["params"] = [{"name": "chosen", "select": select, "bind": "legend"}]


# ---------------------------------------------------------------- series and legend


def _keys(axes: Iterable[Axes]) -> Keys:
    """A name for each label and number, which reads as the label: two alike differ by what nobody sees."""
    keys: Keys = {}
    for each in axes:
        for marks in each.marks:
            if (marks.label, marks.number) not in keys:
                again = sum(label == marks.label for label, _ in keys)
                keys[marks.label, marks.number] = clean(marks.label) + "\N{ZERO WIDTH SPACE}" * again
    return keys


def _legend(axes: Sequence[Axes], keys: Keys, width: float) -> Spec | None:
    """What the legend shows, and in how many columns; nothing where there is nothing to tell apart."""
    named = [keys[marks.label, marks.number] for marks in legend_of(axes)]
    if len(named) < 2:
        return None
    room = max(1, int(width / (28 + 5 * max(map(len, named)))))
    return {"title": None, "values": named, "columns": min(room, len(named)), "symbolStrokeWidth": 1.6}


def _symbols(axes: Iterable[Axes], keys: Keys) -> dict[str, str]:
    """The symbol of each series in the legend: its marker, or a stroke where it is drawn as lines without any."""
    found = dict.fromkeys(keys.values(), STROKE)
    for marks in (marks for each in axes for marks in each.marks):
        name = keys[marks.label, marks.number]
        if _dashed_line(marks):
            found[name] = DASHES
        elif found[name] != DASHES and marks.kind != "steps" and (marks.marked or marks.kind != "line"):
            found[name] = _marker(marks.number)
    return found


def _look(channel: str, symbols: Mapping[str, str], keys: Keys, legend: Spec | None) -> Spec:
    """How a channel tells the series apart; all panels share its scale."""
    named = {name: number for (_, number), name in keys.items()}
    ways = {
        "color": [{"expr": f"c{number % COLOURS}"} for number in named.values()],
        "shape": [symbols[name] for name in named],
        "strokeDash": [DASH if symbols[name] == DASHES else [1, 0] for name in named],
    }
    return {
        "field": "s",
        "type": "nominal",
        "scale": {"domain": list(named), "range": ways[channel]},
        "legend": None if channel == "strokeDash" else legend,
    }


def _marker(number: int) -> str:
    return SHAPES[number % len(SHAPES)]


def _dashed_line(marks: Marks) -> bool:
    return marks.dashed and marks.kind in ("line", "steps")


# ---------------------------------------------------------------- a panel


def _panel(axes: Axes, symbols: Mapping[str, str], keys: Keys, legend: Spec | None, size: tuple[int, int]) -> Spec:
    panel = axes.panel
    layers = [*_rules(axes), *_drawn(axes, symbols, keys, legend), *_texts(axes)]
    # The scales and axes belong to a layer that draws nothing, so that they are there for an empty panel too.
    frame = {"data": {"values": [{}]}, "mark": {"type": "point", "opacity": 0}, "encoding": _frame(axes)}
    return {
        "title": {"text": in_lines(panel.title, TITLE_CHARACTERS)},
        "width": size[0],
        "height": size[1],
        "layer": [frame, *layers],
    }


def _frame(axes: Axes) -> Spec:
    panel = axes.panel
    x: Spec = {"title": in_lines(panel.x_label, TITLE_CHARACTERS), **_ticks(axes.x_range, panel.x_log)}
    if panel.categories is not None:
        names = [cut(str(name), NAME_CHARACTERS) for name in panel.categories]
        x |= {"values": list(range(len(names))), "labelExpr": f"{_quoted(names)}[datum.value]", "grid": False}
        x |= {"labelOverlap": False, "ticks": False, "labelPadding": 5, "tickCount": len(names)}  # none is left out
        if sum(len(name) + 2 for name in names) > CROWDED:
            x |= {"labelAngle": -30, "labelAlign": "right"}
    y = {"title": in_lines(panel.y_label, LABEL_CHARACTERS), **_ticks(axes.y_range, panel.y_log)}
    if axes.empty:
        x, y = ({**each, "values": [], "grid": False} for each in (x, y))
    return {
        "x": {**_datum(axes.x_range[0]), "scale": _scale(axes.x_range, panel.x_log), "axis": x},
        "y": {**_datum(axes.y_range[0]), "scale": _scale(axes.y_range, panel.y_log), "axis": y},
    }


def _scale(ends: tuple[float, float], log: bool) -> Spec:
    return {"type": "log" if log else "linear", "domain": list(ends), "nice": False, "zero": False}


def _ticks(ends: tuple[float, float], log: bool) -> Spec:
    if not log:
        return {"tickCount": 6, "labelExpr": number_text(False)}
    low, high = math.log10(ends[0]), math.log10(ends[1])
    powers = range(math.floor(low), math.ceil(high) + 1)
    step = math.ceil(len(powers) / 8)
    parts = (1, 2, 3, 4, 5, 7) if high - low <= 1 else (1, 2, 5) if high - low <= 2 else (1,)
    values = [part * 10.0**power for power in powers[::step] if abs(power) < 300 for part in parts]
    inside = [float(f"{value:.3g}") for value in values if ends[0] <= value <= ends[1]]
    few = len(inside) < 3 and high - low < 1
    return {"values": _even_ticks(*ends) if few else inside, "labelExpr": number_text(True)}


def _even_ticks(low: float, high: float) -> list[float]:
    """Round numbers at equal distances between the ends, three to seven of them."""
    span = high - low
    unit = 10.0 ** math.floor(math.log10(span / 3))
    step = next(part * unit for part in (5, 2, 1) if part * unit <= span / 3)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def _drawn(axes: Axes, symbols: Mapping[str, str], keys: Keys, legend: Spec | None) -> list[Spec]:
    """The layers of the series, intervals beneath."""
    colour, shape, dash = (_look(channel, symbols, keys, legend) for channel in ("color", "shape", "strokeDash"))
    place, said = {"x": _at("x"), "y": _at("y")}, {"tooltip": _tooltip(axes)}
    corners = {"x": _at("x"), "x2": {"field": "x2"}, "y": _at("y"), "y2": {"field": "y2"}}
    line = {"type": "line", "strokeWidth": 1.6, "clip": True}
    apart = {"field": "k", "type": "nominal"}  # lines that look alike, such as those of several seeds, are not one line
    drawn = {**place, "color": colour, "strokeDash": dash, "order": {"field": "i"}, "detail": apart}
    # Not clipped: a marker on the edge of the axes stands there whole, and those beyond it are left out.
    point = {"type": "point", "filled": True, "size": 24, "opacity": 1, "clip": False}
    lines, steps, bars, cells = (_of(axes, kind) for kind in ("line", "steps", "bars", "cells"))
    points = [marks for marks in _of(axes, "points") if marks.values is None]
    valued = [marks for marks in _of(axes, "points") if marks.values is not None]
    rule = {"type": "rule", "strokeWidth": 1, "clip": True}
    interval = {"x": _at("x"), "y": _at("l"), "y2": {"field": "h"}}
    marked = [marks for marks in lines if marks.marked and not marks.dashed]
    dashes = [marks for marks in lines if marks.marked and marks.dashed]  # their symbol in the legend is no marker
    markers = [{**row, "m": _marker(marks.number)} for marks in dashes for row in _rows(axes, [marks], keys)]
    unmarked = [marks for marks in lines if not marks.marked]
    found = (
        ({"type": "rect", "clip": True}, _boxes(axes, cells, keys), {**corners, "fill": _values(axes), **said}),
        (
            {"type": "area", "opacity": 0.16, "clip": True},
            _intervals(axes, lines, keys),
            {**interval, "color": colour, "detail": apart},
        ),
        ({"type": "rect", "clip": True}, _boxes(axes, bars, keys), {**corners, "color": colour, **said}),
        (line, _rows(axes, lines, keys, gaps=True), drawn),
        ({**line, "interpolate": "step"}, _rows(axes, steps, keys, gaps=True), drawn),
        ({**rule, "color": {"expr": "ink"}}, _intervals(axes, [*bars, *steps], keys, gaps=False), interval),
        (rule, _intervals(axes, points, keys, gaps=False), {**interval, "color": colour}),
        (
            {**point, "filled": False, "fill": {"expr": "ground"}},
            _rows(axes, [marks for marks in points if marks.dashed], keys),
            {**place, "color": colour, "shape": shape, **said},
        ),
        (
            point,
            _rows(axes, [*(marks for marks in points if not marks.dashed), *marked], keys),
            {**place, "color": colour, "shape": shape, **said},
        ),
        (point, markers, {**place, "color": colour, "shape": {"field": "m", "type": "nominal", "scale": None}}),
        (point, _rows(axes, valued, keys), {**place, "fill": _values(axes), **said}),
        # Something to point at where there are no markers, or markers of another shape than the symbol.
        ({**point, "opacity": 0}, _rows(axes, [*steps, *unmarked, *dashes], keys), {**place, **said}),
    )
    layers = []
    for mark, every, encoding in found:
        if rows := [row for row in every if mark["type"] != "point" or _inside(axes, row)]:
            layers.append({"data": {"values": rows}, "mark": mark, "encoding": encoding})
    return layers


def _inside(axes: Axes, row: Spec) -> bool:
    """Whether a point is on the axes, their ends included."""
    return all(
        low <= row[name] <= high or math.isclose(row[name], low) or math.isclose(row[name], high)
        for name, (low, high) in (("x", axes.x_range), ("y", axes.y_range))
    )


def _of(axes: Axes, kind: str) -> list[Marks]:
    return [marks for marks in axes.marks if marks.kind == kind]


def _at(field: str) -> Spec:
    return {"field": field, "type": "quantitative"}


def _datum(value: float) -> Spec:
    return {"datum": value, "type": "quantitative"}


def _values(axes: Axes) -> Spec:
    """The scale of colours for values."""
    scale: Spec = {"scheme": "viridis", "type": "log" if axes.panel.value_log else "linear"}
    if not axes.panel.value_log:
        scale["nice"] = True  # else its ends have as many digits as the data
    legend = {
        "title": in_lines(axes.panel.value_label, LABEL_CHARACTERS),
        "orient": "right",
        "gradientLength": 90,
        "labelExpr": number_text(axes.panel.value_log),
    }
    return {"field": "v", "type": "quantitative", "scale": scale, "legend": legend}


def _tooltip(axes: Axes) -> list[Spec]:
    """What is said of a point."""
    panel = axes.panel
    fields = {"title": "", "at": panel.x_label or "x", "is": panel.y_label or "y"}
    if any(marks.values is not None for marks in axes.marks):
        fields["value"] = panel.value_label or "value"
    if any(marks.hover is not None for marks in axes.marks):
        fields["note"] = " "
    # Vega-Lite puts titles into expressions, in which a backslash means something.
    return [
        {"field": field, "type": "nominal", "title": clean(title).replace("\\", "\\\\")}
        for field, title in fields.items()
    ]


# ---------------------------------------------------------------- rows of data


def _rows(axes: Axes, group: Sequence[Marks], keys: Keys, gaps: bool = False) -> list[Spec]:
    """A row per point; with gaps also where there is none, so that lines break."""
    return [
        {**_said(axes, marks, index, keys), "x": _moved(axes, marks, x, 0.0), "y": _short(y), "i": index, "k": number}
        for number, marks in enumerate(group)
        for index, (x, y) in enumerate(zip(marks.x, marks.y, strict=True))
        if x is not None and (y is not None or gaps)
    ]


def _boxes(axes: Axes, group: Sequence[Marks], keys: Keys) -> list[Spec]:
    """Bars, which stand on 0 or on the bottom of a logarithmic axis, and cells around their middles."""
    log, (bottom, _) = axes.panel.y_log, axes.y_range
    left_end, right_end = (scaled(end, axes.panel.x_log) for end in axes.x_range)
    least = LEAST_BAR * (right_end - left_end) / PANEL[0]
    rows = []
    for marks in group:
        width = max(marks.width, least)
        for index, (x, y) in enumerate(zip(marks.x, marks.y, strict=True)):
            if x is None or y is None:
                continue
            ends = {"y": _short(y), "y2": _short(bottom if log else 0.0)}
            if marks.kind == "cells":
                middle, half = scaled(y, log), marks.height / 2
                ends = {"y": _short(unscaled(middle - half, log)), "y2": _short(unscaled(middle + half, log))}
            left, right = (_moved(axes, marks, x, side * width / 2) for side in (-1, 1))
            rows.append({**_said(axes, marks, index, keys), "x": left, "x2": right, **ends})
    return rows


def _intervals(axes: Axes, group: Sequence[Marks], keys: Keys, gaps: bool = True) -> list[Spec]:
    """The interval of each point; with gaps also where there is none, so that bands break."""
    rows = []
    for number, marks in enumerate(group):
        ends = [whisker(marks, index, axes.y_range[0], axes.panel.y_log) for index in range(len(marks.x))]
        if not any(ends):
            continue
        for x, pair in zip(marks.x, ends, strict=True):
            if x is not None and (pair is not None or gaps):
                low, high = pair or (None, None)
                row = {"x": _moved(axes, marks, x, 0.0), "l": _short(low), "h": _short(high)}
                rows.append({"s": keys[marks.label, marks.number], "k": number, **row})
    return rows


def _said(axes: Axes, marks: Marks, index: int, keys: Keys) -> Spec:
    """The series of a point, and what is said of it."""
    x, y = marks.x[index], marks.y[index]
    names = axes.panel.categories
    at = wording.number_text(x)
    if names is not None and x is not None and x == int(x) and 0 <= x < len(names):
        at = str(names[int(x)])
    row: Spec = {
        "s": keys[marks.label, marks.number],
        "title": clean(marks.label),
        "at": clean(at),
        "is": wording.number_text(y),
    }
    low, high = (None if ends is None else ends[index] for ends in (marks.low, marks.high))
    if low is not None and high is not None:
        row["is"] += f" [{wording.number_text(low)}, {wording.number_text(high)}]"
    if marks.values is not None:
        row |= {"v": _short(marks.values[index]), "value": wording.number_text(marks.values[index])}
    if marks.hover is not None:
        row["note"] = clean(marks.hover[index])
    return row


def _moved(axes: Axes, marks: Marks, x: float, by: float) -> float | None:
    """Where the mark of this x stands, or one so far beside it."""
    return _short(unscaled(scaled(x, axes.panel.x_log) + marks.offset + by, axes.panel.x_log))


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")


def _rules(axes: Axes) -> list[Spec]:
    layers: list[Spec] = []
    upright = [rule for rule in axes.rules if rule.axis == "x"]  # their labels stand beneath each other
    for rule in axes.rules:
        share = _share(axes, rule)
        if not 0 <= share <= 1:
            continue
        mark = {"type": "rule", "strokeDash": DOTS, "color": {"expr": "ink"}}
        value = _datum(rule.value)
        text: Spec = {"type": "text", "text": cut(rule.label), "clip": False}
        if rule.axis == "y":
            text |= {"align": "right", "baseline": "bottom" if share < 0.92 else "top", "dy": -2 if share < 0.92 else 3}
            where = {"x": {"value": "width"}, "y": value}
        else:
            left = share > 0.6
            text |= {"align": "right" if left else "left", "baseline": "top", "dx": -4 if left else 4}
            where = {"x": value, "y": {"value": 2 + 11 * upright.index(rule)}}
        layers += [_alone(mark, {rule.axis: value}), _alone(text, where)]
    return layers


def _share(axes: Axes, rule: Rule) -> float:
    """How far along its axis a rule stands."""
    log, ends = (axes.panel.x_log, axes.x_range) if rule.axis == "x" else (axes.panel.y_log, axes.y_range)
    low, high = (scaled(end, log) for end in ends)
    return (scaled(rule.value, log) - low) / (high - low)


def _texts(axes: Axes) -> list[Spec]:
    """Notes at their places, or that there is nothing."""
    if axes.empty:
        ranges = (("x", axes.x_range, axes.panel.x_log), ("y", axes.y_range, axes.panel.y_log))
        middle = {name: _datum(unscaled(sum(scaled(end, log) for end in ends) / 2, log)) for name, ends, log in ranges}
        return [_alone({"type": "text", "text": "no data", "color": {"expr": "soft"}}, middle)]
    mark = {"type": "text", "align": "left", "baseline": "bottom", "dx": 4, "dy": -3}
    return [
        _alone(
            {**mark, "text": cut(note.text)},
            {"x": _datum(note.x), "y": _datum(note.y)},
        )
        for note in axes.notes
    ]


def _alone(mark: Spec, encoding: Spec) -> Spec:
    """A layer of one mark."""
    return {"data": {"values": [{}]}, "mark": mark, "encoding": encoding}


def _quoted(names: Sequence[str]) -> str:
    """The names as a list of an expression."""
    return json.dumps(list(names), ensure_ascii=False)
