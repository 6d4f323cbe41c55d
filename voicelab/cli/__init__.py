"""The command line: a thin layer over the library, one module per group of commands.

The ``voicelab`` script runs ``app``. A VoicelabError is printed as one line on stderr, with the name of the field, and
ends with exit status 2; a traceback is a defect of voicelab.
"""

from __future__ import annotations

import typer

from voicelab.cli.check import check
from voicelab.cli.console import CommandGroup, show_version
from voicelab.cli.doctor import doctor
from voicelab.cli.lab import lab
from voicelab.cli.say import say
from voicelab.cli.serve import keys, listen, serve
from voicelab.cli.stored import voices, weights
from voicelab.cli.study import compare, knobs, measure, replay, sweep

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
app.command()(say)
app.command()(serve)
app.command()(listen)
app.add_typer(keys, name="keys")
app.add_typer(voices, name="voices")
app.add_typer(weights, name="weights")
app.command()(sweep)
app.command()(replay)
app.command()(measure)
app.command()(compare)
app.command("knobs")(knobs)
app.command()(lab)
app.command()(check)
app.command()(doctor)
