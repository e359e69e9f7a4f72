"""Composed queries of a world: a picture and a text that changes its main object or its background."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mitl.datasets.scenes.describing import BACKGROUNDS, COLORS, NOUNS, NUMBERS
from mitl.datasets.scenes.graph import Scene, Stream
from mitl.datasets.scenes.truth import Assertion, Meaning

_KEPT = {"shape": "shape", "color": "colour", "quantity": "number", "background": "place"}
"""Fact → what a text calls it where it stays."""
_OF_THEM = {1: "only one", 2: "two", 3: "three"}
_TRIED = 24
"""Pictures that are looked at for a reference that shares something with the target."""


def compose_query(stream: Stream, target_id: str, scenes: Mapping[str, Scene]) -> tuple[str, str, Meaning]:
    """(reference, text, what the text means of the picture that is looked for).

    The reference shares one or two facts with the target, which the text keeps without naming them; what it changes
    it names.
    """
    others = [image_id for image_id in scenes if image_id != target_id]
    tried = stream.sample(others, min(_TRIED, len(others)))
    target = _facts(scenes[target_id])
    shared = {
        one: [name for name, value in _facts(scenes[one]).items() if target[name] == value] for one in tried
    }
    fitting = [one for one in tried if 0 < len(shared[one]) < len(target)] or tried
    reference = max(stream.shuffled(fitting), key=lambda one: ("shape" in shared[one], len(shared[one])))
    kept = stream.sample(shared[reference], min(len(shared[reference]), stream.between(1, 2)))
    differs = [name for name in target if name not in shared[reference]]
    changed = stream.sample(differs, min(len(differs), stream.between(1, 2)))
    if "shape" not in kept and "shape" not in changed:
        # Something has to be there, in every picture that fits.
        (kept if "shape" in shared[reference] else changed).append("shape")
    if target["quantity"] != 1 and "quantity" not in (*kept, *changed):
        (kept if "quantity" in shared[reference] else changed).append("quantity")
    told = {*kept, *changed}
    main = scenes[target_id].main
    color, quantity = main.color if "color" in told else None, main.quantity if "quantity" in told else None
    background = scenes[target_id].background if "background" in told else None
    meaning = Meaning((Assertion(main.shape, color, None, quantity),), (), background)
    return reference, _text(stream, kept, changed, scenes[target_id]), meaning


def _facts(scene: Scene) -> dict[str, object]:
    main = scene.main
    return {
        "shape": main.shape,
        "color": main.color,
        "quantity": main.quantity,
        "background": scene.background,
    }


def _text(stream: Stream, kept: Sequence[str], changed: Sequence[str], target: Scene) -> str:
    names = " and ".join(_KEPT[name] for name in _KEPT if name in kept)
    main, parts = target.main, []
    if "shape" in changed:
        noun = stream.choice(NOUNS[main.shape])[0 if main.quantity == 1 else 1]
        words = [stream.choice(COLORS[main.color])] if "color" in changed else []
        number = stream.choice(NUMBERS[main.quantity]) if "quantity" in changed else "the"
        parts.append(" ".join(("with", number, *words, noun)))
    else:
        if "color" in changed:
            parts.append(f"in {stream.choice(COLORS[main.color])}")
        if "quantity" in changed:
            parts.append(f"with {_OF_THEM[main.quantity]} of them")
    if "background" in changed:
        parts.append(stream.choice(BACKGROUNDS[target.background]))
    change = " and ".join(parts)
    if not names:
        return f"Instead, one {change}"
    if not change:
        return f"Another one with the same {names}"
    frames = (f"The same {names}, but {change}", f"Keep the {names}, but {change}", f"{change}, same {names}")
    text = stream.choice(frames)
    return text[0].upper() + text[1:]
