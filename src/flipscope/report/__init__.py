"""Presentation of results: terminal pages, figures as files, the HTML report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flipscope.basics.lazy import lazily

__all__ = ["write"]

if TYPE_CHECKING:
    from flipscope.report.pages import write

__getattr__, __dir__ = lazily(__name__)
