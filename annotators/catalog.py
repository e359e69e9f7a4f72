"""Which annotators there are: what each is, what to download, which settings it reads, what was published of it.

A network is a module ``annotators.NAME`` with ``build`` and ``examine``, and an entry of ``NETWORKS``. Neither torch
nor numpy is imported here. The addresses are those that the authors' own pages give; mitl ships none of these files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from annotators.sizes import ClipConfig, PcmeConfig, PvseConfig, ViltConfig, VsrnConfig
from mitl.records import Direction
from mitl.records.forms import IMAGES, SET_FORMS, TEXTS

KS = (1, 5, 10)

Recalls = tuple[float | None, float | None, float | None]
"""R@1, R@5 and R@10 in percent; None where nothing was published."""
ByDirection = Mapping[Direction, Recalls]

_I2T, _T2I = Direction.I2T, Direction.T2I
_TABLES = "ECCV Caption, Tables D.2 and D.3"
RUNNING = ("device", "threads", "batch")
"""Settings of every network that runs here."""


@dataclass(frozen=True, slots=True)
class Published:
    """Recall on COCO's test split that was published for one checkpoint (for VSRN: for two, averaged).

    ``5K`` ranks all 5,000 images and 25,000 captions, ``1K`` is the mean over five consecutive blocks of 1,000 images
    in the order of ``coco_test_ids``.
    """

    row: str
    network: str
    what: str
    tolerance: float
    """In points of percent: how far a right set-up may be off."""
    five_k: ByDirection
    source: str
    one_k: ByDirection = field(default_factory=dict)
    one_k_source: str = ""
    sizes: Mapping[str, object] = field(default_factory=dict)
    """What tells its weights from those of other rows."""
    checkpoints: int | None = None
    """How many were averaged."""
    file: str = ""
    """How the file's name begins, where sizes do not tell it from others."""

    def protocols(self) -> dict[str, ByDirection]:
        """The figures by protocol, those that there are."""
        by_protocol = {"5K": self.five_k, "1K": self.one_k}
        return {name: figures for name, figures in by_protocol.items() if figures}

    def recalls(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """Protocol → direction → R@K → percent."""
        return {
            protocol: {
                direction.value: {f"R@{k}": value for k, value in zip(KS, values, strict=True)}
                for direction, values in by_direction.items()
            }
            for protocol, by_direction in self.protocols().items()
        }


@dataclass(frozen=True, slots=True)
class Network:
    """One of the papers' networks: its released files, and its small twin for pictures of ``scenes``."""

    network: str
    what: str
    weights: str
    """Names of the released files and where they are."""
    also: tuple[str, ...]
    """What else is needed, a phrase each."""
    settings: tuple[str, ...]
    """Lines for ``[annotators.NAME]`` of mitl.toml."""
    mini: str
    """What its twin is."""
    config: type[PvseConfig | VsrnConfig | PcmeConfig | ViltConfig | ClipConfig]
    keys: tuple[str, ...]
    """The settings that it reads, but for ``device``, ``threads`` and ``batch``."""
    as_released: tuple[str, ...]
    """Sizes that an examination reads off a file and that must be the released ones for its figures to hold."""
    published: tuple[Published, ...]
    required: tuple[str, ...] = ("weights",)
    """Settings without which none of its released files can be used."""

    @property
    def needs(self) -> str:
        """Everything to be downloaded, in one line."""
        return "; ".join((self.weights, *self.also))


NETWORKS = {
    entry.network: entry
    for entry in (
        Network(
            network="pvse",
            what="K embeddings an item, the best of K x K products (Song & Soleymani 2019)",
            weights="coco_pvse.pth (K = 2) or coco_pvse_k1.pth (K = 1), each a file of its own on Google Drive, or the "
            "tarball of all six models there; the README of github.com/yalesong/pvse links to them",
            also=(
                "coco_vocab.pkl (11,755 words), which data/prepare_coco_dataset.sh of that repository fetches and its "
                "README does not name; datasets/vocabs of github.com/naver-ai/pcme has a list of this name and size",
            ),
            settings=('weights = "coco_pvse.pth"', 'vocabulary = "coco_vocab.pkl"'),
            required=("weights", "vocabulary"),
            mini="two embeddings an item by attention pooling, the best of their four products",
            config=PvseConfig,
            keys=("weights", "vocabulary", "pooling"),
            as_released=("words", "embed"),
            published=(
                Published(
                    "pvse-k1",
                    "pvse",
                    "PVSE, K = 1 (coco_pvse_k1.pth)",
                    0.1,
                    {_I2T: (41.72, 72.96, 82.90), _T2I: (30.64, 61.37, 73.62)},
                    "README of yalesong/pvse",
                    {_I2T: (66.72, 91.00, 96.22), _T2I: (53.49, 85.14, 92.70)},
                    "README of yalesong/pvse",
                    sizes={"k": 1},
                ),
                Published(
                    "pvse-k2",
                    "pvse",
                    "PVSE, K = 2 (coco_pvse.pth)",
                    0.1,
                    {_I2T: (45.18, 74.28, 84.46), _T2I: (32.42, 62.97, 74.96)},
                    "README of yalesong/pvse",
                    {_I2T: (69.24, 91.62, 96.64), _T2I: (55.21, 86.50, 93.73)},
                    "README of yalesong/pvse",
                    sizes={"k": 2},
                ),
            ),
        ),
        Network(
            network="vsrn",
            what="image regions related on a graph, read by a GRU (Li et al. 2019)",
            weights="model_coco_1.pth.tar and model_coco_2.pth.tar in pretrain_model/coco of the archive on Google "
            "Drive that the README of github.com/KunpengLi1994/VSRN links to; published figures average both",
            also=(
                "vocab/coco_precomp_vocab.pkl of that repository (10,006 words)",
                "region features (N, 36, 2048): testall_ims.npy beside testall_ids.txt of the SCAN data "
                "(kuanghueilee/scan-features on Kaggle, or the Google Drive folder that VSRN's README names), or the "
                "tsv that a bottom-up-attention detector wrote",
            ),
            settings=(
                'weights = ["model_coco_1.pth.tar", "model_coco_2.pth.tar"]',
                'vocabulary = "coco_precomp_vocab.pkl"',
                'features = "testall_ims.npy"',
            ),
            required=("weights", "vocabulary", "features"),
            mini="grid regions related to each other on a graph and read by a recurrent network",
            config=VsrnConfig,
            keys=("weights", "vocabulary", "features", "feature_ids"),
            as_released=("words", "width", "flickr"),
            published=(
                Published(
                    "vsrn",
                    "vsrn",
                    "VSRN, similarities of two checkpoints averaged (model_coco_1.pth.tar, model_coco_2.pth.tar)",
                    0.3,
                    {_I2T: (53.02, 81.12, 89.42), _T2I: (40.46, 70.58, 81.10)},
                    _TABLES,
                    {_I2T: (76.20, 94.76, 97.86), _T2I: (62.77, 89.71, 94.62)},
                    _TABLES,
                    checkpoints=2,
                ),
            ),
        ),
        Network(
            network="pcme",
            what="a Gaussian an item, the probability that samples match (Chun et al. 2021)",
            weights="pcme_cutmix_coco.pth (ECCV Caption's annotator) or pcme_coco.pth from release v1.0.0 of "
            "github.com/naver-ai/pcme",
            also=(
                "datasets/vocabs/coco_vocab.pkl of that repository (11,755 words), if the checkpoint has no word2idx",
            ),
            settings=('weights = "pcme_cutmix_coco.pth"', 'vocabulary = "coco_vocab.pkl"'),
            mini="a Gaussian an item, the probability that two of them match",
            config=PcmeConfig,
            keys=(
                "weights",
                "vocabulary",
                "similarity",
                "samples",
                "seed",
                "search",
                "shortlist",
                "shift",
                "negative_scale",
            ),
            as_released=("words", "embed"),
            published=(
                Published(
                    "pcme",
                    "pcme",
                    "PCME (pcme_coco.pth)",
                    0.5,
                    {_I2T: (44.26, 73.52, 83.44), _T2I: (31.80, 62.17, 74.59)},
                    _TABLES,
                    {_I2T: (68.8, None, None), _T2I: (54.6, None, None)},
                    "README of naver-ai/pcme",
                    file="pcme_coco",
                ),
                Published(
                    "pcme-cutmix",
                    "pcme",
                    "PCME on a backbone trained with CutMix, ECCV Caption's annotator (pcme_cutmix_coco.pth)",
                    0.5,
                    {_I2T: (45.04, 75.12, 84.66), _T2I: (33.97, 63.77, 75.85)},
                    _TABLES,
                    {_I2T: (68.3, None, None), _T2I: (56.7, None, None)},
                    "README of naver-ai/pcme",
                ),
            ),
        ),
        Network(
            network="vilt",
            what="one transformer over words and patches, pair by pair (Kim et al. 2021)",
            weights="vilt_irtr_coco.ckpt from release 200k of github.com/dandelin/ViLT, or pytorch_model.bin or "
            "model.safetensors of dandelin/vilt-b32-finetuned-coco on the Hugging Face hub",
            also=("vocab.txt of bert-base-uncased (30,522 word pieces)",),
            settings=('weights = "vilt_irtr_coco.ckpt"', 'wordpieces = "vocab.txt"'),
            required=("weights", "wordpieces"),
            mini="one transformer over patches and words, a score for each pair",
            config=ViltConfig,
            keys=("weights", "wordpieces", "precision"),
            as_released=("hidden_size", "num_hidden_layers", "image_size", "vocab_size"),
            published=(
                Published(
                    "vilt",
                    "vilt",
                    "ViLT, tuned for retrieval on COCO (vilt_irtr_coco.ckpt)",
                    0.3,
                    {_I2T: (61.62, 86.32, 92.70), _T2I: (42.99, 72.84, 83.07)},
                    "EVAL.md of dandelin/ViLT",
                ),
            ),
        ),
        Network(
            network="clip",
            what="ViT-B/32 and a text transformer, by contrast (Radford et al. 2021)",
            weights="ViT-B-32.pt from the address in clip/clip.py of github.com/openai/CLIP (SHA-256 40d36571...50af), "
            "or the weights of openai/clip-vit-base-patch32 on the Hugging Face hub",
            also=("clip/bpe_simple_vocab_16e6.txt.gz of github.com/openai/CLIP",),
            settings=('weights = "ViT-B-32.pt"', 'bpe = "bpe_simple_vocab_16e6.txt.gz"'),
            mini="patch and text transformers trained by contrast",
            config=ClipConfig,
            keys=("weights", "bpe", "precision", "truncate", "activation"),
            as_released=("vision_width", "patch_size", "image_size", "vision_layers"),
            published=(
                Published(
                    "clip",
                    "clip",
                    "CLIP ViT-B/32 (ViT-B-32.pt)",
                    0.1,
                    {_I2T: (50.12, 75.00, 83.52), _T2I: (30.44, 55.94, 66.87)},
                    "retrieval results of mlfoundations/open_clip, ViT-B-32 openai",
                ),
            ),
        ),
    )
}
"""By the name that stands in mitl.toml."""

MINIS = {f"{name}-mini": entry for name, entry in NETWORKS.items()}
"""The same at small sizes, with weights that come with the package."""

PUBLISHED = {row.row: row for entry in NETWORKS.values() for row in entry.published}
"""By the name that ``mitl annotators verify --published`` takes."""


def default_row(
    network: str,
    read: Mapping[str, object] | None = None,
    *,
    checkpoints: int | None = None,
    file_name: str = "",
) -> Published | None:
    """What was published for a checkpoint of this network; None where nothing was.

    Args:
        network: pvse, vsrn, pcme, vilt or clip.
        read: the settings of its examination; what is not in it is taken to be as released.
        checkpoints: how many are averaged; not known where it is None.
        file_name: of the weights; tells PCME's two released files apart.
    """
    entry = NETWORKS.get(network)
    if entry is None:
        return None
    released = entry.config()
    for row in entry.published:
        sizes = {**{name: getattr(released, name) for name in entry.as_released}, **row.sizes}
        stated = {name: (read or {}).get(name, getattr(released, name)) for name in sizes}
        averaged = row.checkpoints in (None, checkpoints) or checkpoints is None
        if stated == sizes and averaged and file_name.startswith(row.file):
            return row
    return None


TEXT_MODELS = ("tfidf", "lsa", "minilm")
PIVOT_FORM = f"pivot-<captioner>-<{'|'.join(TEXT_MODELS)}>"


_ANY = "<any name>"


@dataclass(frozen=True, slots=True)
class AnnotatorForm:
    """A kind of annotator that a setting, or the form of its name, makes of files."""

    builder: str
    what: str
    more: str
    """What the reference adds to that."""
    needs: str
    keys: tuple[str, ...]
    """All settings that it reads."""
    settings: tuple[str, ...]
    """The same for the reference."""
    name: str = _ANY
    """What such an annotator is called."""
    extra: str = ""
    """The extra of the package that it needs."""


BEGINNERS = {"de-t2t": "t2t", "de-i2t": "i2t", "de-multitask": "t2t+i2t"}
"""Names by which towers begin to learn, and for what: they have no weights until they have learnt."""
BEGUN = {
    "t2t": "captions of one picture, compared by a dual encoder (Parekh et al. 2021)",
    "i2t": "pictures and captions, compared by a dual encoder (Parekh et al. 2021)",
    "t2t+i2t": "both, by a dual encoder with one text tower (Parekh et al. 2021)",
}
"""By what they begin for, what such towers are."""

BM25, MINILM, SIGNAL = OWN = "bm25", "minilm", "signal"
"""Each both the setting and the name of an annotator that needs neither settings nor files."""

FORMS = {
    "text_model": AnnotatorForm(
        "annotators.pivot:build",
        "machine captions stand for the images",
        " and are compared with the captions",
        "captions = PATH; mitl[pivot]",
        ("captions", "captioner", "text_model", "device", "threads"),
        (
            "`captions` (path, needed): Parquet with `image_id` and a column per captioner, or JSON of one captioner",
            "`captioner` and `text_model`, where the name does not tell them",
            "`device` and `threads` (minilm)",
        ),
        PIVOT_FORM,
        "pivot",
    ),
    "transformers": AnnotatorForm(
        "annotators.families:build",
        "a dual encoder of transformers (CLIP, SigLIP, ALIGN, ...)",
        "; similarity is the cosine",
        "transformers = HUB NAME or FOLDER; mitl[torch]",
        ("transformers", "revision", "truncate", *RUNNING),
        (
            "`transformers` (folder or hub name)",
            "`revision` (on the hub)",
            "`truncate` (true, false; false)",
            "`device`, `threads`, `batch`",
        ),
        extra="torch",
    ),
    "towers": AnnotatorForm(
        "annotators.towers:build",
        "a dual encoder as in Crisscrossed Captions, trained here",
        ": a small text tower, and an image tower unless it compares texts alone; similarity is the cosine",
        "towers = PATH; mitl[torch,pivot,backbone]",
        ("towers", "captions", "captioner", *RUNNING),
        (
            "`towers` (path of the weights)",
            "`captions` and `captioner` (caption), where it compares texts alone",
            "`device`, `threads`, `batch`",
        ),
        extra="torch",
    ),
    "embeddings": AnnotatorForm(
        "annotators.precomputed:build_embeddings",
        "embeddings made elsewhere",
        "; similarity is the inner product, of K vectors an item the best one",
        "embeddings = {images = PATH, captions = PATH}",
        ("embeddings", "similarity"),
        (
            "`embeddings = {images = PATH, captions = PATH}`, or the words of the data set (`documents`, `sounds`, "
            "`videos`; `queries`): "
            ".npz with `ids` and `embedding` (N, D) or (N, K, D), Parquet with `id` and `embedding`, or .npy beside "
            "`NAME.ids.npy` or `NAME.ids.txt`; `image_ids` and "
            "`caption_ids` (`document_ids`, `query_ids`) in the same table name the ids of .npy files elsewhere",
            "`similarity` (dot, cosine; dot)",
        ),
    ),
    "rankings": AnnotatorForm(
        "annotators.precomputed:build_rankings",
        "rankings made elsewhere",
        "",
        "rankings = {i2t = PATH, t2i = PATH}",
        ("rankings",),
        (
            "`rankings = {i2t = PATH, t2i = PATH}`, or the data set's own directions, or a folder: "
            "Parquet with `query_id`, `rank` (from 1), `item_id`, "
            "`similarity`",
        ),
    ),
    "chat": AnnotatorForm(
        "annotators.chat:build",
        "a vision-language model that judges pairs, behind a server of the chat completions API",
        ": the expected level on people's scale, from the probabilities of one letter",
        "chat = URL, model = NAME",
        ("chat", "model", "remote", "key_env", "pixels", "requests", "timeout", "extra", "most_pairs"),
        (
            '`chat` (address of a server, as `"http://127.0.0.1:8000/v1"`, or a list of these) and `model`',
            "`remote` (true, false; false): whether pictures and captions may leave this machine",
            "`key_env`: the environment variable that holds a key",
            "`pixels` of a picture's longer side (384), `requests` at a time (8), `timeout` in seconds (120)",
            "`extra` (table): more of each call's body; `most_pairs`: how many pairs may be paid for",
            "`shortlist` (30) and the other settings of a scope, as for `vilt`",
        ),
    ),
    BM25: AnnotatorForm(
        "annotators.bm25:build",
        "words in common, for data sets with texts on both sides",
        "; no weights, and no settings needed (Robertson and Zaragoza 2009)",
        "mitl[texts]",
        (BM25, "k1", "b", "stopwords"),
        (
            "`bm25` (lucene, robertson, atire; lucene), under another name than bm25",
            "`k1` (1.5) and `b` (0.75)",
            "`stopwords` (none, en, de, fr, es, pt, it, nl, ru, sv, no, zh, tr; none)",
        ),
        BM25,
        "texts",
    ),
    MINILM: AnnotatorForm(
        "annotators.sentences:build",
        "a sentence encoder, for data sets with texts on both sides",
        ": all-MiniLM-L6-v2, whose weights come with the extra; similarity is the cosine",
        "mitl[pivot]",
        (MINILM, "device", "threads"),
        ("`minilm = true`, under another name than minilm", "`device`, `threads`"),
        MINILM,
        "pivot",
    ),
    SIGNAL: AnnotatorForm(
        "annotators.signal:build",
        "signal features of sounds, videos or pictures, foretold from the data set's own texts, for rehearsals",
        "; no weights: kernel ridge regression, each item's own texts left out (Saunders et al. 1998)",
        "mitl[media] for sounds and videos",
        (SIGNAL, "ridge"),
        ("`signal = true`, under another name than signal", "`ridge` (1.0)"),
        SIGNAL,
        "media",
    ),
}
"""By the setting that makes such an annotator of any name; a pivot may be made by its name too."""


def rehearsal(sides: tuple[str, str]) -> tuple[str, ...]:
    """Annotators of data sets of this form that need no files: their proposals may be poor, and every step works."""
    return {IMAGES.sides: ("clip-mini", "vsrn-mini"), TEXTS.sides: (BM25,)}.get(sides, (SIGNAL,))


def world_annotators(sides: tuple[str, str]) -> tuple[str, ...]:
    """Those that a generated world of this form begins with."""
    return {IMAGES.sides: tuple(MINIS), TEXTS.sides: (BM25, MINILM)}.get(sides, (SIGNAL,))


def embedded_sides(table: Mapping[str, object]) -> tuple[str, str]:
    """What the setting ``embeddings`` calls both sides: the words of the form of which it names most."""
    names = {form: tuple(noun.replace(" ", "_") for noun in form.nouns) for form in SET_FORMS.values()}
    left, right = max(names.values(), key=lambda both: len(set(both) & set(table)))
    return left, right


def embedded_ids(nouns: tuple[str, str]) -> tuple[str, str]:
    """What the same setting calls the ids of .npy files on both sides."""
    left, right = next(form.sides for form in SET_FORMS.values() if form.nouns == nouns)
    return f"{left}_ids", f"{right}_ids"


def annotator_forms() -> dict[str, tuple[str, tuple[str, ...]]]:
    """For the reference: how annotators are asked for → what they are, and their settings."""

    def readers(key: str) -> str:
        return ", ".join(name for name, entry in NETWORKS.items() if key in entry.keys)

    minis, networks = (", ".join(f"`{name}`" for name in names) for names in (MINIS, NETWORKS))
    forms = {
        minis: (
            "small trained networks for pictures of `scenes`",
            (
                "`weights` (path; the ones that come with mitl)",
                "`device` (auto, cpu, cuda; auto)",
                "`threads` (whole number)",
            ),
        ),
        f"{networks}, or any name by `network`": (
            "the papers' networks at full size; [annotators.md](annotators.md) says what each needs",
            (
                "`network` (one of the five, where the name is another)",
                "`weights` (path, needed; of vsrn a list of two, too)",
                f"`vocabulary` (path; {readers('vocabulary')})",
                f"`features`, `feature_ids` (paths; {readers('features')})",
                f"`wordpieces` (path; {readers('wordpieces')})",
                f"`bpe` (path; {readers('bpe')})",
                "`scope` (exhaustive, shortlist), `shortlist`, `shortlist_from`, `shortlist_recall`, `audit_queries`, "
                "`audit_items` (vilt)",
                "`device`, `threads`, `batch`, and the network's own",
            ),
        ),
    }
    for key, form in FORMS.items():
        title = f"any name, by `{key}`" if form.name == _ANY else f"`{form.name}`"
        title += ", or any name by that setting" if key in OWN else ""
        forms[title] = (form.what + form.more, form.settings)
    return forms
