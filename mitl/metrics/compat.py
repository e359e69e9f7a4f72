"""``eccv_caption.Metrics`` again, on the metrics of this package: a script changes its import and nothing else.

.. code-block:: python

    from mitl.metrics.compat import Metrics  # was: from eccv_caption import Metrics

The call, the methods, the keys and, on full rankings, the numbers are those of eccv_caption 0.1.0. Beside dicts of
lists it takes pairs of arrays ``(query_ids, items)``, (N,) and (N, depth), which are scored without being copied.

It differs where the package is quietly wrong or odd:

* A ranking shorter than K or R, or that ends before COCO 1K is decided, is an error that names the query. The package
  divides R-Precision by what was retrieved (a perfect list of 1 scores 1.0 whatever R is), and fails on mAP@R.
  ``Metrics(short="zero")`` counts the missing places as misses instead.
* ``eccv_rprecision`` alone gives ``eccv_rprecision``; the package gives nothing because it looks for
  ``eccv_rpresion``, which is understood too.
* ``pmrp`` stands under ``pmrp``, not under ``i2t`` and ``t2i`` beside the names of metrics; without its tables it is an
  error, not a warning and no number.
* ``eccv_recalls`` is given beside ``eccv_map_at_r``, and ``*_r1`` beside ``*_recalls`` whatever ``Ks`` are; any
  ``*_rK`` can be asked for by name. An unknown metric is an error.
* With one ``modality`` only the rankings of that direction are needed.
* The tables of positives cannot be edited in place; assign a new one or call ``set_*_gts``.
* ``verbose`` writes the numbers to stderr, in place of a progress bar that is not needed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from mitl.errors import DatasetError, MetricError
from mitl.metrics.official import SIDES, Side, score_folds_ranked, scored_by_name, split_folds
from mitl.metrics.positives import Positives, Short
from mitl.metrics.ranks import ArrayRankings, ListRankings, Rankings
from mitl.metrics.retrieval import Values, score_rankings
from mitl.metrics.table import MAP_AT_R, R_PRECISION, MetricRequest, usual_metrics

Retrieved = Mapping[int, Sequence[int]] | tuple[NDArray[Any], NDArray[Any]]
"""Item ids, best first: by query id, or as ``(query_ids, items)``."""
Table = Mapping[int, Sequence[int]]
Tables = Mapping[str, Table]
Score = dict[str, float]

_RECALLS = re.compile(r"(coco_1k|coco_5k|cxc|eccv)_(?:recalls|r(\d+))")
_BY_R = {"eccv_map_at_r": MAP_AT_R, "eccv_rprecision": R_PRECISION}
_ALIASES = {"eccv_rpresion": "eccv_rprecision"}
_SETS = ("coco_1k", "coco_5k", "cxc")
_DEFAULT = ("coco_1k_r1", "coco_5k_r1", "cxc_r1", "eccv_r1", "eccv_map_at_r")


class _Positives:
    """A table of positives that reads as a mapping and is turned into arrays once, when it is set."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, metrics: Metrics, owner: type) -> Tables:
        return metrics._tables[self._name]

    def __set__(self, metrics: Metrics, tables: Tables) -> None:
        metrics._set(self._name, tables)


