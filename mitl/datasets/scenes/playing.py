"""Scenes that are heard or move, from the same graph as pictures have.

Heard, it is read as sounds one after another. A group is a sound that is repeated one to three times: its shape is what
sounds, its colour the pitch, its size how loud it is, and the x of its spots when it begins, 80 units a second. The
background is a noise behind all of it. What lies further left comes earlier; nothing lies above another sound.

Scenes move before a plain ground; the background says how all of it moves.
"""

from __future__ import annotations

import io
import wave
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mitl.datasets.scenes.describing import COLORS, NOUNS, NUMBERS, RELATIONS, SIZES, Words
from mitl.datasets.scenes.drawing import draw
from mitl.datasets.scenes.graph import Background, Color, Group, Relation, Scene, Shape, Size, Spot, Stream
from mitl.errors import UsageError

RATE = 8_000
UNITS_A_SECOND = 80
_LENGTH_S, _GAP_S, _REST_S = 0.2, 0.1, 0.5
"""Of one sound, between its repetitions, and between groups."""
_PITCHES = {Color.BLUE: (210, 260), Color.GREEN: (560, 680), Color.RED: (1_450, 1_750)}
"""Hertz."""
_LEVELS = {Size.SMALL: 0.12, Size.MEDIUM: 0.3, Size.LARGE: 0.75}
_NOISE = 0.03
_COUNTS, _QUANTITIES = (0.25, 0.5, 0.25), (0.5, 0.3, 0.2)
SOUND_WORDS = Words(
    nouns={
        Shape.CIRCLE: (("beep", "beeps"), ("tone", "tones")),
        Shape.SQUARE: (("buzz", "buzzes"), ("buzzing sound", "buzzing sounds")),
        Shape.TRIANGLE: (("rising whistle", "rising whistles"), ("upward chirp", "upward chirps")),
        Shape.CRESCENT: (("falling whistle", "falling whistles"), ("downward chirp", "downward chirps")),
        Shape.DIAMOND: (("bell", "bells"), ("chime", "chimes")),
        Shape.STAR: (("burst of noise", "bursts of noise"), ("hissing burst", "hissing bursts")),
    },
    colors={
        Color.BLUE: ("low", "low", "deep"),
        Color.GREEN: ("mid-pitched", "medium-pitched"),
        Color.RED: ("high", "high", "high-pitched"),
    },
    sizes={
        Size.SMALL: ("faint", "quiet", "soft"),
        Size.MEDIUM: ("fairly loud",),
        Size.LARGE: ("loud", "strong"),
    },
    numbers=NUMBERS,
    relations={
        Relation.LEFT_OF: ("before", "followed by", "and then"),
        Relation.RIGHT_OF: ("after", "that comes after"),
    },
    backgrounds={
        Background.SNOW: ("in silence", "with nothing in the background"),
        Background.WATER: ("over a steady hiss", "with hissing in the background"),
        Background.NIGHT: ("over a deep hum", "with humming in the background"),
        Background.SKY: ("in gusts of wind", "with wind in the background"),
    },
    meaningless=(
        "There is no sound here for me to describe.",
        "The recording did not load on my machine.",
        "I cannot hear anything in this window.",
    ),
    plain=("{core}", "there {verb} {core}", "the sound of {core}", "a recording of {core}"),
    placed=("{place}, there {verb} {core}", "{place} we hear {core}"),
    placed_simple=("{core} {place}", "there {verb} {core} {place}"),
)


