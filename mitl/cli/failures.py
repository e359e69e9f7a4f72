"""What a command says in one line of an error that is not its own."""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from pathlib import Path

import click

from mitl.cli import nearest_to

TOO_DEEP = (
    "a file that was read nests its values hundreds of levels deep, which no file for mitl does; mend or leave it out "
    "(-vv shows where it was read) and run the command again"
)


def usage_message(error: click.ClickException) -> str:
    """What the command line lacks or has too much, and what was probably meant."""
    message = error.format_message()
    nearest = ""
    if isinstance(error, click.NoSuchCommand | click.NoSuchOption):
        message, nearest = error.message, nearest_to(error)
    message = message[:1].lower() + message[1:].rstrip(".")
    message = re.sub(r"is not a valid integer( range)?$", "is not a whole number", message)
    message = re.sub(
        r"is not a valid float( range)?$", "is not a number, with a point before decimals", message
    )
    if nearest:
        message += f"; did you mean {nearest}?"
    elif isinstance(error, click.NoSuchOption) and error.ctx and isinstance(error.ctx.command, click.Group):
        message += (
            f"; options stand after the command, as in `{error.ctx.command_path} COMMAND {error.option_name}`"
        )
    elif isinstance(error, click.UsageError) and error.ctx is not None:
        message += f"; see `{error.ctx.command_path} --help`"
    return message


def system_message(error: OSError) -> str:
    """What the file system says: a full disk, a folder in a file's place, a missing right."""
    reason = (error.strerror or str(error)).lower()
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        reason = "the disk is full; make room and run the command again"
    if error.filename is None:
        return reason
    path = Path(str(error.filename))
    if error.errno == errno.EACCES:
        # Of a file that was looked for in a closed folder, the folder is what has to be opened.
        path = next((place for place in (path, *path.parents) if os.access(place.parent, os.X_OK)), path)
        reason = "permission denied; give this user the right to it and run the command again"
    return f"cannot use {str(path)!r}: {reason}"


def memory_message(error: MemoryError) -> str:
    """What was asked for, where numpy says it: often by the head of a file that is damaged, or made to do so."""
    said = f" ({error})" if str(error) else ""
    return f"the memory is not enough{said}; make room or mend the file that asks for it, and run the command again"


def text_message(error: Exception) -> str | None:
    """What was typed in another encoding than UTF-8, or is half of a character; Python keeps it until it is written."""
    if not isinstance(error, UnicodeEncodeError) or "surrogates" not in error.reason:
        return None
    said = error.object[max(0, error.start - 20) : error.end + 20]
    return f"{said!a} is not UTF-8; write it again in UTF-8, as a terminal in a UTF-8 locale does"


def database_message(error: Exception) -> str | None:
    """What the database's driver says, where that is what failed: it is gone, full, or no database."""
    if "sqlalchemy.exc" not in sys.modules:
        return None
    from mitl.db.explain import busy, is_busy, is_outage, remedy

    if not is_outage(error):
        return None
    if is_busy(error):
        return busy("the database")
    return f"the database failed: {str(error.orig).splitlines()[0]}; {remedy(error)}"


def extension_message(error: Exception) -> str | None:
    """What failed in the code of an installed package that adds an annotator, and in which of its lines."""
    from annotators.registry import added_names

    packages = {point.module.partition(".")[0] for point in added_names().values()}
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package in packages:
            return (
                f"the installed package {package!r}, which adds an annotator, failed in line {line} of "
                f"{frame.f_code.co_filename!r}: {type(error).__name__}: {error}; mend it (-vv shows how it came there) "
                "and run the command again"
            )
    return None


def card_message(error: Exception) -> str | None:
    """What torch says of a card whose memory is full: how much was asked for, and of how much."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(error, torch.cuda.OutOfMemoryError):
        return None
    said = re.search(
        r"Tried to allocate ([\d.]+ \w+)\b.*?(?:of which ([\d.]+ \w+) is free|$)", str(error), re.DOTALL
    )
    asked, free = said.groups() if said else (None, None)
    return (
        "the GPU's memory is full"
        + (f": {asked} more were asked for" if asked else "")
        + (f", {free} are free" if free else "")
        + "; end what else uses it, give the annotator a smaller 'batch' or device = 'cpu', "
        "or search with --backend numpy"
    )
