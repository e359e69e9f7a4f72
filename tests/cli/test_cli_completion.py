"""A shell that was taught completes commands, subcommands and options."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from cli_kit import fails, ok


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("mitl pub", {"publish"}),
        ("mitl crowd panel ", {"add", "change", "list", "visits", "close", "forget"}),
        ("mitl publish --dry", {"--dry-run"}),
        ("mitl completion z", {"zsh"}),
    ],
)
def test_what_is_typed_is_completed_in_bash(line, wanted, tmp_path):
    """In a real bash, after the line that --help names, with the command on its path."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is missing")
    program = tmp_path / "mitl"
    program.write_text(f"#!{sys.executable}\nfrom mitl.cli import main\nmain()\n")
    program.chmod(0o755)
    script = (
        'eval "$(mitl completion bash)"\n'
        f"COMP_WORDS=({line}); [[ '{line}' == *' ' ]] && COMP_WORDS+=('')\n"
        "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
        "_mitl_completion mitl\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"

    done = subprocess.run(
        [bash, "-c", script], env={**os.environ, "PATH": path}, capture_output=True, text=True, cwd=tmp_path
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split()) == wanted


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_lines_of_its_own(shell):
    """They name the program and the variable by which it is asked."""
    said = ok("completion", shell).out

    assert "mitl" in said and f"_MITL_COMPLETE={shell}_complete" in said


def test_another_shell_is_refused_in_one_line():
    """The known ones are named."""
    assert "is not one of 'bash', 'zsh', 'fish'" in fails(2, "completion", "tcsh")
