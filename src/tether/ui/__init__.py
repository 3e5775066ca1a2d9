"""The live page: a query's bound, slots, backups and failures in a browser, and ``/metrics``.

============  ====================================================================================
``serving``   ``serve``: a page for all queries of this process, or for a backup directory
``sources``   what there is to show, and whether it still runs
``messages``  what the page is sent: all of a feed first, then what is new
``app``       the addresses, and what each answers
``guard``     who may ask: loopback names only, or a token; and never from another site
``actions``   the buttons
``static``    the page itself, as it is sent: no build step, and nothing from anywhere else
============  ====================================================================================
"""

from typing import Any

__all__ = ["Page", "serve", "serve_directory"]


def __getattr__(name: str) -> Any:
    # The page's packages are an extra; everything else works without them.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tether.core.errors import TetherError  # noqa: PLC0415

    try:
        from tether.ui import serving  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("starlette", "uvicorn", "prometheus_client"):
            raise
        raise TetherError(
            "The live page cannot be served.",
            why=f"The package {error.name} is not installed.",
            do="Install it with: pip install 'tether[ui]'",
        ) from error
    return getattr(serving, name)
