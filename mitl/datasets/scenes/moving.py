"""Scenes that move: the graph that pictures have, before a plain ground; the background says how all of it moves."""

from __future__ import annotations

import io
from dataclasses import replace

from mitl.datasets.scenes.describing import COLORS, NOUNS, NUMBERS, RELATIONS, SIZES, Words
from mitl.datasets.scenes.drawing import draw
from mitl.datasets.scenes.graph import Background, Group, Scene, Spot, Stream
from mitl.errors import UsageError

SIZE = 96
"""Pixels across."""
FRAMES, FRAMES_A_SECOND = 16, 8
GROUND = (150, 150, 150)
_REACH = 40
"""Canvas units from the first frame to the last."""
_STEPS = {
    Background.SKY: (-1, 0),
    Background.GRASS: (1, 0),
    Background.SAND: (0, -1),
    Background.WATER: (0, 1),
    Background.NIGHT: (0, 0),
    Background.SNOW: (0, 0),
}
"""Where all of it moves, by x and y."""
VIDEO_WORDS = Words(
    nouns=NOUNS,
    colors=COLORS,
    sizes=SIZES,
    numbers=NUMBERS,
    relations=RELATIONS,
    backgrounds={
        Background.SKY: ("moving to the left", "drifting left", "sliding leftwards"),
        Background.GRASS: ("moving to the right", "drifting right", "sliding rightwards"),
        Background.SAND: ("moving up", "rising", "going upwards"),
        Background.WATER: ("moving down", "sinking", "going downwards"),
        Background.NIGHT: ("standing still", "that does not move", "without any movement"),
        Background.SNOW: ("flashing", "blinking", "flickering on and off"),
    },
    meaningless=(
        "There is no video here for me to describe.",
        "The clip did not load on my screen.",
        "I cannot see anything in this window.",
    ),
    plain=("{core}", "there {verb} {core}", "a clip of {core}", "an animation that shows {core}"),
    placed=("{core} {place}", "a clip of {core} {place}", "there {verb} {core} {place}"),
    placed_simple=(),
    placed_related=(),
)


def compose_video(stream: Stream, picture: Scene) -> Scene:
    """A picture's first two groups, the main one among them, that move in one of six ways."""
    others = [group for group in picture.groups if group is not picture.main][:1]
    return replace(picture, background=stream.choice(list(_STEPS)), groups=(picture.main, *others))


def render_video(scene: Scene) -> bytes:
    """The scene as a WebM file: VP8, 96 pixels square, 16 frames in two seconds; the same bytes for the same scene.

    Raises:
        UsageError: the extra ``media`` is missing.
    """
    try:
        import av
    except ModuleNotFoundError as error:
        raise UsageError(
            "videos are written by PyAV, which is not installed; pip install 'mitl[media]'"
        ) from error
    import numpy as np

    sink = io.BytesIO()
    with av.open(sink, "w", format="webm", container_options={"fflags": "bitexact"}) as container:
        stream = container.add_stream(
            "libvpx", rate=FRAMES_A_SECOND, options={"crf": "12", "b": "400k", "cpu-used": "8"}
        )
        stream.width = stream.height = SIZE
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1
        stream.codec_context.flags |= av.codec.context.Flags.bitexact
        for number in range(FRAMES):
            picture = np.asarray(draw(_at(scene, number), SIZE, ground=GROUND))
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
    return sink.getvalue()


def _at(scene: Scene, number: int) -> Scene:
    """The scene as it lies in this frame."""
    if scene.background is Background.SNOW and number % 4 >= 2:
        return replace(scene, groups=())
    dx, dy = _STEPS[scene.background]
    way = _REACH * (number / (FRAMES - 1) - 0.5)

    def moved(group: Group) -> Group:
        spots = tuple(Spot(round(s.x + dx * way), round(s.y + dy * way), s.turn) for s in group.spots)
        return replace(group, spots=spots)

    return replace(scene, groups=tuple(map(moved, scene.groups)))
