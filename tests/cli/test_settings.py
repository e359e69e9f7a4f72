"""Settings: an option goes before the environment, that before mitl.toml, that before the default."""

from __future__ import annotations

import errno
import os
import stat
import tomllib

import pytest
from cli_kit import fails, ok, use_file_annotators

from mitl.errors import SettingsError
from mitl.records import Environment
from mitl.settings import load, write_config

CONFIG = """
[project]
id = "from-file"
seed = 3

[database]
url = "sqlite:///file.db"
crowd_url = "sqlite:///file-crowd.db"

[crowd]
endpoint = "https://file.example"
environment = "sandbox"
contact = "file@example.org"
image_base_url = "https://file.example/pictures"
wage_floor_cents = 900
allowed_hosts = ["cdn.example.org"]
"""


@pytest.fixture
def folder(tmp_path):
    """A folder whose mitl.toml sets whatever the environment can set too."""
    (tmp_path / "mitl.toml").write_text(CONFIG)
    return tmp_path


@pytest.mark.parametrize(
    ("variable", "option", "attribute", "texts"),
    [
        ("MITL_DB", "db", "db_url", ("sqlite:///o.db", "sqlite:///e.db", "sqlite:///file.db")),
        (
            "MITL_CROWD_DB",
            "crowd_db",
            "crowd_db_url",
            ("sqlite:///o.db", "sqlite:///e.db", "sqlite:///file-crowd.db"),
        ),
        ("MITL_SEED", "seed", "seed", (1, 2, 3)),
        ("MITL_ENDPOINT_URL", "endpoint_url", "endpoint", ("http://o", "http://e", "https://file.example")),
    ],
)
def test_option_environment_file_default(variable, option, attribute, texts, folder, tmp_path_factory):
    """Each source is heard only where those before it are silent."""
    given, exported, written = texts
    environ = {variable: str(exported)}
    empty = tmp_path_factory.mktemp("empty")
    default = {
        "db_url": f"sqlite:///{empty / 'mitl.db'}",
        "crowd_db_url": f"sqlite:///{empty / 'crowd.db'}",
        "seed": 0,
        "endpoint": None,
    }

    assert getattr(load(folder, environ=environ, **{option: given}), attribute) == given
    assert getattr(load(folder, environ=environ), attribute) == exported
    assert getattr(load(folder, environ={variable: ""}), attribute) == written
    assert getattr(load(folder, environ={}), attribute) == written
    assert getattr(load(empty, environ={}), attribute) == default[attribute]


def test_what_only_the_environment_and_the_file_can_set(folder):
    """The contact and the pictures' address have no option."""
    environ = {"MITL_CONTACT": "env@example.org", "MITL_IMAGE_BASE_URL": "https://env.example"}

    exported, written = load(folder, environ=environ), load(folder, environ={})

    assert (exported.contact, exported.image_base_url) == ("env@example.org", "https://env.example")
    assert (written.contact, written.image_base_url) == ("file@example.org", "https://file.example/pictures")


def test_the_aws_variable_is_heard_last(folder, tmp_path_factory):
    """It is set for other tools too, so a project that names its endpoint keeps it."""
    environ = {"AWS_ENDPOINT_URL_MTURK": "http://aws"}

    assert load(folder, environ=environ).endpoint == "https://file.example"
    assert load(tmp_path_factory.mktemp("empty"), environ=environ).endpoint == "http://aws"


def test_the_project_is_an_option_before_a_variable(tmp_path):
    """Without either it is the current folder."""
    option, variable = tmp_path / "option", tmp_path / "variable"

    assert load(option, environ={"MITL_PROJECT": str(variable)}).project == option
    assert load(environ={"MITL_PROJECT": str(variable)}).project == variable


def test_what_only_the_file_can_set(folder):
    """An endpoint's environment, the wage floor and the hosts of requesters' pages."""
    settings = load(folder, environ={})

    assert settings.endpoint_environment is Environment.SANDBOX
    assert settings.wage_floor_cents == 900
    assert settings.allowed_hosts == ("cdn.example.org",)
    assert settings.project_id == "from-file"


def test_the_command_line_follows_the_same_order(tmp_path, monkeypatch):
    """`mitl propose` with its options, with mitl.toml, and with neither."""
    monkeypatch.chdir(tmp_path)
    ok("init", "--dataset", "scenes", "--n-images", "12")
    use_file_annotators(tmp_path)
    config = (tmp_path / "mitl.toml").read_text()
    sized = config.replace("[propose]\n", "[propose]\nimage_queries = 3\ncaption_queries = 4\ntop_k = 2\n")

    def asked(*words: str) -> tuple[int, int, int]:
        counts = ok("propose", *words, "--json").json["counts"]
        queries = counts["image_queries"] + counts["caption_queries"]
        per_query = counts["proposals"] // (queries * len(counts["annotators"]))
        return counts["image_queries"], counts["caption_queries"], per_query

    assert asked() == (12, 60, 5)
    (tmp_path / "mitl.toml").write_text(sized)
    assert asked() == (3, 4, 2)
    assert asked("--image-queries", "5", "--top-k", "1") == (5, 4, 1)


