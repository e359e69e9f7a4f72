"""What the child processes of the crash and concurrency tests do: one stage each, given a project's settings."""

from __future__ import annotations

from world_kit import SANDBOX, make_world, run_build, run_propose, run_publish

from mitl.records import StageResult
from mitl.settings import Settings
from mitl.stages.harvesting import harvest as harvesting
from mitl.stages.hits import simulate
from mitl.stages.reporting import report as reporting
from mitl.stages.reviewing import review

N_IMAGES = 12


def init(settings: Settings, n_images: int = N_IMAGES) -> StageResult | None:
    """Make the project: world, settings file, databases."""
    folder, databases = settings.project, {"db_url": settings.db_url, "crowd_url": settings.crowd_db_url}
    make_world(folder, n_images=n_images, draw=True, **databases)
    return None


def propose(settings: Settings, image_queries: int = 5, caption_queries: int = 6) -> StageResult:
    """Rank and store candidate pairs."""
    return run_propose(settings, image_queries=image_queries, caption_queries=caption_queries)


def publish(settings: Settings, direction: str = "both") -> StageResult:
    """Post to the sandbox."""
    return run_publish(settings, direction=direction)


def work(
    settings: Settings, population: str = "careful:0.5,random:0.5", hits_per_worker: int = 1
) -> StageResult:
    """Scripted workers answer what is out."""
    return simulate.simulate(settings, SANDBOX, population=population, hits_per_worker=hits_per_worker)


def harvest(settings: Settings) -> StageResult:
    """Fetch, judge, approve."""
    return harvesting.harvest(settings, SANDBOX)


def settle(settings: Settings) -> StageResult:
    """Pay everyone who waits."""
    return review.settle(settings, SANDBOX)


def poll(settings: Settings, times: int) -> int:
    """Harvest again and again; how many submissions were fetched in all."""
    return sum(int(str(harvest(settings).counts["fetched"])) for _ in range(times))


def build(settings: Settings) -> StageResult:
    """Build a release."""
    return run_build(settings)


def report(settings: Settings) -> StageResult:
    """Write the report."""
    return reporting.report(settings, settings.project / "report.html", SANDBOX)
