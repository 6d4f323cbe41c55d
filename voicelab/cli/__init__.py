"""The command line: a thin layer over the library, one module per group of commands.

The ``voicelab`` script runs ``app``. A VoicelabError is printed as one line on stderr, with the name of the field, and
the exit status is 2. A traceback indicates a bug in voicelab. A command's module is imported when the command is run.
"""

from __future__ import annotations

import typer

from voicelab.cli.console import CommandGroup, show_version

__all__ = ["app"]

app = typer.Typer(
    name="voicelab",
    help="A toolkit for speech synthesis in Jupyter, with a small neural voice included.",
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    # Rich tables of 80 columns cut off the longer field names.
    rich_markup_mode=None,
    # A traceback with local variables could print a key.
    pretty_exceptions_enable=False,
    # Field names have underscores in the interface; both spellings are accepted.
    context_settings={
        "token_normalize_func": lambda token: token.replace("_", "-"),
        "help_option_names": ["-h", "--help"],
    },
)
app.callback()(show_version)
