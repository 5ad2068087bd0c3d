"""cautions: what is no fault of a pipeline and may be a mistake, logged once, before its workers start."""

import structlog

from streamkit.graph.plan import Plan
from streamkit.graph.unread import unread_sides

log = structlog.get_logger()


def log_cautions(plan: Plan) -> None:
    """Say what nobody reads."""
    for each in unread_sides(plan):
        log.warning(
            each, pipeline=plan.name, hint="begin a stream there with .side(...), or take it out of sides"
        )
