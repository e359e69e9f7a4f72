"""What ``mitl.toml`` and the environment may hold, for the reference."""

from __future__ import annotations

TABLES: dict[str, dict[str, str]] = {
    "project": {
        "name": "what the data set is called",
        "id": "part of every HIT's annotation and request token; made by `mitl init`, never change it",
        "seed": "seed of everything that is drawn (0)",
    },
    "database": {
        "url": "pipeline database (`sqlite:///PROJECT/mitl.db`)",
        "crowd_url": "crowd server's database (`sqlite:///PROJECT/crowd.db`)",
    },
    "dataset": {"kind": "what was loaded; for the record"},
    "propose": {
        "annotators": "names that `mitl propose` asks, in this order",
        "image_queries": "how many images search (all)",
        "caption_queries": "how many captions search (all)",
        "top_k": "proposed per query and annotator (5)",
        "depth": "kept in the ranking files (25)",
        "backend": "what multiplies embeddings: auto, numpy, torch, bf16, int8, cuda or faiss; no ranking depends on "
        "it (auto)",
        "engine": "where annotators work: `local`, or `ray` workers; no ranking depends on it (local)",
        "ray_address": "cluster that the engine `ray` joins (none: this machine's cores)",
    },
    "crowd": {
        "endpoint": "requester API to use instead of mitl's own crowd server",
        "environment": "what that endpoint is: `sandbox` or `live` (live)",
        "server_id": "refuse another server than this one at that endpoint",
        "contact": "e-mail address that HIT pages and the release's datasheet show",
        "image_base_url": "https address at which `public/` is served, for an endpoint on another machine",
        "wage_floor_cents": "least pay an hour at the template's estimate (1200 on live, 0 on sandbox)",
        "ceiling_cents": "most that may be spent and promised in one environment, fees and bonuses included (no limit)",
        "max_hits_per_worker": "HITs that one worker may do in one environment; harvests see to it (no limit)",
        "allowed_hosts": "hosts from which requesters' pages may load scripts, styles and fonts by https; "
        "`mitl serve --allow-host` adds to them (none)",
    },
    "review": {
        "gold_positive_passes": 'answers with which a gold positive passes (`["yes", "weak_yes"]`)',
        "gold_negative_passes": 'answers with which a gold negative passes (`["weak_no", "no"]`)',
        "min_seconds_a_pair": "`review` and the desk say who takes less time for half of the pairs, however fast the "
        "others are; 0 says nothing (2)",
    },
    "release": {
        "description": "what the data set is, in a sentence",
        "version": "of the release (1.0.0)",
        "license": "of judgements and positives, as an SPDX name or a URL",
        "items_license": "of the images and captions, which the release names and does not hold",
        "creators": "list of names",
        "contact": "e-mail address ([crowd] contact)",
        "url": "where the release is found",
        "citation": "how to cite it",
        "date_published": "ISO date; never taken from the clock",
        "pay": "what workers were paid and how the time was measured (rewards and median time)",
        "ethics": "consent and ethics review",
    },
}

ANNOTATOR_FORMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "`pvse-mini`, `vsrn-mini`, `pcme-mini`, `vilt-mini`, `clip-mini`": (
        "small trained networks for pictures of `scenes`",
        (
            "`weights` (path; the ones that come with mitl)",
            "`device` (auto, cpu, cuda; auto)",
            "`threads` (whole number)",
        ),
    ),
    "`pvse`, `vsrn`, `pcme`, `vilt`, `clip`, or any name by `network`": (
        "the papers' networks at full size; [annotators.md](annotators.md) says what each needs",
        (
            "`network` (one of the five, where the name is another)",
            "`weights` (path, needed; of vsrn a list of two, too)",
            "`vocabulary` (path; pvse, vsrn, pcme)",
            "`features`, `feature_ids` (paths; vsrn)",
            "`wordpieces` (path; vilt)",
            "`bpe` (path; clip)",
            "`scope` (exhaustive, shortlist), `shortlist`, `shortlist_from`, `shortlist_recall`, `audit_queries`, "
            "`audit_items` (vilt)",
            "`device`, `threads`, `batch`, and the network's own",
        ),
    ),
    "any name, by `transformers`": (
        "a dual encoder of transformers (CLIP, SigLIP, ALIGN, ...); similarity is the cosine",
        (
            "`transformers` (folder or hub name)",
            "`revision` (on the hub)",
            "`truncate` (true, false; false)",
            "`device`, `threads`, `batch`",
        ),
    ),
    "`pivot-<captioner>-<tfidf|lsa|minilm>`": (
        "machine captions stand for the images and are compared with the captions",
        (
            "`captions` (path, needed): Parquet with `image_id` and a column per captioner, or JSON of one captioner",
            "`captioner` and `text_model`, where the name does not tell them",
            "`device` and `threads` (minilm)",
        ),
    ),
    "any name, by `embeddings`": (
        "embeddings made elsewhere; similarity is the inner product, of K vectors an item the best one",
        (
            "`embeddings = {images = PATH, captions = PATH}`: .npz with `ids` and `embedding` (N, D) or (N, K, D), "
            "Parquet with `id` and `embedding`, or .npy beside `NAME.ids.npy` or `NAME.ids.txt`; `image_ids` and "
            "`caption_ids` in the same table name the ids of .npy files elsewhere",
            "`similarity` (dot, cosine; dot)",
        ),
    ),
    "any name, by `rankings`": (
        "rankings made elsewhere",
        (
            "`rankings = {i2t = PATH, t2i = PATH}` or a folder: Parquet with `query_id`, `rank` (from 1), `item_id`, "
            "`similarity`",
        ),
    ),
}

VARIABLES: dict[str, str] = {
    "MITL_PROJECT": "project folder, as `--project`",
    "MITL_DB": "pipeline database, as `--db`",
    "MITL_CROWD_DB": "crowd server's database, as `--crowd-db`",
    "MITL_DB_FILE": "file that holds what `MITL_DB` would, for a URL with a password",
    "MITL_CROWD_DB_FILE": "the same of `MITL_CROWD_DB`",
    "MITL_SEED": "seed, as `--seed`",
    "MITL_ENDPOINT_URL": "requester API, as `--endpoint-url`",
    "MITL_CONTACT": "as `contact` in `[crowd]`",
    "MITL_LOG_FORMAT": "`text` or `json`, as `--log-format`",
    "MITL_IMAGE_BASE_URL": "as `image_base_url` in `[crowd]`",
    "AWS_ENDPOINT_URL_MTURK": "requester API, where no option, no `MITL_ENDPOINT_URL` and no `mitl.toml` names one",
}