class Metrics:
    """COCO 1K and 5K Recall@K, CxC Recall@K, ECCV Caption's Recall@K, R-Precision and mAP@R, and PMRP.

    Args:
        extra_file_dir: the folder with ``pm_image_to_caption.json`` and ``pm_caption_to_image.json``, for ``pmrp``.
        verbose: write the numbers of ``compute_all_metrics`` to stderr.
        short: what a ranking means that ends too early: an error, or ("zero") misses at the missing places.

    Raises:
        DatasetError: the package ``eccv_caption``, which carries the positives, is not installed
            (``pip install 'mitl[official]'``).
        MetricError: a file of ``extra_file_dir`` cannot be read.
    """

    coco_gts, cxc_gts, eccv_gts, pm_gts = _Positives(), _Positives(), _Positives(), _Positives()

    def __init__(
        self, extra_file_dir: str | Path | None = None, verbose: bool = False, *, short: Short = "raise"
    ) -> None:
        from mitl.datasets.official import coco_test_ids_file

        self._tables: dict[str, Tables] = {}
        self._arrays: dict[str, dict[Side, Positives]] = {}
        ids_file = coco_test_ids_file()
        self.coco_ids: NDArray[Any] = np.load(ids_file)
        for setter, stem in (
            (self.set_coco_gts, "original"),
            (self.set_cxc_gts, "cxc"),
            (self.set_eccv_gts, "eccv"),
        ):
            setter(*_two_files(ids_file.parent, stem))
        self.pm_gts = {}
        if extra_file_dir:
            self.set_pm_gts(*_two_files(Path(extra_file_dir), "pm"))
        self.verbose = verbose
        self._short: Short = short

    def set_i2t_retrieved_items(self, i2t_retrieved_items: Retrieved) -> None:
        """The rankings of captions for image queries that ``compute_all_metrics`` scores when called without any."""
        _rankings(i2t_retrieved_items, "i2t")
        self.i2t_retrived_items = i2t_retrieved_items

    def set_t2i_retrieved_items(self, t2i_retrieved_items: Retrieved) -> None:
        """The rankings of images for caption queries that ``compute_all_metrics`` scores when called without any."""
        _rankings(t2i_retrieved_items, "t2i")
        self.t2i_retrived_items = t2i_retrieved_items

    def set_coco_gts(self, coco_i2t_json_path: str | Path, coco_t2i_json_path: str | Path) -> None:
        """Read the original positives from JSON files."""
        self.coco_gts = _read(coco_i2t_json_path, coco_t2i_json_path)

    def set_cxc_gts(self, cxc_i2t_json_path: str | Path, cxc_t2i_json_path: str | Path) -> None:
        """Read CxC's positives from JSON files."""
        self.cxc_gts = _read(cxc_i2t_json_path, cxc_t2i_json_path)

    def set_eccv_gts(self, eccv_i2t_json_path: str | Path, eccv_t2i_json_path: str | Path) -> None:
        """Read ECCV Caption's positives, or those of a release of ``mitl``, from JSON files."""
        self.eccv_gts = _read(eccv_i2t_json_path, eccv_t2i_json_path)

    def set_pm_gts(self, pm_i2t_json_path: str | Path, pm_t2i_json_path: str | Path) -> None:
        """Read plausible matches from JSON files."""
        self.pm_gts = _read(pm_i2t_json_path, pm_t2i_json_path)

    def coco_1k_recalls(
        self, retrieved_items: Mapping[str, Retrieved], modality: str, K: int = 1
    ) -> Score | float:
        """Recall@K within each fifth of the test split, averaged; a bare number where ``modality`` is one direction.

        Raises:
            MetricError: as ``score_folds``.
        """
        sides = self._folds(retrieved_items, modality, (K,))
        score: Score = {side: means[f"R@{K}"] for side, means in sides}
        return score if modality == "all" else score[modality]

    def coco_5k_recalls(self, retrieved_items: Mapping[str, Retrieved], modality: str, K: int = 1) -> Score:
        """Recall@K on all 5,000 images and 25,000 captions; MetricError as ``score_queries``."""
        return self._recalls("coco_gts", retrieved_items, modality, K)

    def cxc_recalls(self, retrieved_items: Mapping[str, Retrieved], modality: str, K: int = 1) -> Score:
        """Recall@K with CxC's positives; MetricError as ``score_queries``."""
        return self._recalls("cxc_gts", retrieved_items, modality, K)

    def eccv_recalls(self, retrieved_items: Mapping[str, Retrieved], modality: str, K: int = 1) -> Score:
        """Recall@K with ECCV Caption's positives; MetricError as ``score_queries``."""
        return self._recalls("eccv_gts", retrieved_items, modality, K)

    def eccv_metrics(self, retrieved_items: Mapping[str, Retrieved], modality: str) -> dict[str, Score]:
        """``eccv_map_at_r``, ``eccv_rprecision`` and ``eccv_r1``; MetricError as ``score_queries``."""
        means = dict(self._means("eccv_gts", retrieved_items, modality, (1,), by_r=True))
        names = {**_BY_R, "eccv_r1": "R@1"}
        return {key: {side: of[name] for side, of in means.items()} for key, name in names.items()}

    def pmrp(self, retrieved_items: Mapping[str, Retrieved], modality: str) -> Score:
        """R-Precision with plausible matches; MetricError where none were read, or as ``score_queries``."""
        if not self.pm_gts:
            raise MetricError(
                "plausible matches are not at hand; give extra_file_dir the folder that holds pm_image_to_caption.json "
                "and pm_caption_to_image.json (github.com/naver-ai/eccv-caption says where they are)"
            )
        sides = self._means("pm_gts", retrieved_items, modality, (), by_r=True)
        return {side: means[R_PRECISION] for side, means in sides}

    def compute_all_metrics(
        self,
        i2t_retrieved_items: Retrieved | None = None,
        t2i_retrieved_items: Retrieved | None = None,
        target_metrics: Collection[str] = _DEFAULT,
        Ks: Sequence[int] = (1, 5, 10),
        verbose: bool | None = None,
    ) -> dict[str, Score]:
        """Every metric asked for, both directions: ``{metric: {"i2t": number, "t2i": number}}``.

        Args:
            i2t_retrieved_items, t2i_retrieved_items: rankings; those set before where both are left out.
            target_metrics: of ``coco_1k_r1``, ``coco_5k_r1``, ``cxc_r1``, ``eccv_r1``, the same with ``_recalls``
                (Recall@K for each of ``Ks``), ``eccv_rprecision``, ``eccv_map_at_r`` and ``pmrp``.
            verbose: from now on; see the class.

        Raises:
            MetricError: a direction is missing, a metric unknown, or as ``score_queries`` and ``score_folds``.
        """
        retrieved = self._both(i2t_retrieved_items, t2i_retrieved_items)
        if verbose is not None:
            self.verbose = verbose
        targets = {_ALIASES.get(target, target) for target in _targets(target_metrics)}
        metrics: dict[str, Score] = {}
        for name in _SETS:
            if ks := _ks(name, targets, Ks):
                sides = (
                    self._folds(retrieved, "all", ks)
                    if name == "coco_1k"
                    else self._means(f"{name.removesuffix('_5k')}_gts", retrieved, "all", ks)
                )
                metrics |= _by_metric(dict(sides), {f"{name}_r{k}": f"R@{k}" for k in ks})
        if "pmrp" in targets:
            metrics["pmrp"] = self.pmrp(retrieved, "all")
        names = {key: name for key, name in _BY_R.items() if key in targets}
        ks = _ks("eccv", targets, Ks)
        if names or ks:
            sides = self._means("eccv_gts", retrieved, "all", ks, by_r=bool(names))
            metrics |= _by_metric(dict(sides), names | {f"eccv_r{k}": f"R@{k}" for k in ks})
        if self.verbose:
            for key, score in metrics.items():
                print(f"{key:16}", *(f"{side} {value:.4f}" for side, value in score.items()), file=sys.stderr)
        return metrics

    def _both(self, i2t: Retrieved | None, t2i: Retrieved | None) -> dict[str, Retrieved]:
        if (i2t is None) != (t2i is None):
            lacking = "t2i_retrieved_items" if t2i is None else "i2t_retrieved_items"
            raise MetricError(f"{lacking} is missing; give both directions, or neither to score what was set")
        if i2t is not None and t2i is not None:
            self.set_i2t_retrieved_items(i2t)
            self.set_t2i_retrieved_items(t2i)
        for side in SIDES:
            if not hasattr(self, f"{side}_retrived_items"):
                raise MetricError(
                    f"no {side} rankings; pass {side}_retrieved_items, or set_{side}_retrieved_items first"
                )
        return {"i2t": self.i2t_retrived_items, "t2i": self.t2i_retrived_items}

    def _recalls(self, name: str, retrieved: Mapping[str, Retrieved], modality: str, k: int) -> Score:
        return {side: means[f"R@{k}"] for side, means in self._means(name, retrieved, modality, (k,))}

    def _means(
        self,
        name: str,
        retrieved: Mapping[str, Retrieved],
        modality: str,
        ks: Sequence[int],
        *,
        by_r: bool = False,
    ) -> Iterable[tuple[Side, dict[str, float]]]:
        scoring = MetricRequest.of(ks, by_r, short=self._short)
        for side in _sides(retrieved, modality):
            positives = self._arrays[name][side]
            score = partial(score_rankings, positives=positives, scoring=scoring)
            yield side, self._scored(score, retrieved[side], side, positives)

    def _folds(
        self, retrieved: Mapping[str, Retrieved], modality: str, ks: Sequence[int]
    ) -> Iterable[tuple[Side, dict[str, float]]]:
        sides, tables = _sides(retrieved, modality), self._arrays["coco_gts"]
        asked = usual_metrics(ks, by_r=False, median_rank=False)
        folds = dict(zip(SIDES, split_folds(self.coco_ids, tables["t2i"], tables["i2t"]), strict=True))
        for side in sides:
            score = partial(score_folds_ranked, folds=folds[side], asked=asked, short=self._short)
            yield side, self._scored(score, retrieved[side], side, tables[side])

    def _scored(
        self, score: Callable[[Rankings], Values], retrieved: Retrieved, side: Side, positives: Positives
    ) -> dict[str, float]:
        gallery = self._arrays["coco_gts"]["t2i" if side == "i2t" else "i2t"].query_ids
        values = scored_by_name(score, _rankings(retrieved, side), side, positives, gallery)
        return {scores.metric: scores.estimate for scores in values}

    def _set(self, name: str, tables: Tables) -> None:
        if tables and set(tables) != set(SIDES):
            raise MetricError(f"{name} needs the tables i2t and t2i, but has {', '.join(map(str, tables))}")
        self._tables[name] = MappingProxyType(
            {
                side: MappingProxyType({query: tuple(items) for query, items in table.items()})
                for side, table in tables.items()
            }
        )
        self._arrays[name] = {
            cast(Side, side): Positives.from_mapping(table) for side, table in self._tables[name].items()
        }


