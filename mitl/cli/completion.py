"""``mitl completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from mitl.cli.app import App, common

VARIABLE = "_MITL_COMPLETE"
"""What the shell sets when it asks for completions; click answers it before any command runs."""

_WHERE = {
    "bash": 'eval "$(mitl completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(mitl completion zsh)"   # in ~/.zshrc, after compinit',
    "fish": "mitl completion fish > ~/.config/fish/completions/mitl.fish",
}


@click.command("completion", epilog="  \n".join(["\b", *_WHERE.values()]))
@click.argument("shell", type=click.Choice(list(_WHERE)))
@common
def command(app: App, shell: str) -> None:
    """Print the lines that teach SHELL to complete mitl's commands and options."""
    from mitl.records import StageResult

    found = get_completion_class(shell)
    assert found is not None, shell
    # click's own ``source`` asks the installed bash for its version; the lines themselves do not depend on it.
    completion = found(click.Group("mitl"), {}, "mitl", VARIABLE)
    script = completion.source_template % completion.source_vars()
    app.finish(StageResult(counts={"shell": shell, "script": script}, lines=tuple(script.splitlines())))
