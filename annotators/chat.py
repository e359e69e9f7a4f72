"""A vision-language model that judges pairs, behind a server of the chat completions API (vLLM, llama.cpp, Ollama).

It is asked what people are asked, on their four levels, and answers with one letter. A pair's score is the expected
level under the probabilities of the letters, the mean of two calls: in one A is the best level, in the other the worst,
since models prefer some letters. As with Lin et al. (VQAScore, ECCV 2024) and Lee et al. (FLEUR, ACL 2024), what the
model believes is read from its probabilities and not from its text.
"""

from __future__ import annotations

import base64
import io
import ipaddress
import logging
import math
import os
import random
import re
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from annotators.base import Encoded, PaidPairs, fingerprint, ids_of, scores_of_all
from annotators.inputs import pixels
from annotators.options import Options
from mitl.core.clock import asked_to_wait
from mitl.core.pictures import upright
from mitl.errors import AnnotatorError
from mitl.records import AnnotatorKind, CaptionItem, ImageItem, PartKind

logger = logging.getLogger(__name__)

VERSION = 1
"""Raised when the same model is asked something else, or its answers are read in another way."""
LEVELS = ("yes, all of it", "mostly, but some of it is wrong", "hardly, most of it is wrong", "not at all")
"""The best first. A level is worth a third more than the next."""
LETTERS = "ABCD"
UNSAID = 0.5
"""What the share of probability counts that is on no letter, such as that of a refusal."""
_HEARD, _LEAST = 32, 0.1
"""After so many answers in which the letters had less than this share on average, the model is asked no more."""
CAPTION_BYTES = 2048
"""Of a caption; what is longer is cut."""

_MOST = 1.1
"""Half-precision probabilities sum to less than this; what does not, or is NaN, is no probability."""

_QUALITIES = (90, 75, 60, 45, 30, 15, 5)
_TRIES, _LONGEST_PAUSE_S = 8, 30.0
_PAIRS_EACH = 4
"""Pairs of each call at a time after which the answers of a model that may cost money are kept."""
_AGAIN = (408, 409, 425, 429)
"""Besides those from 500: answers of a server that may do better a little later."""
_SHOWN = 200
_FILTERED = re.compile(r'"code"\s*:\s*"content_(filter|policy_violation)"')
"""In the error of a host that does not let its model see a picture or a caption (Azure, OpenAI)."""


@dataclass(frozen=True, slots=True)
class ChatModel:
    """Which model is asked, and where."""

    urls: tuple[str, ...]
    """Of servers that all have the model; calls go to one after the other."""
    model: str
    key: str = field(default="", repr=False)
    """Sent as a bearer token."""
    timeout: float = 120.0
    """Seconds that one call may take."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """More of a call's body, as the server knows it."""


@dataclass(frozen=True, slots=True)
class _Calls:
    """What the calls of one request for scores have in common."""

    client: httpx.Client
    over: threading.Event
    """Set when nobody waits for them any more."""
    told: threading.Event
    """Set when somebody has been told that the server is busy or away."""
    errors: list[AnnotatorError]
    """The first ended the others."""