def test_the_seed_of_the_environment_draws_other_queries(tmp_path, monkeypatch):
    """The same seed gives the same run, however it was said."""
    monkeypatch.chdir(tmp_path)
    ok("init", "--dataset", "scenes", "--n-images", "12")
    use_file_annotators(tmp_path)
    words = ("propose", "--image-queries", "3", "--caption-queries", "3", "--json")

    first = ok(*words).json["counts"]["run"]
    by_option = ok(*words, "--seed", "9").json["counts"]["run"]
    monkeypatch.setenv("MITL_SEED", "9")
    by_variable = ok(*words).json["counts"]["run"]

    assert first != by_option == by_variable


def test_a_settings_file_is_never_overwritten(tmp_path):
    """It may hold what a person wrote."""
    write_config(tmp_path, {"project": {"name": "a"}})

    with pytest.raises(SettingsError, match="exists already"):
        write_config(tmp_path, {"project": {"name": "b"}})


def test_what_is_written_is_read_back(tmp_path):
    """Names with quotes and accents survive."""
    name = 'Zoë\'s "set"'
    write_config(
        tmp_path, {"project": {"name": name, "id": "a-1", "seed": 7}, "propose": {"annotators": ["x"]}}
    )

    settings = load(tmp_path, environ={})

    assert (settings.project_id, settings.seed, settings.annotators) == ("a-1", 7, ("x",))
    assert tomllib.loads((tmp_path / "mitl.toml").read_text(encoding="utf-8"))["project"]["name"] == name


def test_the_secret_is_made_once_and_is_the_owners_alone(tmp_path):
    """Addresses of pictures derive from it, so it must not change."""
    settings = load(tmp_path, environ={})

    first, second = settings.secret(), settings.secret()

    assert first == second and len(first) == 32
    assert stat.S_IMODE((tmp_path / "project.key").stat().st_mode) == 0o600


@pytest.mark.parametrize("refusal", [errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP])
def test_a_file_system_without_hard_links_is_enough(tmp_path, monkeypatch, refusal):
    """Settings and secret are new files there too, whole and never overwritten."""

    def refuse(source, target):
        raise OSError(refusal, os.strerror(refusal), source, None, target)

    monkeypatch.setattr(os, "link", refuse)

    write_config(tmp_path, {"project": {"id": "first"}})
    with pytest.raises(SettingsError, match="exists already"):
        write_config(tmp_path, {"project": {"id": "second"}})
    settings = load(tmp_path, environ={})

    assert settings.project_id == "first"
    assert settings.secret() == settings.secret()
    assert stat.S_IMODE((tmp_path / "project.key").stat().st_mode) == 0o600
    assert {file.name for file in tmp_path.iterdir()} == {"mitl.toml", "project.key"}


def test_another_failure_of_the_disk_is_told(tmp_path, monkeypatch):
    """Only a refused link has a way round; nothing is left behind."""

    def fail(source, target):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), source, None, target)

    monkeypatch.setattr(os, "link", fail)

    with pytest.raises(OSError, match="No space left"):
        write_config(tmp_path, {"project": {"id": "a"}})
    assert list(tmp_path.iterdir()) == []


def test_the_data_sets_table_is_a_record(tmp_path):
    """What `mitl init` wrote about the data set is allowed, whatever it holds."""
    (tmp_path / "mitl.toml").write_text('[dataset]\nkind = "coco"\nanything = 1\n')

    assert load(tmp_path, environ={}).project == tmp_path


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    """As some editors on Windows write it."""
    (tmp_path / "mitl.toml").write_text("[project]\nseed = 4\n", encoding="utf-8-sig")

    assert load(tmp_path, environ={}).seed == 4


@pytest.mark.parametrize("number", ["9" * 5000, "0x" + "f" * 5000])
def test_a_number_without_end_is_told_in_a_line(number, tmp_path):
    """Python itself refuses to read, or to show, so many digits."""
    (tmp_path / "mitl.toml").write_text(f"[propose]\ntop_k = {number}\n")

    with pytest.raises(SettingsError, match=r"mitl\.toml sets a whole number of thousands of digits"):
        load(tmp_path, environ={})


