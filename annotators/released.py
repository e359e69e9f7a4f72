"""The five networks whose weights their authors released: what each is, what to download, where it lies.

The addresses are those that the authors' own pages give; mitl ships none of these files.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Released:
    """One network at full size and the files that it needs."""

    network: str
    what: str
    weights: str
    """Names of the released files and where they are."""
    also: tuple[str, ...]
    """What else is needed, a phrase each."""
    settings: tuple[str, ...]
    """Lines for ``[annotators.NAME]`` of mitl.toml."""

    required: tuple[str, ...] = ("weights",)
    """Settings without which none of its released files can be used."""

    @property
    def needs(self) -> str:
        """Everything to be downloaded, in one line."""
        return "; ".join((self.weights, *self.also))


RELEASED = {
    released.network: released
    for released in (
        Released(
            "pvse",
            "K embeddings an item, the best of K x K products (Song & Soleymani 2019)",
            "coco_pvse.pth (K = 2) or coco_pvse_k1.pth (K = 1), each a file of its own on Google Drive, or the tarball "
            "of all six models there; the README of github.com/yalesong/pvse links to them",
            (
                "coco_vocab.pkl (11,755 words), which data/prepare_coco_dataset.sh of that repository fetches and its "
                "README does not name; datasets/vocabs of github.com/naver-ai/pcme has a list of this name and size",
            ),
            ('weights = "coco_pvse.pth"', 'vocabulary = "coco_vocab.pkl"'),
            ("weights", "vocabulary"),
        ),
        Released(
            "vsrn",
            "image regions related on a graph, read by a GRU (Li et al. 2019)",
            "model_coco_1.pth.tar and model_coco_2.pth.tar in pretrain_model/coco of the archive on Google Drive that "
            "the README of github.com/KunpengLi1994/VSRN links to; published figures average both",
            (
                "vocab/coco_precomp_vocab.pkl of that repository (10,006 words)",
                "region features (N, 36, 2048): testall_ims.npy beside testall_ids.txt of the SCAN data "
                "(kuanghueilee/scan-features on Kaggle, or the Google Drive folder that VSRN's README names), or the "
                "tsv that a bottom-up-attention detector wrote",
            ),
            (
                'weights = ["model_coco_1.pth.tar", "model_coco_2.pth.tar"]',
                'vocabulary = "coco_precomp_vocab.pkl"',
                'features = "testall_ims.npy"',
            ),
            ("weights", "vocabulary", "features"),
        ),
        Released(
            "pcme",
            "a Gaussian an item, the probability that samples match (Chun et al. 2021)",
            "pcme_cutmix_coco.pth (ECCV Caption's annotator) or pcme_coco.pth from release v1.0.0 of "
            "github.com/naver-ai/pcme",
            (
                "datasets/vocabs/coco_vocab.pkl of that repository (11,755 words), if the checkpoint has no word2idx",
            ),
            ('weights = "pcme_cutmix_coco.pth"', 'vocabulary = "coco_vocab.pkl"'),
        ),
        Released(
            "vilt",
            "one transformer over words and patches, pair by pair (Kim et al. 2021)",
            "vilt_irtr_coco.ckpt from release 200k of github.com/dandelin/ViLT, or pytorch_model.bin or "
            "model.safetensors of dandelin/vilt-b32-finetuned-coco on the Hugging Face hub",
            ("vocab.txt of bert-base-uncased (30,522 word pieces)",),
            ('weights = "vilt_irtr_coco.ckpt"', 'wordpieces = "vocab.txt"'),
            ("weights", "wordpieces"),
        ),
        Released(
            "clip",
            "ViT-B/32 and a text transformer, by contrast (Radford et al. 2021)",
            "ViT-B-32.pt from the address in clip/clip.py of github.com/openai/CLIP (SHA-256 40d36571...50af), or "
            "the weights of openai/clip-vit-base-patch32 on the Hugging Face hub",
            ("clip/bpe_simple_vocab_16e6.txt.gz of github.com/openai/CLIP",),
            ('weights = "ViT-B-32.pt"', 'bpe = "bpe_simple_vocab_16e6.txt.gz"'),
        ),
    )
}
