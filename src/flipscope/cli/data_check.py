"""flipscope data check: the data sets of a folder, and whether they are what they claim."""

from __future__ import annotations

import argparse

from flipscope.basics.errors import InputError
from flipscope.cli.common import print_json
from flipscope.data.checking import check_data
from flipscope.data.images import KINDS as IMAGES
from flipscope.data.photos import PHOTOS
from flipscope.data.texts import KINDS as TEXTS

EXAMPLES = """
  flipscope data check ~/datasets
  flipscope data check /usr/share/datasets --json
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="folder of data sets: their files, or subfolders of their names")


def run(arguments: argparse.Namespace) -> int:
    """Check every data set of the folder; 1 when one of them cannot be used."""
    found = check_data(arguments.folder)
    if not found:
        names = ", ".join((*IMAGES, PHOTOS, *TEXTS))
        raise InputError(f"{arguments.folder} has no files of {names}: docs/data.md lists the file names")
    if arguments.json:
        print_json({"folder": str(arguments.folder), "sets": [each.as_json() for each in found]})
    else:
        from flipscope.report.data import data_page
        from flipscope.report.terminal import show

        show(data_page(found))
    return 1 if any(each.problem for each in found) else 0
