"""Controls in front of the tour (ipywidgets): what is pasted, where one stands, and what is said of it.

Nothing is computed here; each change of a control asks tour.py or tour_writing.py again. Whatever the reader types, the
answer is a page or one clear line.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import ipywidgets as widgets

from gdlib.decoding import DecodingError
from gdlib.drafts import MAX_DRAFT
from gdlib.models.wheels import ModelError
from gdlib.report import tour, tour_writing

EXPECTED = (ValueError, OSError, RecursionError, ModelError, DecodingError)  # what bad input raises
STALE = "Something has changed since: press Write."
WIDE = widgets.Layout(width="98%")
LABEL = {"description_width": "7.5rem"}
UNITS = (("token by token", "token"), ("byte by byte", "byte"))
KIND_NAMES = (("JSON Schema", "schema"), ("GBNF", "gbnf"), ("regex", "regex"))


class Shown:
    """Something that a cell shows as its widget, and as `plain()` where there are no widgets."""

    box: widgets.Widget

    def plain(self) -> str:
        """The same in HTML, as it stands now."""
        raise NotImplementedError

    def _repr_mimebundle_(self, **options):
        return {**self.box._repr_mimebundle_(**options), "text/html": self.plain()}


@dataclass
class Panel(Shown):
    """The controls of the first half, and what they show.

    read: what was read, None where nothing could be; at: bytes of the text before the place.
    """

    kind: widgets.Dropdown
    spacing: widgets.Dropdown
    grammar: widgets.Textarea
    prompt: widgets.Textarea
    text: widgets.Textarea
    vocabulary: widgets.Dropdown
    unit: widgets.ToggleButtons
    place: widgets.IntSlider
    said: widgets.HTML
    view: widgets.HTML
    box: widgets.VBox
    read: tour.Look | None = None
    at: int = 0

    def plain(self) -> str:
        return self.said.value + self.view.value


@dataclass
class Writer(Shown):
    """The controls of the second half; `done` is the tour_writing.Written, None where nothing could be written."""

    sources: widgets.SelectMultiple
    constrain: widgets.Checkbox
    max_tokens: widgets.IntSlider
    draft_cap: widgets.IntSlider
    go: widgets.Button
    forward: widgets.IntSlider
    said: widgets.HTML
    view: widgets.HTML
    box: widgets.VBox
    done: tour_writing.Written | None = None

    def plain(self) -> str:
        return self.said.value + self.view.value


def panel(
    kind: str,
    grammar: str,
    text: str,
    prompt: str = "",
    vocabulary: str = "",
    spacing: str = "compact",
    place: int = 0,
) -> Panel:
    """Controls for a grammar and a text, filled with these. vocabulary: "" for the first that is at hand.

    place: tokens before the place to begin at. ValueError for a kind or a spacing that there is not.
    """
    if kind not in tour.KINDS or spacing not in tour.SPACINGS:
        wanted = f"one of {', '.join(tour.KINDS)} and one of {', '.join(tour.SPACINGS)}"
        raise ValueError(f"kind {kind!r}, spacing {spacing!r}: want {wanted}")
    at_hand = tour.vocabularies()
    chosen = vocabulary or at_hand[0]
    names = at_hand if chosen in at_hand else [chosen, *at_hand]
    area = {"layout": WIDE, "style": LABEL}
    controls = dict(
        kind=widgets.Dropdown(options=KIND_NAMES, value=kind, description="Grammar is a", style=LABEL),
        spacing=widgets.Dropdown(
            options=list(tour.SPACINGS), value=spacing, description="White space", style=LABEL,
            tooltip="of the texts of a schema",
        ),
        grammar=widgets.Textarea(value=grammar, rows=8, description="Grammar", **area),
        prompt=widgets.Textarea(value=prompt, rows=3, description="Text before", **area),
        text=widgets.Textarea(value=text, rows=2, description="Text", **area),
        vocabulary=widgets.Dropdown(
            options=names, value=chosen, description="Vocabulary", style=LABEL, layout=widgets.Layout(width="22rem")
        ),
        unit=widgets.ToggleButtons(options=UNITS, value="token", description="Step", style=LABEL),
        place=widgets.IntSlider(value=0, min=0, max=0, description="Place (token)", **area),
        said=widgets.HTML(),
        view=widgets.HTML(),
    )  # fmt: skip
    top = widgets.HBox([controls["kind"], controls["spacing"], controls["vocabulary"]], layout=_wrapping())
    rows = [top, *(controls[name] for name in ("grammar", "prompt", "text", "said", "unit", "place", "view"))]
    made = Panel(**controls, box=widgets.VBox(rows))

    for name in ("kind", "spacing", "grammar", "prompt", "text", "vocabulary"):
        getattr(made, name).observe(lambda _: _read(made), "value")
    made.unit.observe(lambda _: _rescale(made), "value")
    made.place.observe(lambda _: _draw(made), "value")
    _read(made)
    made.place.value = min(place, made.place.max)
    return made


def _wrapping() -> widgets.Layout:
    return widgets.Layout(flex_flow="row wrap")


def _read(made: Panel) -> None:
    """Something was pasted: read it anew."""
    made.spacing.disabled = made.kind.value != "schema"
    try:
        grammar = tour.read_grammar(made.kind.value, made.grammar.value, made.spacing.value)
        name = made.vocabulary.value
        made.read = tour.look(grammar, tour.vocabulary(name), made.text.value, made.prompt.value, name)
        made.said.value = tour.STYLE + tour.summary(made.read)
    except EXPECTED as error:
        made.read = None
        made.said.value, made.view.value = tour.refusal(error), ""
        return
    _rescale(made)


def _rescale(made: Panel) -> None:
    """Another text or another unit: the slider's ends, and the place where the reader stood, as near as it goes."""
    slider, seen = made.place, made.read
    slider.description = f"Place ({made.unit.value})"
    if seen is None:
        return
    before, in_bytes = slider.value, made.unit.value == "byte"
    with slider.hold_trait_notifications():
        slider.max = seen.read if in_bytes else len(seen.ids)
        slider.value = min(made.at if in_bytes else bisect_left(seen.borders, made.at), slider.max)
    if slider.value == before:
        _draw(made)