@pytest.mark.parametrize(
    "id_", ['""', '" "', '"study:2"', '"two\\nlines"', '"study "', f'"{"s" * 151}"', "7"]
)
def test_an_id_that_annotations_could_not_be_told_apart_by_is_refused(id_, tmp_path):
    """With `study:2` beside it, the project `study` took the other's HITs for its own that its database had lost."""
    (tmp_path / "mitl.toml").write_text(f"[project]\nid = {id_}\n")

    said = fails(1, "status", "--project", tmp_path)

    assert said.startswith("project.id is ") and said.endswith(
        ", but 1 to 150 letters, digits and hyphens are wanted, as `mitl init` writes it"
    )


@pytest.mark.parametrize("id_", ["s", "my_study.v2", "Étude 3", "s" * 150])
def test_an_id_of_ones_own_choice_keeps_working(id_, tmp_path):
    """Whoever wrote one by hand has HITs under it."""
    write_config(tmp_path, {"project": {"id": id_}})

    assert load(tmp_path, environ={}).project_id == id_


def test_a_damaged_secret_is_named(tmp_path):
    """A new one would change every picture's address in silence."""
    (tmp_path / "project.key").write_text("not hexadecimal\n")

    with pytest.raises(SettingsError, match="restore it from a backup"):
        load(tmp_path, environ={}).secret()


@pytest.mark.postgres
def test_a_servers_url_given_at_init_is_kept_for_later_commands(tmp_path, postgres_url):
    """`mitl init --db URL --crowd-db URL` writes both down, so that HITs and `mitl serve` meet; a password never is."""
    servers = "--db", postgres_url, "--crowd-db", f"{postgres_url}_crowd"
    ok("init", str(tmp_path / "p"), "--dataset", "scenes", "--n-images", "12", *servers)

    kept = load(tmp_path / "p", environ={})
    assert (kept.db_url, kept.crowd_db_url) == (postgres_url, f"{postgres_url}_crowd")
    assert not (tmp_path / "p" / "mitl.db").exists()
    assert ok("status", "--project", str(tmp_path / "p"))


@pytest.mark.postgres
def test_a_password_in_the_options_of_a_url_is_not_kept_either(tmp_path, postgres_url):
    """It would lie in mitl.toml, which others may read."""
    url = f"{postgres_url}{'&' if '?' in postgres_url else '?'}password=hunter2"
    ok("init", str(tmp_path / "p"), "--dataset", "scenes", "--n-images", "12", "--db", url)

    assert "hunter2" not in (tmp_path / "p" / "mitl.toml").read_text()


@pytest.mark.parametrize(("name", "attribute"), [("MITL_DB", "db_url"), ("MITL_CROWD_DB", "crowd_db_url")])
def test_a_url_with_a_password_may_stand_in_a_file(name, attribute, tmp_path):
    """NAME_FILE is read as NAME would be; an option goes before both."""
    secret = tmp_path / "url"
    secret.write_text("postgresql://mitl:hidden@db/mitl\n")
    environ = {f"{name}_FILE": str(secret)}

    assert getattr(load(tmp_path, environ=environ), attribute) == "postgresql://mitl:hidden@db/mitl"
    option = {"MITL_DB": "db", "MITL_CROWD_DB": "crowd_db"}[name]
    assert (
        getattr(load(tmp_path, environ=environ, **{option: "sqlite:///o.db"}), attribute) == "sqlite:///o.db"
    )


@pytest.mark.parametrize(
    ("extra", "content", "said"),
    [
        ({"MITL_DB": "sqlite:///e.db"}, "sqlite:///f.db", "MITL_DB and MITL_DB_FILE are both set"),
        ({}, "\n", "which is empty; write the URL into it"),
        ({}, None, "which cannot be read"),
    ],
)
def test_a_file_that_gives_no_url_is_refused(extra, content, said, tmp_path):
    """One line says which variable names which file."""
    secret = tmp_path / "url"
    if content is not None:
        secret.write_text(content)

    with pytest.raises(SettingsError, match=said):
        load(tmp_path, environ={"MITL_DB_FILE": str(secret), **extra})


@pytest.mark.parametrize("value", ['"2"', "-1", "3601", "true", "nan"])
def test_a_floor_of_seconds_is_a_number_of_an_hour_at_most(value, tmp_path):
    """Anything else is refused by its name; whole numbers will do, and 0 turns it off."""
    (tmp_path / "mitl.toml").write_text(f"[review]\nmin_seconds_a_pair = {value}\n")
    with pytest.raises(
        SettingsError, match=r"review\.min_seconds_a_pair is .*seconds from 0 to 3600 are wanted"
    ):
        load(tmp_path, environ={})

    (tmp_path / "mitl.toml").write_text("[review]\nmin_seconds_a_pair = 0\n")
    assert load(tmp_path, environ={}).min_seconds_a_pair == 0
    (tmp_path / "mitl.toml").write_text("")
    assert load(tmp_path, environ={}).min_seconds_a_pair == 2
