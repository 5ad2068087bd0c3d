"""Side outputs that no stream begins at: what is sent there is dropped, which may be meant and may be forgotten."""

from streamkit.graph.plan import Plan


def unread_sides(plan: Plan) -> list[str]:
    """A warning for each of them, in the order of the steps."""
    return [
        f'side output "{side.name}" of step "{each.step.name}" is read by nobody: what is sent there is dropped'
        for stage in plan.stages
        for each in stage.steps
        for side in getattr(each.step, "sides", ())
        if not each.sides.get(side.name)
    ]