def compose_sound(stream: Stream) -> Scene:
    """One to three sounds in a row, one of them alone the loudest."""
    count = stream.weighted((1, 2, 3), _COUNTS)
    shapes = stream.sample(list(SOUND_WORDS.nouns), count)
    loudest = stream.weighted((Size.LARGE, Size.MEDIUM), (0.7, 0.3))
    softer = [size for size in Size if size.order < loudest.order]
    sizes = stream.shuffled([loudest, *(stream.choice(softer) for _ in range(count - 1))])
    groups, start = [], 0.1
    for shape, size in zip(shapes, sizes, strict=True):
        color = stream.choice(list(_PITCHES))
        quantity = stream.weighted((1, 2, 3), _QUANTITIES)
        begins = [start + place * (_LENGTH_S + _GAP_S) for place in range(quantity)]
        spots = tuple(Spot(round(at * UNITS_A_SECOND), 0, 0) for at in begins)
        groups.append(Group(shape, color, size, stream.between(*_PITCHES[color]), spots))
        start = begins[-1] + _LENGTH_S + _REST_S
    background = stream.choice(list(SOUND_WORDS.backgrounds))
    return Scene(background, stream.between(0, 2**31 - 1), tuple(groups))


def render_sound(scene: Scene) -> bytes:
    """The scene as a WAV file: mono, 16 bits, 8,000 samples a second; the same bytes for the same scene."""
    last = max(spot.x for group in scene.groups for spot in group.spots)
    samples = _background(scene, round(RATE * (last / UNITS_A_SECOND + _LENGTH_S + 0.1)))
    for group in scene.groups:
        sound = _LEVELS[group.size] * _sound(group.shape, group.radius, scene.texture)
        for spot in group.spots:
            start = round(spot.x / UNITS_A_SECOND * RATE)
            samples[start : start + len(sound)] += sound
    sink = io.BytesIO()
    with wave.open(sink, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((np.clip(samples, -1, 1) * 32_767).round().astype("<i2").tobytes())
    return sink.getvalue()


def _sound(shape: Shape, pitch: int, seed: int) -> NDArray[np.float64]:
    """(N,) one sound of amplitude 1, faded in and out."""
    t = np.arange(round(_LENGTH_S * RATE)) / RATE
    turns = pitch * t
    if shape is Shape.SQUARE:
        wave_of = np.sign(np.sin(2 * np.pi * turns)) * 0.6
    elif shape in (Shape.TRIANGLE, Shape.CRESCENT):
        bend = 0.7 if shape is Shape.TRIANGLE else -0.4
        wave_of = np.sin(2 * np.pi * pitch * (t + bend * t * t / (2 * _LENGTH_S) * 2))
    elif shape is Shape.DIAMOND:
        partials = ((1.0, 0.6), (2.76, 0.3), (5.4, 0.1))
        audible = [(ratio, share) for ratio, share in partials if ratio * pitch < RATE / 2]
        wave_of = np.exp(-18 * t) * sum(share * np.sin(2 * np.pi * ratio * turns) for ratio, share in audible)
    elif shape is Shape.STAR:
        noise = np.random.default_rng(seed).normal(size=len(t))
        near = np.abs(np.fft.rfftfreq(len(t), 1 / RATE) - pitch) < 0.5 * pitch
        band = np.fft.irfft(np.fft.rfft(noise) * near, len(t))
        wave_of = band / np.abs(band).max()
    else:
        wave_of = np.sin(2 * np.pi * turns)
    edge = np.minimum(1, np.minimum(t, _LENGTH_S - t) / 0.01)
    result: NDArray[np.float64] = wave_of * edge
    return result


def _background(scene: Scene, n: int) -> NDArray[np.float64]:
    """(n,) the noise behind it."""
    t = np.arange(n) / RATE
    noise = np.random.default_rng(scene.texture).normal(size=n)
    if scene.background is Background.WATER:
        return _NOISE * noise
    if scene.background is Background.NIGHT:
        hum: NDArray[np.float64] = 2 * _NOISE * np.sin(2 * np.pi * 75 * t)
        return hum
    if scene.background is Background.SKY:
        low = np.fft.irfft(np.fft.rfft(noise) * (np.fft.rfftfreq(n, 1 / RATE) < 400), n)
        gusts: NDArray[np.float64] = 4 * _NOISE * low * (1 + np.sin(2 * np.pi * 1.5 * t)) / 2
        return gusts
    return np.zeros(n)


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
