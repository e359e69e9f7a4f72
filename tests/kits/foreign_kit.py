"""Pages of the kinds that others wrote for Mechanical Turk, and a server that may be told what they may load."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
from crowd_kit import Crowd, ManualClock
from sqlalchemy import Engine

from mitl.crowd_server.app import create_app
from mitl.crowd_server.protocol.html_page import AllowedSources
from mitl.crowd_server.serving import RunningServer

HELPER = "https://s3.amazonaws.com/mturk-public/externalHIT_v1.js"
ELEMENTS = "https://assets.crowd.aws/crowd-html-elements.js"
JQUERY = "https://code.jquery.com/jquery-3.6.0.min.js"
BOOTSTRAP = "https://cdn.jsdelivr.net/npm/bootstrap@4.6.2/dist/css/bootstrap.min.css"

PICTURE = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' width='150' height='110' fill='%23a86'%3E"
    "%3Cellipse cx='70' cy='60' rx='45' ry='22'/%3E%3Ccircle cx='115' cy='38' r='20'/%3E"
    "%3Cpath d='M40 70h9v36h-9zM92 70h9v36h-9zM28 50L8 26l7-4 24 26zM103 24l-6 22 13-8z'/%3E"
    "%3Ccircle cx='120' cy='35' r='3' fill='%23000'/%3E%3C/svg%3E"
)

AMTI = f"""
      <!DOCTYPE html>
      <html>
        <head>
          <meta http-equiv='Content-Type' content='text/html; charset=UTF-8'/>
          <script type='text/javascript' src='{HELPER}'></script>
        </head>
        <body>
          <form name='mturk_form' method='post' id='mturk_form' action='/mturk/externalSubmit'>
            <input type='hidden' value='' name='assignmentId' id='assignmentId'/>
            <h1>One word, one sentence</h1>
            <p>The word is <b>lighthouse</b>.</p>
            <p><label>A sentence with it<br><textarea name='sentence' cols='60' rows='3'></textarea></label></p>
            <p><input type='submit' id='submitButton' value='Send' /></p>
          </form>
          <script language='Javascript'>turkSetAssignmentID();</script>
        </body>
      </html>
"""
"""The structure of amti's example: a helper from a bucket of Amazon's, a root-relative action."""

SAMPLE = f"""<!DOCTYPE html>
<script type='text/javascript' src='{HELPER}'></script>
<form method='post' id='mturk_form' action='https://www.mturk.com/mturk/externalSubmit'>
  <h1>Through your window</h1>
  <p><label for='sky'>What colour is the sky?</label> <input id='sky' name='sky'></p>
  <p><label><input type='radio' name='rain' value='yes'> It rains</label>
     <label><input type='radio' name='rain' value='no'> It is dry</label></p>
  <p><input type='submit' id='submitButton' value='Submit'/></p>
</form>
<script language='Javascript'>turkSetAssignmentID()</script>
"""
"""The structure of the sample in Amazon's guide: an absolute action, and no field for the assignment."""

CROWD = f"""<script src="{ELEMENTS}"></script>
<crowd-form>
  <h1>A picture and a bird</h1>
  <crowd-instructions link-text="View instructions" link-type="button">
    <short-summary><p>Look at the picture, then tell us about birds.</p></short-summary>
    <detailed-instructions><p>Take what is largest.</p></detailed-instructions>
    <positive-example><p>“A red robin”</p></positive-example>
    <negative-example><p>“Nice”</p></negative-example>
  </crowd-instructions>
  <crowd-image-classifier name="kind" src="{PICTURE}"
    categories="['Cat', 'Dog', 'None of them']" header="What does the image show?">
    <short-instructions>Choose the one that fits best.</short-instructions>
    <full-instructions header="Rules"><p>Drawings count.</p></full-instructions>
    <worker-comment link-text="Say why">A few words</worker-comment>
  </crowd-image-classifier>
  <crowd-classifier name="mood" categories='["glad", "sad"]' header="How does the text sound?">
    <classification-target><p>What a morning!</p></classification-target>
  </crowd-classifier>
  <crowd-input name="bird" label="A bird that you like" required></crowd-input>
  <crowd-input name="second" label="Another one"></crowd-input>
  <p>Which is it?</p>
  <crowd-radio-group>
    <crowd-radio-button name="small" value="Small">It is small</crowd-radio-button>
    <crowd-radio-button name="large" value="Large">It is large</crowd-radio-button>
  </crowd-radio-group>
  <div><crowd-checkbox name="traits" value="sings">It sings</crowd-checkbox></div>
  <div><crowd-checkbox name="traits" value="swims">It swims</crowd-checkbox></div>
  <div><crowd-checkbox name="flies">It flies</crowd-checkbox></div>
  <p id="much">How much do you like it?</p>
  <crowd-slider name="much" min="1" max="10" step="1" aria-label="How much do you like it?" required pin></crowd-slider>
  <crowd-text-area name="essay" rows="4" label="A few lines on it"></crowd-text-area>
  <p><label>Your country <input type="text" name="country"></label></p>
  <p><label><input type="radio" name="age" value="young"> young</label>
     <label><input type="radio" name="age" value="old"> old</label></p>
  <crowd-button form-action="submit" variant="primary">Send it</crowd-button>
</crowd-form>
"""
"""The structure of the templates in Amazon's guide to the crowd elements, each supported one once."""

