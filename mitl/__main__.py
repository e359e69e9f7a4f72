"""``python -m mitl``, which the installed ``mitl`` calls too: Ctrl-C shows no traceback, however early it comes."""

import gc
import io
import os
import sys
import warnings


def main() -> None:
    """Run the command line and exit with its status."""
    # Or the collector looks at what is being loaded hundreds of times: a seventh of a short command.
    gc.set_threshold(50_000)
    # Pillow opens these all the same, and refuses those of twice the size.
    warnings.filterwarnings("ignore", "Image size .* could be decompression bomb")
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # it was closed, and the next file to be opened would be taken for it
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A locale such as Latin-1 has no dash and no foreign caption; a file's name may be no text at all.
        sys.stdout.reconfigure(errors="replace")
    try:
        # Only here, so that Ctrl-C during an import is caught; held while the command line is loaded, because `run`
        # is the first that can tell of it, also to --json.
        from mitl.interrupts import interrupts_held, interrupts_kill

        with interrupts_held() as let_through:
            from mitl.cli import main as run_commands

            try:
                run_commands(ready=let_through)
            finally:
                interrupts_kill()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        gc.freeze()  # or the collector looks at all that was loaded when the process ends: a fifth of a short command


if __name__ == "__main__":
    main()
