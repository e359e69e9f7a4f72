"""What a paper cites for what a project did, as BibTeX.

Only what is certain is stated: page numbers stand where a paper's own list of references shows them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reference:
    """One entry; the fields are LaTeX already."""

    kind: str
    fields: Mapping[str, str]


def _article(authors: str, title: str, year: int, **more: str) -> Reference:
    return Reference("article", {"author": authors, "title": title, **more, "year": str(year)})


def _in(booktitle: str, authors: str, title: str, year: int, **more: str) -> Reference:
    fields = {"author": authors, "title": title, "booktitle": booktitle, **more, "year": str(year)}
    return Reference("inproceedings", fields)


_ECCV = "European Conference on Computer Vision (ECCV)"
_ICCV = "IEEE/CVF International Conference on Computer Vision (ICCV)"
_CVPR = "IEEE/CVF Conference on Computer Vision and Pattern Recognition (CVPR)"
_ICML = "International Conference on Machine Learning (ICML)"

REFERENCES: Mapping[str, Reference] = {
    "lin2014coco": _in(
        _ECCV,
        r"Lin, Tsung-Yi and Maire, Michael and Belongie, Serge and Hays, James and Perona, Pietro and Ramanan, Deva "
        r"and Doll{\'a}r, Piotr and Zitnick, C. Lawrence",
        "Microsoft {COCO}: Common Objects in Context",
        2014,
    ),
    "chen2015captions": _article(
        r"Chen, Xinlei and Fang, Hao and Lin, Tsung-Yi and Vedantam, Ramakrishna and Gupta, Saurabh and "
        r"Doll{\'a}r, Piotr and Zitnick, C. Lawrence",
        "Microsoft {COCO} Captions: Data Collection and Evaluation Server",
        2015,
        journal="arXiv preprint arXiv:1504.00325",
    ),
    "karpathy2015splits": _in(
        _CVPR,
        "Karpathy, Andrej and Fei-Fei, Li",
        "Deep Visual-Semantic Alignments for Generating Image Descriptions",
        2015,
        pages="3128--3137",
    ),
    "young2014flickr30k": _article(
        "Young, Peter and Lai, Alice and Hodosh, Micah and Hockenmaier, Julia",
        "From Image Descriptions to Visual Denotations: New Similarity Metrics for Semantic Inference over Event "
        "Descriptions",
        2014,
        journal="Transactions of the Association for Computational Linguistics",
        volume="2",
        pages="67--78",
    ),
    "chun2022eccv": _article(
        "Chun, Sanghyuk and Kim, Wonjae and Park, Song and Chang, Minsuk and Oh, Seong Joon",
        "{ECCV} Caption: Correcting False Negatives by Collecting Machine-and-Human-verified Image-Caption "
        "Associations for {MS-COCO}",
        2022,
        journal="arXiv preprint arXiv:2204.03359",
    ),
    "parekh2021cxc": _in(
        "Conference of the European Chapter of the Association for Computational Linguistics (EACL)",
        "Parekh, Zarana and Baldridge, Jason and Cer, Daniel and Waters, Austin and Yang, Yinfei",
        "Crisscrossed Captions: Extended Intramodal and Intermodal Semantic Similarity Judgments for {MS-COCO}",
        2021,
    ),
    "song2019pvse": _in(
        _CVPR,
        "Song, Yale and Soleymani, Mohammad",
        "Polysemous Visual-Semantic Embedding for Cross-Modal Retrieval",
        2019,
        pages="1979--1988",
    ),
    "li2019vsrn": _in(
        _ICCV,
        "Li, Kunpeng and Zhang, Yulun and Li, Kai and Li, Yuanyuan and Fu, Yun",
        "Visual Semantic Reasoning for Image-Text Matching",
        2019,
        pages="4654--4662",
    ),
    "chun2021pcme": _in(
        _CVPR,
        "Chun, Sanghyuk and Oh, Seong Joon and Rezende, Rafael Sampaio de and Kalantidis, Yannis and Larlus, Diane",
        "Probabilistic Embeddings for Cross-Modal Retrieval",
        2021,
    ),
    "kim2021vilt": _in(
        _ICML,
        "Kim, Wonjae and Son, Bokyung and Kim, Ildoo",
        "{ViLT}: Vision-and-Language Transformer without Convolution or Region Supervision",
        2021,
    ),
    "radford2021clip": _in(
        _ICML,
        "Radford, Alec and Kim, Jong Wook and Hallacy, Chris and Ramesh, Aditya and Goh, Gabriel and Agarwal, Sandhini "
        "and Sastry, Girish and Askell, Amanda and Mishkin, Pamela and Clark, Jack and Krueger, Gretchen and "
        "Sutskever, Ilya",
        "Learning Transferable Visual Models from Natural Language Supervision",
        2021,
        pages="8748--8763",
        volume="139",
        series="Proceedings of Machine Learning Research",
    ),
    "krippendorff2011alpha": Reference(
        "techreport",
        {
            "author": "Krippendorff, Klaus",
            "title": "Computing {Krippendorff's} Alpha-Reliability",
            "institution": "University of Pennsylvania",
            "year": "2011",
        },
    ),
    "dawid1979em": _article(
        "Dawid, A. P. and Skene, A. M.",
        "Maximum Likelihood Estimation of Observer Error-Rates Using the {EM} Algorithm",
        1979,
        journal="Journal of the Royal Statistical Society. Series C (Applied Statistics)",
    ),
    "chao1987": _article(
        "Chao, Anne",
        "Estimating the Population Size for Capture-Recapture Data with Unequal Catchability",
        1987,
        journal="Biometrics",
        volume="43",
    ),
    "clopper1934": _article(
        "Clopper, C. J. and Pearson, E. S.",
        "The Use of Confidence or Fiducial Limits Illustrated in the Case of the Binomial",
        1934,
        journal="Biometrika",
    ),
    "hoeffding1956": _article(
        "Hoeffding, Wassily",
        "On the Distribution of the Number of Successes in Independent Trials",
        1956,
        journal="The Annals of Mathematical Statistics",
    ),
    "waudbysmith2020": _in(
        "Advances in Neural Information Processing Systems (NeurIPS)",
        "Waudby-Smith, Ian and Ramdas, Aaditya",
        "Confidence Sequences for Sampling without Replacement",
        2020,
    ),
    "candes2025labels": _article(
        r"Cand{\`e}s, Emmanuel J. and Ilyas, Andrew and Zrnic, Tijana",
        "Probably Approximately Correct Labels",
        2025,
        journal="arXiv preprint arXiv:2506.10908",
    ),
    "musgrave2020": _in(
        _ECCV, "Musgrave, Kevin and Belongie, Serge and Lim, Ser-Nam", "A Metric Learning Reality Check", 2020
    ),
    "efron1993": Reference(
        "book",
        {
            "author": "Efron, Bradley and Tibshirani, Robert J.",
            "title": "An Introduction to the Bootstrap",
            "publisher": "Chapman \\& Hall",
            "year": "1993",
        },
    ),
    "bradley1952": _article(
        "Bradley, Ralph Allan and Terry, Milton E.",
        "Rank Analysis of Incomplete Block Designs: {I}. The Method of Paired Comparisons",
        1952,
        journal="Biometrika",
        volume="39",
        number="3/4",
        pages="324--345",
    ),
}
"""Key → entry."""

OF_DATASETS = {
    "coco": ("lin2014coco", "chen2015captions", "karpathy2015splits"),
    "flickr30k": ("young2014flickr30k", "karpathy2015splits"),
}
"""Kind of data set → what describes it and its split."""
OF_NETWORKS = {
    "pvse": "song2019pvse",
    "vsrn": "li2019vsrn",
    "pcme": "chun2021pcme",
    "vilt": "kim2021vilt",
    "clip": "radford2021clip",
}
"""Network → what describes it."""

NAMES_OF_NETWORKS = {"pvse": "PVSE", "vsrn": "VSRN", "pcme": "PCME", "vilt": "ViLT", "clip": "CLIP"}
"""As their papers write them."""


def bibtex(keys: Collection[str]) -> str:
    """The entries of these keys, in alphabetical order."""
    return "\n".join(_entry(key, REFERENCES[key]) for key in sorted(set(keys)))


def _entry(key: str, reference: Reference) -> str:
    fields = "".join(f"  {name} = {{{value}}},\n" for name, value in reference.fields.items())
    return f"@{reference.kind}{{{key},\n{fields}}}\n"