class ChatAnnotator:
    """Scores of pairs from 0 to 1, one call of the server for each order of the letters.

    An image is kept as a JPEG no larger than ``edge`` a side, upright and without its EXIF data; a caption as UTF-8.
    """

    kind = AnnotatorKind.PAIRWISE
    reusable_encodings = True
    reads_pictures = True
    is_exact = True

    def __init__(
        self,
        name: str,
        model: ChatModel,
        *,
        edge: int = 384,
        requests: int = 8,
        most_pairs: int | None = None,
    ) -> None:
        self.name, self._model, self._edge, self._requests = name, model, edge, requests
        self.encoding_fingerprint = fingerprint(form="chat", edge=edge, versions=[VERSION, pixels.VERSION])
        asked = {"model": model.model, "levels": LEVELS, **({"extra": model.extra} if model.extra else {})}
        self.fingerprint = fingerprint(encoding=self.encoding_fingerprint, **asked)
        is_paid = most_pairs is not None or bool(model.key) or not all(map(_is_here, model.urls))
        self.paid_pairs = PaidPairs(_PAIRS_EACH * requests, most_pairs) if is_paid else None
        self._turns = count()
        self._heard: list[float] = []
        """The share of the letters in its first answers."""

    def encode_images(self, items: Sequence[ImageItem]) -> Encoded:
        """``jpeg`` (N, most) uint8, zeros behind the ``length`` (N,) of each."""
        other = next((item for item in items if item.kind is not PartKind.IMAGE), None)
        if other is not None:
            raise AnnotatorError(
                f"annotator {self.name!r} judges pictures, but image {other.external_id!r} is of kind "
                f"{other.kind.value!r}; take {self.name!r} out of the annotators"
            )
        files = [_jpeg(item, self._edge) for item in items]
        return Encoded("image", ids_of(items), _rows("jpeg", files, _most_bytes(self._edge)))

    def encode_captions(self, items: Sequence[CaptionItem]) -> Encoded:
        """``text`` (N, 2048) uint8, zeros behind the ``length`` (N,) of each."""
        other = next((item for item in items if item.reference_id is not None), None)
        if other is not None:
            raise AnnotatorError(
                f"annotator {self.name!r} judges captions, but {other.external_id!r} changes another picture; take "
                f"{self.name!r} out of the annotators"
            )
        texts = [item.text.encode()[:CAPTION_BYTES] for item in items]
        return Encoded("caption", ids_of(items), _rows("text", texts, CAPTION_BYTES))

    def similarities(self, queries: Encoded, gallery: Encoded) -> NDArray[np.float32]:
        """(Q, G) scores of all pairs."""
        return scores_of_all(self, queries, gallery)

    def scores(
        self,
        images: Encoded,
        captions: Encoded,
        image_rows: NDArray[np.int64],
        caption_rows: NDArray[np.int64],
    ) -> NDArray[np.float32]:
        """(P,) scores of the pairs (image_rows[p], caption_rows[p]), several of them asked for at a time.

        Raises:
            AnnotatorError: the server refuses, does not answer after several tries, or answers something else.
        """
        urls = {row: _data_url(images, row) for row in np.unique(image_rows).tolist()}

        def judged(pair: tuple[int, int]) -> float:
            image, caption = pair
            text = _bytes_of(captions, "text", caption).decode(errors="ignore")
            orders = LEVELS, LEVELS[::-1]
            try:
                return sum(self._asked(calls, urls[image], text, levels) for levels in orders) / len(orders)
            except AnnotatorError as error:
                calls.errors.append(error)
                calls.over.set()
                raise

        headers = {"Authorization": f"Bearer {self._model.key}"} if self._model.key else {}
        limits = httpx.Limits(max_connections=self._requests)
        # A proxy of the environment is for other machines.
        remote = not all(map(_is_here, self._model.urls))
        with httpx.Client(
            headers=headers, timeout=self._model.timeout, limits=limits, trust_env=remote
        ) as client:
            calls = _Calls(client, threading.Event(), threading.Event(), [])
            pool = ThreadPoolExecutor(self._requests)
            try:
                scores = list(pool.map(judged, zip(image_rows.tolist(), caption_rows.tolist(), strict=True)))
            except AnnotatorError:
                raise calls.errors[0] from None
            finally:  # after an error, or Ctrl-C, nothing more is asked for
                calls.over.set()
                pool.shutdown(cancel_futures=True)
        return np.array(scores, np.float32)

    def _asked(self, calls: _Calls, picture: str, caption: str, levels: Sequence[str]) -> float:
        """The expected level of one pair, 0 to 1, where the first letter stands for the first level."""
        body = {**_question(picture, caption, levels), "model": self._model.model, **self._model.extra}
        choice = self._answer(calls, body)
        shares = letter_shares(choice)
        self._hear(choice, sum(shares))
        best_first = shares if levels[0] == LEVELS[0] else shares[::-1]
        worth = sum(share * (1 - place / (len(LEVELS) - 1)) for place, share in enumerate(best_first))
        return min(1.0, worth + UNSAID * max(0.0, 1 - sum(shares)))

    def _hear(self, choice: Mapping[str, Any], share: float) -> None:
        """AnnotatorError where the first answers say that the model does not answer with letters."""
        if len(self._heard) >= _HEARD:
            return
        self._heard.append(share)
        mean = sum(self._heard) / len(self._heard)
        if len(self._heard) >= _HEARD and mean < _LEAST:
            raise AnnotatorError(
                f"annotator {self.name!r}: model {self._model.model!r} answers {_short(_written(choice))} where a "
                f"letter A to D is asked for, which has {mean:.0%} of its first {_HEARD} answers; it must see pictures "
                "and follow instructions, and one that thinks first must be told not to, by 'extra'"
            )

    def _answer(self, calls: _Calls, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The first choice of a chat completion; asked again while the server is busy or away."""
        url = self._model.urls[next(self._turns) % len(self._model.urls)]
        said, pause = "was not asked", 0.0
        for number in range(_TRIES):
            if calls.over.wait(pause):
                break
            if number == 1 and not calls.told.is_set():
                calls.told.set()
                logger.warning("annotator %r: %s %s; asked again for about a minute", self.name, url, said)
            pause = min(_LONGEST_PAUSE_S, 2.0**number) * random.uniform(0.5, 1)
            try:
                reply = calls.client.post(f"{url}/chat/completions", json=body)
            except httpx.RequestError as error:
                broken = "read" if isinstance(error, httpx.DecodingError) else "reached"
                said = f"cannot be {broken}: {error or type(error).__name__}"
                continue
            if reply.status_code < 500 and reply.status_code not in _AGAIN:
                return self._choice(url, reply)
            said = f"answers {reply.status_code} {_short(reply.text)}"
            pause = max(pause, asked_to_wait(reply.headers) or 0.0)
        raise AnnotatorError(
            f"annotator {self.name!r}: {url} {said} ({_TRIES} tries); start the server, with a model that takes "
            "pictures, and run the command again: what was scored before is kept"
        )

    def _choice(self, url: str, reply: httpx.Response) -> Mapping[str, Any]:
        if reply.status_code == 400 and _FILTERED.search(reply.text):
            return {"message": {"content": ""}}  # refused, as a model would
        if reply.status_code != 200:
            raise AnnotatorError(
                f"annotator {self.name!r}: {url} answers {reply.status_code} {_short(reply.text)}; it should have the "
                f"model {self._model.model!r}, and take pictures, 'max_tokens' and 'logprobs'"
            )
        try:
            choice = reply.json()["choices"][0]
            if not sum(letter_shares(choice)) < _MOST:
                raise ValueError("probabilities that are none")
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            raise AnnotatorError(
                f"annotator {self.name!r}: {url} answers {_short(reply.text)}, which is no chat completion; name the "
                "part of its address before '/chat/completions'"
            ) from error
        return dict(choice)


def letter_shares(choice: Mapping[str, Any]) -> list[float]:
    """The probability of each letter as the first token of a choice; all on its first word where it gives none.

    Spellings such as " A", "a" and "A." count together; a word that begins with a letter, such as "As", is none.
    """
    shares = dict.fromkeys(LETTERS, 0.0)
    logprobs = choice.get("logprobs")
    if logprobs and logprobs.get("content"):
        first = logprobs["content"][0]
        # Some servers tell the probability of what was written alone.
        tokens = [
            (token["token"], math.exp(token["logprob"])) for token in first.get("top_logprobs") or [first]
        ]
    else:
        tokens = [(word, 1.0) for word in (choice["message"]["content"] or "").split()[:1]]
    for token, share in tokens:
        letter = token.strip(" \t\n.,:)(*\"'").upper()
        if letter in shares:
            shares[letter] += share
    return list(shares.values())


def _written(choice: Mapping[str, Any]) -> str:
    """The first words of a choice, of its thoughts where it has said nothing yet."""
    message = choice.get("message") or {}
    return str(message.get("content") or message.get("reasoning_content") or message.get("reasoning") or "")


def _question(picture: str, caption: str, levels: Sequence[str]) -> dict[str, Any]:
    # The picture first: servers keep what they have read of it for its next caption.
    choices = "\n".join(f"{letter} {level}" for letter, level in zip(LETTERS, levels, strict=True))
    asked = (
        f"Caption: «{caption}»\nDoes the caption describe the picture?\n{choices}\nAnswer with one letter."
    )
    return {
        "temperature": 0,
        "max_tokens": 1,
        "seed": 0,
        "logprobs": True,
        "top_logprobs": 20,
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": picture}},
                    {"type": "text", "text": asked},
                ],
            }
        ],
    }


def _jpeg(item: ImageItem, edge: int) -> bytes:
    """As people see it, and small; in as good a quality as there is room for."""
    picture = upright(pixels.read_image(item))
    picture.thumbnail((edge, edge), Image.Resampling.LANCZOS)
    for quality in _QUALITIES:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=quality)
        if file.tell() <= _most_bytes(edge):
            return file.getvalue()
    raise AnnotatorError(
        f"image {item.external_id!r} does not fit {_most_bytes(edge)} bytes; set more 'pixels'"
    )


def _most_bytes(edge: int) -> int:
    return max(1 << 14, edge * edge // 4)


def _rows(name: str, parts: Sequence[bytes], most: int) -> dict[str, NDArray[Any]]:
    table = np.zeros((len(parts), most), np.uint8)
    for row, part in zip(table, parts, strict=True):
        row[: len(part)] = np.frombuffer(part, np.uint8)
    return {name: table, "length": np.array([len(part) for part in parts], np.int64)}


def _bytes_of(side: Encoded, name: str, row: int) -> bytes:
    return bytes(side.arrays[name][row, : int(side.arrays["length"][row])])


def _data_url(images: Encoded, row: int) -> str:
    return "data:image/jpeg;base64," + base64.b64encode(_bytes_of(images, "jpeg", row)).decode()


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return repr(flat if len(flat) <= _SHOWN else flat[:_SHOWN] + "…")


def _is_here(url: str) -> bool:
    host = httpx.URL(url).host
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def build(options: Options) -> ChatAnnotator:
    """The annotator of the setting ``chat``, the address of a server, or several, as far as "/v1".

    Further settings: ``model``, ``remote`` (whether pictures may leave this machine), ``key_env`` (the variable of the
    environment that holds a key), ``pixels`` (of a picture's longer side), ``requests`` (at a time), ``timeout``
    (seconds), ``extra`` (a table, more of each call's body), ``most_pairs`` (that may be asked for in all).

    Raises:
        AnnotatorError: another machine that is not allowed, or a key that would go there unencrypted or is not set.
    """
    name, setting = options.annotator, options.values["chat"]
    urls = tuple(setting) if isinstance(setting, list) else (setting,)
    if not urls or not all(isinstance(url, str) and _is_address(url) for url in urls):
        raise AnnotatorError(
            f"'chat' of annotator {name!r} is {setting!r}; it should be the address of a server, as "
            '"http://127.0.0.1:8000/v1", or a list of these'
        )
    away = [url for url in urls if not _is_here(url)]
    if away and not options.flag("remote", False):
        raise AnnotatorError(
            f"annotator {name!r} would send pictures and captions to {httpx.URL(away[0]).host!r}; if their licence "
            "allows that, write remote = true beside it"
        )
    key = ""
    if "key_env" in options.values:
        variable = options.text("key_env")
        key = os.environ.get(variable, "").strip()
        if not (key and key.isascii() and key.isprintable()):  # a client that refuses others would show them
            raise AnnotatorError(
                f"'key_env' of annotator {name!r} names {variable!r}, which is not set to a key; export it"
            )
        plain = [url for url in away if httpx.URL(url).scheme != "https"]
        if plain:
            raise AnnotatorError(
                f"annotator {name!r} would send a key unencrypted to {plain[0]!r}; use https"
            )
    model = ChatModel(
        tuple(url.rstrip("/") for url in urls),
        options.text("model"),
        key,
        options.number("timeout", 120.0),
        _extra(options),
    )
    edge = options.whole("pixels", 384, least=64)
    most = options.whole("most_pairs", 1) if "most_pairs" in options.values else None
    return ChatAnnotator(name, model, edge=edge, requests=options.whole("requests", 8), most_pairs=most)


def _extra(options: Options) -> Mapping[str, Any]:
    """The table ``extra``; AnnotatorError where it would ask something else."""
    extra = options.values.get("extra", {})
    if not isinstance(extra, Mapping) or {"model", "messages"} & set(extra):
        raise AnnotatorError(
            f"'extra' of annotator {options.annotator!r} is {extra!r}; it should be a table of further settings of a "
            "call, as { chat_template_kwargs = { enable_thinking = false } }, without model and messages"
        )
    return extra


def _is_address(url: str) -> bool:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        return False
    return parsed.scheme in ("http", "https") and bool(parsed.host)