def _draw(made: Panel) -> None:
    seen, index = made.read, made.place.value
    if seen is None:
        return
    made.at = index if made.unit.value == "byte" else seen.borders[index]
    try:
        made.view.value = tour.place_html(seen, tour.place(seen, made.at))
    except EXPECTED as error:
        made.view.value = tour.refusal(error)


def writer(
    looking: Panel,
    model: str,
    sources: Sequence[str],
    max_tokens: int = 64,
    constrain: bool = True,
    draft_cap: int = 8,
) -> Writer:
    """Controls for a model that goes on behind `looking`'s text before, under its grammar. It writes once at once."""
    controls = dict(
        sources=widgets.SelectMultiple(
            options=[(f"{tour_writing.NAMES[name]} ({name})", name) for name in tour_writing.SOURCES],
            value=tuple(sources), rows=5, description="Drafts by", style=LABEL,
        ),
        constrain=widgets.Checkbox(value=constrain, description="the text must conform", indent=False),
        max_tokens=widgets.IntSlider(value=max_tokens, min=1, max=200, description="Tokens at most", style=LABEL),
        draft_cap=widgets.IntSlider(
            value=draft_cap, min=1, max=MAX_DRAFT, description="Drafts a forward", style=LABEL
        ),
        go=widgets.Button(description="Write", button_style="primary", tooltip=f"let {model} write"),
        forward=widgets.IntSlider(value=1, min=1, max=1, description="Forward", layout=WIDE, style=LABEL),
        said=widgets.HTML(),
        view=widgets.HTML(),
    )  # fmt: skip
    right = widgets.VBox([controls[name] for name in ("max_tokens", "draft_cap", "constrain", "go")])
    top = widgets.HBox([controls["sources"], right], layout=_wrapping())
    made = Writer(**controls, box=widgets.VBox([top, *(controls[name] for name in ("said", "forward", "view"))]))
    made.go.on_click(lambda _: _write(made, looking, model))
    made.forward.observe(lambda _: _draw_forward(made), "value")
    theirs = (looking.kind, looking.spacing, looking.grammar, looking.prompt)
    for changed in (*theirs, made.sources, made.max_tokens, made.draft_cap, made.constrain):
        changed.observe(lambda _: _stale(made), "value")
    _write(made, looking, model)
    made.forward.value = min(2, made.forward.max)  # the first with drafts
    return made


def _write(made: Writer, looking: Panel, model: str) -> None:
    made.go.disabled = True
    try:
        grammar = tour.read_grammar(looking.kind.value, looking.grammar.value, looking.spacing.value)
        made.done = tour_writing.write(
            grammar,
            looking.prompt.value,
            model,
            made.sources.value,
            made.max_tokens.value,
            made.constrain.value,
            made.draft_cap.value,
        )
        made.said.value = tour.STYLE + tour_writing.totals(made.done)
        made.forward.max = len(made.done.forwards)
        made.forward.value = min(made.forward.value, made.forward.max)
        _draw_forward(made)
    except EXPECTED as error:
        made.done = None
        made.said.value, made.view.value = tour.refusal(error), ""
    finally:
        made.go.disabled = False


def _stale(made: Writer) -> None:
    """What is shown was written under something else."""
    if made.done is not None and STALE not in made.said.value:
        made.said.value += tour._status(STALE)


def _draw_forward(made: Writer) -> None:
    if made.done is not None:
        made.view.value = tour_writing.forward_html(made.done, made.forward.value)