def _two_files(folder: Path, stem: str) -> tuple[Path, Path]:
    return folder / f"{stem}_image_to_caption.json", folder / f"{stem}_caption_to_image.json"


def _read(i2t: str | Path, t2i: str | Path) -> Tables:
    from mitl.datasets.official import read_positives

    try:
        return {"i2t": read_positives(Path(i2t)), "t2i": read_positives(Path(t2i))}
    except DatasetError as error:
        raise MetricError(str(error)) from error


def _rankings(retrieved: Retrieved, side: str) -> Rankings:
    try:
        if isinstance(retrieved, Mapping):
            return ListRankings(retrieved)
        if isinstance(retrieved, tuple) and len(retrieved) == 2:
            return ArrayRankings(np.asarray(retrieved[0]), np.asarray(retrieved[1]))
    except MetricError as error:
        raise MetricError(f"{side}: {error}") from error
    raise MetricError(
        f"{side}: rankings are a {type(retrieved).__name__}; give a dict of lists by query id, "
        "or a pair of arrays (query_ids, items)"
    )


def _sides(retrieved: Mapping[str, Retrieved], modality: str) -> tuple[Side, ...]:
    if modality not in (*SIDES, "all"):
        raise MetricError(f"no modality {modality!r}; known: i2t, t2i, all")
    if not isinstance(retrieved, Mapping):
        raise MetricError(f"retrieved_items is a {type(retrieved).__name__}; give {{'i2t': …, 't2i': …}}")
    sides = SIDES if modality == "all" else (cast(Side, modality),)
    for side in sides:
        if side not in retrieved:
            raise MetricError(
                f"retrieved_items has no {side!r}; it holds: {', '.join(map(str, retrieved)) or 'nothing'}"
            )
    return sides


