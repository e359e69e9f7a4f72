"""A project's own wording of the HIT page, from posting to the release."""

from __future__ import annotations

import json
import shutil

import pytest
from world_kit import SANDBOX, killed_at_posting, make_world, run_build, run_propose, run_publish

from mitl import resources
from mitl.campaign.kinds.pairs.planning import Campaign
from mitl.campaign.publish import publish
from mitl.db.session import open_database
from mitl.db.store import hits
from mitl.errors import TemplateError
from mitl.hits.templates import load_template
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate

OWN = "pairs-ours"


@pytest.fixture
def project(tmp_path):
    """A project with candidate pairs and a wording of its own, copied from the one that asks for reasons."""
    settings = make_world(tmp_path / "p", n_images=20)
    shutil.copytree(
        resources.folder("hit_templates") / "pairs-rationale", settings.project / "hit_templates" / OWN
    )
    run_propose(settings)
    return settings


def test_a_projects_own_wording_goes_all_the_way(project):
    """It is posted, answered and read like a bundled one; the manifest names it by content, and the recipe."""
    run_publish(project, template=OWN)
    simulate(project, SANDBOX)
    harvest(project, SANDBOX)
    run_build(project)

    manifest = json.loads((project.project / "release" / "manifest.json").read_text(encoding="utf-8"))
    configuration = manifest["configuration"]
    wording = load_template(OWN, project.project / "hit_templates")
    assert configuration["recipe"] == "repair"
    assert [(batch["template"], batch["template_sha256"]) for batch in configuration["batches"]] == [
        (OWN, [wording.content_hash])
    ]


def test_a_release_names_the_wordings_that_people_saw(project):
    """Not the one that the project holds since: neither while HITs are posted nor after that."""
    page = project.project / "hit_templates" / OWN / "page.html.j2"
    seen = []

    def changed() -> None:
        page.write_text(page.read_text(encoding="utf-8") + "<!-- more -->", encoding="utf-8")
        seen.append(load_template(OWN, project.project / "hit_templates").content_hash)

    run_publish(project, template=OWN, limit=20)
    first = load_template(OWN, project.project / "hit_templates").content_hash
    with pytest.raises(KeyboardInterrupt):
        publish(
            project, Campaign(SANDBOX, template=OWN), confirm=lambda total: True, progress=killed_at_posting
        )
    changed()
    run_publish(project, template=OWN)
    simulate(project, SANDBOX)
    harvest(project, SANDBOX)
    changed()
    run_build(project)

    manifest = json.loads((project.project / "release" / "manifest.json").read_text(encoding="utf-8"))
    assert [batch["template_sha256"] for batch in manifest["configuration"]["batches"]] == [[first], seen[:1]]


def test_a_broken_wording_of_the_project_posts_nothing(project):
    """The error names the file that is wrong."""
    (project.project / "hit_templates" / OWN / "page.html.j2").unlink()

    with pytest.raises(TemplateError, match=f"{OWN}' lacks page.html.j2 in {project.project}"):
        run_publish(project, template=OWN)
    with open_database(project.db_url, read_only=True) as session:
        assert hits.batches(session, SANDBOX) == []
