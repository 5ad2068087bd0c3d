"""group_preview: the group of a pipeline as a worker would find it, seen without joining."""

import asyncio

from streamkit.config import Settings
from streamkit.graph.plan import Plan
from streamkit.kafka.ports import Admin, MemberOptions
from streamkit.kafka.preview import Preview, preview
from streamkit.kafka.shown_member import ShownMember
from streamkit.runtime.assign import stages_of
from streamkit.task.identity import identify

LOOK_AGAIN_S = 0.5


async def group_of(plan: Plan, admin: Admin, settings: Settings) -> Preview:
    """The group of a resolved plan, as a worker would find it.

    Raises:
        Misconfigured: the group would not take us, or is that of another pipeline.
    """
    options = MemberOptions(
        group=plan.group, writer_id="", stages=stages_of(plan), plan=identify(plan).fingerprint
    )
    return preview(options, await _members(admin, plan.group, settings))


async def _members(admin: Admin, group: str, settings: Settings) -> list[ShownMember]:
    """The members of the group; while a round is going on nobody can see what they are at."""
    give_up_at = asyncio.get_running_loop().time() + settings.rebalance_timeout_s
    while True:
        members = await admin.members(group)
        if all(member.claim for member in members) or asyncio.get_running_loop().time() >= give_up_at:
            return members
        await asyncio.sleep(LOOK_AGAIN_S)