def _targets(target_metrics: Collection[str]) -> list[str]:
    targets = [target_metrics] if isinstance(target_metrics, str) else list(target_metrics)
    for target in targets:
        if target not in ("pmrp", *_BY_R, *_ALIASES) and not _RECALLS.fullmatch(target):
            raise MetricError(
                f"no metric called {target!r}; known: coco_1k_r1, coco_5k_r1, cxc_r1, eccv_r1, coco_1k_recalls, "
                "coco_5k_recalls, cxc_recalls, eccv_recalls, eccv_map_at_r, eccv_rprecision, pmrp"
            )
    return targets


def _ks(name: str, targets: Iterable[str], Ks: Sequence[int]) -> list[int]:
    """The K at which a set's recall was asked for, those of ``Ks`` first."""
    targets = set(targets)
    ks = list(Ks) if f"{name}_recalls" in targets else []
    matches = (_RECALLS.fullmatch(target) for target in targets)
    named = {int(match[2]) for match in matches if match and match[1] == name and match[2]}
    return [*dict.fromkeys(ks), *sorted(named - set(ks))]


def _by_metric(means: Mapping[Side, Mapping[str, float]], names: Mapping[str, str]) -> dict[str, Score]:
    return {key: {side: of[name] for side, of in means.items()} for key, name in names.items()}
