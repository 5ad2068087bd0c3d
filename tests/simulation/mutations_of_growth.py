"""Broken promises about sources that grow, each as a patch."""

from typing import Any

from streamkit.runtime import growth


def growth_not_noticed(patch: Any) -> None:
    """Workers never see that a source has more partitions than they know of."""
    patch(growth, "grown_stages", lambda _plan, _counts: [])
