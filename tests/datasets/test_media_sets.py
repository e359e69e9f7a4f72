"""Sounds, videos and composed queries in the layouts that they are handed round in."""

from __future__ import annotations

import io
import json
import tarfile

import pytest
from media_kit import tone

from mitl.datasets.composed_sets import CIRCO, CIRR, composed_set_kind, read_composed_set
from mitl.datasets.table import TableReading, Told, read_table
from mitl.errors import DatasetError, UsageError
from mitl.records.forms import COMPOSED, IMAGES, SOUNDS, VIDEOS


def read(path, tmp_path, images=None, **how):
    """(the data set, what was told)."""
    told = Told()
    unpack = tmp_path / "project" / "dataset"
    return read_table(path, images=images, unpack=unpack, reading=TableReading(**how), told=told), told.lines


@pytest.mark.parametrize(
    ("header", "name", "form"),
    [
        ("audio", "dog.wav", SOUNDS),
        ("Sound_Path", "dog.opus", SOUNDS),
        ("file_name", "dog.flac", SOUNDS),
        ("path", "dog.MP4", VIDEOS),
        ("clip", "dog", VIDEOS),
        ("image", "dog.jpg", IMAGES),
        ("file", "dog", IMAGES),
    ],
)
def test_a_column_or_the_files_names_say_what_is_described(tmp_path, header, name, form):
    """And the line for people says how it was read."""
    (tmp_path / "t.csv").write_text(f"{header},caption\n{name},a dog barks\n")
    data, (line, *_) = read(tmp_path / "t.csv", tmp_path)

    assert data.form is form
    assert line.startswith(f"read as: {form.sides[0]} = column `{header}`, {form.sides[0]} id = ")


def test_who_says_that_a_column_holds_sounds_may_keep_them_in_files_of_videos(tmp_path):
    """As a browser's recorder writes them; the refusal without it says so."""
    (tmp_path / "t.csv").write_text("audio,caption\ndog.webm,a dog barks\ncat.wav,a cat\n")
    with pytest.raises(DatasetError, match="say what it holds with --columns sound=audio"):
        read(tmp_path / "t.csv", tmp_path)
    assert read(tmp_path / "t.csv", tmp_path, columns=("sound=audio",))[0].form is SOUNDS


def test_clothos_csv_is_read_with_the_sounds_beside_it(tmp_path, shared_data):
    """Numbered captions, file names with spaces and commas; a caption that comes twice stays."""
    table = shared_data / "format_samples" / "clotho" / "clotho_captions_evaluation.csv"
    data, (line, *_) = read(table, tmp_path)
    assert data.form is SOUNDS and len(data.captions) == 5 * len(data.images)
    assert line == (
        "read as: sound = column `file_name`, sound id = column `file_name`, "
        "caption = columns `caption_1` … `caption_5`"
    )

    sounds = tmp_path / "evaluation"
    sounds.mkdir()
    for sound in data.images:
        (sounds / sound.external_id).write_bytes(tone(0.1))
    (tmp_path / "captions.csv").write_bytes(table.read_bytes())
    beside, _ = read(tmp_path / "captions.csv", tmp_path)
    assert all(sound.file == str(sounds / sound.external_id) for sound in beside.images)


def test_msrvtts_json_is_read_by_its_splits(tmp_path, shared_data):
    """Sentences keep their ids; the videos are found by theirs in the folder, whatever else lies there."""
    path = shared_data / "format_samples" / "msrvtt" / "MSRVTT_data.json"
    whole, _ = read(path, tmp_path)
    test, (line, *_) = read(path, tmp_path, split="test")
    assert whole.form is VIDEOS and 0 < len(test.images) < len(whole.images)
    assert line.endswith(
        "video id = column `video_id`, caption = column `caption`, caption id = column `sen_id`"
    )

    (tmp_path / "clips").mkdir()
    for video in whole.images:
        for suffix in ("mp4", "jpg"):
            (tmp_path / "clips" / f"{video.external_id}.{suffix}").write_bytes(b"x")
    placed, _ = read(path, tmp_path, images=tmp_path / "clips")
    assert all(str(video.file).endswith(f"{video.external_id}.mp4") for video in placed.images)

    (tmp_path / "bad.json").write_text(
        json.dumps({"videos": [], "sentences": [{"video_id": "v", "sen_id": 1}]})
    )
    with pytest.raises(DatasetError, match="MSR-VTT's layout"):
        read(tmp_path / "bad.json", tmp_path)
    jsfusion, _ = read(path.with_name("MSRVTT_JSFUSION_test.csv"), tmp_path)
    assert jsfusion.form is VIDEOS


