"""One self-contained HTML page on a snapshot."""

from headroom.report.page.limits import PAGE_LIMIT_BYTES
from headroom.report.page.render import render_page

__all__ = ["PAGE_LIMIT_BYTES", "render_page"]