JQUERY_PAGE = f"""<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>Count</title>
<script src="{JQUERY}" integrity="sha256-bm90IG9mIHRoaXMgZmlsZQ==" crossorigin="anonymous"></script>
</head><body>
<form id="mturk_form" method="post" action="">
  <input type="hidden" id="assignmentId" name="assignmentId">
  <h1>Counting</h1><p>How many windows do you see?</p>
  <div id="choices"></div>
  <input type="hidden" name="clicks" id="clicks" value="0">
  <button type="button" id="done">Done</button>
</form>
<script>
$(function () {{
  $.each(["none", "one", "more"], function (at, name) {{
    $("#choices").append($("<label>").append($("<input type=radio name=windows>").val(name), " " + name));
  }});
  $(document).on("change", "input[name=windows]", function () {{ $("#clicks").val(+$("#clicks").val() + 1); }});
  $("#done").click(function () {{
    if (!$("input[name=windows]:checked").length) {{ alert("Please choose."); return; }}
    if (!confirm("Send it?")) return;
    $("#mturk_form").attr("action", "https://workersandbox.mturk.com/mturk/externalSubmit").submit();
  }});
}});
</script></body></html>
"""
"""A page whose form is made, changed and sent by a library from elsewhere."""

BOOTSTRAP_PAGE = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Rate</title>
<link rel="stylesheet" href="{BOOTSTRAP}"></head>
<body><main class="container py-3"><div class="card"><div class="card-body">
<h1 class="h4">Does the caption fit?</h1><p class="lead">A dog runs over a beach.</p>
<form action="https://workersandbox.mturk.com/mturk/externalSubmit" method="POST" target="_parent">
  <input type="hidden" name="assignmentId" value="${{assignmentId}}">
  <div class="form-group"><label for="fit">It fits</label>
    <select class="form-control" id="fit" name="fit">
    <option value="">choose</option><option>well</option><option>badly</option></select></div>
  <div class="form-check"><input class="form-check-input" type="checkbox" name="odd" value="yes" id="odd">
    <label class="form-check-label" for="odd">Something is odd</label></div>
  <button class="btn btn-primary">Submit</button>
</form></div></div></main></body></html>
"""
"""A page without scripts, styled from elsewhere, that opens its answer over the whole window."""


@contextlib.contextmanager
def open_crowd(engine: Engine, sources: AllowedSources) -> Iterator[Crowd]:
    """A crowd server whose pages may load from these sources."""
    clock = ManualClock()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(RunningServer(create_app(engine, clock=clock, sources=sources)))
        clients = stack.enter_context(contextlib.ExitStack())
        yield Crowd(server.url, engine, clock, clients)


def library(name: str) -> bytes:
    """A copy of jQuery or of Bootstrap's style, as mkdocs brings them along."""
    pytest.importorskip("mkdocs", reason="pip package mkdocs is missing")
    themes = resources.files("mkdocs").joinpath("themes")
    path = {"jquery": "readthedocs/js/jquery-3.6.0.min.js", "bootstrap": "mkdocs/css/bootstrap.min.css"}[name]
    return themes.joinpath(path).read_bytes()


def vendor(folder: Path, address: str, content: bytes) -> None:
    """Put a copy of what has this address into a folder of vendored files."""
    path = folder / address.removeprefix("https://")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