@pytest.mark.parametrize("bytes_in_structs", [True, False])
def test_sounds_inside_a_parquet_become_files(tmp_path, bytes_in_structs):
    """The Audio feature of `datasets`, or plain bytes under a natural name; silence and speech are two files."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    cells = [
        {"bytes": content, "path": f"{n}.wav"} for n, content in enumerate((tone(0.1), tone(0.1, level=0)))
    ]
    table = pa.table(
        {"audio": cells if bytes_in_structs else [c["bytes"] for c in cells], "text": ["a", "b"]}
    )
    features = json.dumps({"info": {"features": {"audio": {"_type": "Audio"}}}} if bytes_in_structs else {})
    pq.write_table(table.replace_schema_metadata({"huggingface": features}), tmp_path / "t.parquet")
    data, (line, *_) = read(tmp_path / "t.parquet", tmp_path)

    assert data.form is SOUNDS and "sound = column `audio` (sounds)" in line
    files = [tmp_path / "project" / str(sound.file) for sound in data.images]
    assert [file.suffix for file in files] == [".wav", ".wav"]
    assert [file.read_bytes() for file in files] == [tone(0.1), tone(0.1, level=0)]

    table = pa.table({"audio": [b"no sound", b""], "text": ["a", "b"]})
    pq.write_table(table, tmp_path / "bad.parquet")
    with pytest.raises(
        DatasetError, match=r"the sound in row 1 .* is not a sound that browsers play: wav, mp3"
    ):
        read(tmp_path / "bad.parquet", tmp_path)


def test_what_the_datasets_library_saves_of_sounds_is_read(tmp_path):
    """`save_to_disk` with the feature Audio."""
    datasets = pytest.importorskip("datasets", minversion="5")
    pa = pytest.importorskip("pyarrow")
    features = datasets.Features({"audio": datasets.Audio(decode=False), "caption": datasets.Value("string")})
    table = pa.table({"audio": [{"bytes": tone(0.1), "path": "a.wav"}], "caption": ["a hum"]})
    datasets.Dataset(table.cast(features.arrow_schema)).save_to_disk(str(tmp_path / "saved"))
    data, _ = read(tmp_path / "saved", tmp_path)

    assert data.form is SOUNDS
    assert (tmp_path / "project" / str(data.images[0].file)).read_bytes() == tone(0.1)


@pytest.mark.parametrize(
    ("suffix", "content", "form"),
    [("wav", tone(0.1), SOUNDS), ("mp3", b"ID3\x04", SOUNDS), ("webm", b"\x1aE\xdf\xa3\x01webm", VIDEOS)],
)
def test_shards_hold_sounds_and_videos(tmp_path, suffix, content, form):
    """A sample of two kinds is asked about, one of two sounds refused."""

    def shard(name, files):
        with tarfile.open(tmp_path / name, "w") as tar:
            for path, data in files:
                info = tarfile.TarInfo(path)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))

    shard(
        "a.tar",
        [(f"0.{suffix}", content), ("0.txt", b"a hum"), (f"1.{suffix}", content + b"x"), ("1.txt", b"a")],
    )
    data, _ = read(tmp_path / "a.tar", tmp_path)
    assert data.form is form and len(data.images) == 2
    assert (tmp_path / "project" / str(data.images[0].file)).read_bytes() == content

    shard("b.tar", [("0.jpg", b"x"), (f"0.{suffix}", content), ("0.txt", b"a hum")])
    with pytest.raises(DatasetError, match="in several columns"):
        read(tmp_path / "b.tar", tmp_path)
    role = form.sides[0]
    assert read(tmp_path / "b.tar", tmp_path, columns=(f"{role}={form.left_part.value}",))[0].form is form


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("path,caption\na.wav,x\nb.mp4,y\n", "several kinds, as 'a.wav' and 'b.mp4'; .* one for each"),
        ("audio,caption\na.mp4,x\n", "row 1 .* names 'a.mp4', but its column is read for sounds"),
        ("audio,video,caption\na.wav,b.mp4,x\n", "2 columns that could be the sound: 'audio', 'video'"),
        ("audio,caption\na.wav,\n", "row 1 .* has no caption"),
        (
            "audio,sound_id,caption\na.wav,1,x\nb.wav,1,y\n",
            "gives sound '1' another file or url .*; write the same",
        ),
        ("audio,caption\n,x\n", "row 1 .* has no audio; write it, or take the row out"),
        (
            "reference,caption\na.png,x\n",
            "has the column 'reference' but none for the image that its queries look for",
        ),
        (
            "reference,target,caption\na.jpg,a.jpg,x\n",
            "row 1 .* 'a.jpg' as its reference and as what it looks for",
        ),
        ("reference,target,caption\n,b.jpg,x\n", "row 1 .* has no reference"),
        ("reference,target,caption\na.jpg,b.jpg,\n", "row 1 .* has no caption"),
    ],
)
def test_what_cannot_be_meant_is_one_line(tmp_path, content, named):
    """It names the row or the columns."""
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(DatasetError, match=named) as caught:
        read(tmp_path / "t.csv", tmp_path)
    assert "\n" not in str(caught.value)


def test_a_composed_table_has_references_texts_and_targets(tmp_path):
    """References are in the gallery too; ids of queries are kept where there are some."""
    (tmp_path / "t.csv").write_text(
        "pairid,reference_image,modification_text,target_image\n7,a.png,two of them,b.png\n8,c.png,at night,b.png\n"
    )
    data, (line, *_) = read(tmp_path / "t.csv", tmp_path)

    assert data.form is COMPOSED
    assert [image.external_id for image in data.images] == ["a.png", "b.png", "c.png"]
    assert [(q.external_id, q.reference, q.image_external_id) for q in data.captions] == [
        ("7", "a.png", "b.png"),
        ("8", "c.png", "b.png"),
    ]
    assert line == (
        "read as: reference = column `reference_image`, image = column `target_image`, image id = column "
        "`target_image`, query = column `modification_text`, query id = column `pairid`"
    )


def test_references_and_targets_may_be_addresses(tmp_path):
    """Also a reference for which no query looks."""
    (tmp_path / "t.csv").write_text("reference,text,target\nhttps://h/a.png,at night,https://h/b.png\n")
    data, _ = read(tmp_path / "t.csv", tmp_path)

    assert [image.url for image in data.images] == ["https://h/a.png", "https://h/b.png"]


def test_a_composed_table_with_a_target_and_an_image_is_asked_which_is_looked_for(tmp_path):
    """Neither is guessed."""
    (tmp_path / "t.csv").write_text("reference,text,target,image\na.png,two of them,b.png,c.png\n")
    with pytest.raises(DatasetError, match="could be the image: 'target', 'image'; say which"):
        read(tmp_path / "t.csv", tmp_path)


def test_cirr_is_read_with_its_gallery(shared_data, tmp_path):
    """The reference stays in the gallery; what is surely as good as the target is positive, half-sure ones are not."""
    folder = shared_data / "format_samples" / "cirr"
    told = Told()
    assert composed_set_kind(folder) == CIRR
    data = read_composed_set(folder, CIRR, TableReading(split="val"), told)

    assert data.form is COMPOSED and len(data.images) == 6 and data.positives == ()
    assert [(q.reference, q.image_external_id) for q in data.captions] == [
        ("dev-9001-0-img0", "dev-9002-2-img1"),
        ("dev-9002-0-img0", "dev-9003-0-img0"),
    ]
    assert told.files["dev-9001-0-img0"] == "dev/dev-9001-0-img0.png"
    with pytest.raises(UsageError, match="holds the splits test1, val; name one with --split"):
        read_composed_set(folder, CIRR, TableReading(), told)
    with pytest.raises(DatasetError, match="has no target, as in splits whose answers are kept secret"):
        read_composed_set(folder, CIRR, TableReading(split="test1"), told)


def test_circo_has_several_positives_a_query(shared_data, tmp_path):
    """With a folder of images all of them are searched."""
    folder = shared_data / "format_samples" / "circo"
    assert composed_set_kind(folder) == CIRCO
    data = read_composed_set(folder, CIRCO, TableReading(split="val"), Told())
    assert {("900034", "0"), ("900040", "0")} <= set(data.positives)
    assert data.captions[0].image_external_id == "900021"

    for image in [*(image.external_id for image in data.images), "900099"]:
        (tmp_path / f"{image:0>12}.jpg").write_bytes(b"x")
    placed = read_composed_set(folder, CIRCO, TableReading(split="val"), Told(), tmp_path)
    assert len(placed.images) == len(data.images) + 1 and all(image.file for image in placed.images)
    (tmp_path / "000000900034.jpg").unlink()
    with pytest.raises(DatasetError, match=r"query '0' .* names image '900034', which is not among"):
        read_composed_set(folder, CIRCO, TableReading(split="val"), Told(), tmp_path)


@pytest.mark.parametrize(
    ("row", "named"),
    [
        (
            {"pairid": 1, "reference": "a", "target_hard": "a", "caption": "x"},
            "as its reference and as its target",
        ),
        (
            {"pairid": 1, "reference": "a", "target_hard": "z", "caption": "x"},
            "names image 'z', which is not among",
        ),
        ({"pairid": 1, "reference": "a", "target_hard": "b", "caption": " "}, "query '1' .* has no text"),
        (
            {"pairid": 1, "reference": "a", "target_hard": "b", "target_soft": ["b"], "caption": "x"},
            "query 1 .* has further targets in another form",
        ),
        ({"pairid": 1, "target_hard": "b", "caption": "x"}, "is no object with caption, pairid, reference"),
    ],
)
def test_a_composed_query_that_cannot_be_meant_is_one_line(tmp_path, row, named):
    """With the query's place or id."""
    for below, value in (
        ("captions/cap.rc2.val.json", [row]),
        ("image_splits/split.rc2.val.json", {"a": "a", "b": "b"}),
    ):
        (tmp_path / below).parent.mkdir()
        (tmp_path / below).write_text(json.dumps(value))
    with pytest.raises(DatasetError, match=named):
        read_composed_set(tmp_path, CIRR, TableReading(), Told())
