"""StateHolder: what operators and window processes are, objects that declare state. No assignment may take its place."""

from typing import Any

from streamkit.errors import InvalidPipeline, UserCodeError
from streamkit.state.collection_views import ListState, MapState
from streamkit.state.views import Declaration


class StateHolder:
    """Declares state in its class body; `hold` puts the views of one task in the place of the declarations."""

    def __setattr__(self, name: str, new: Any) -> None:
        declared = getattr(type(self), name, None)
        held = self.__dict__.get(name)
        if isinstance(held, Declaration) and held is not declared:
            instead = written_as(held, f"self.{name}")
            raise UserCodeError(
                f'"{type(self).__name__}.{name}" is state: write {instead}',
                detail="an assignment would put a plain attribute in its place, which belongs to no key and is not kept",
                hint="only declared state survives a restart; change it by its methods",
            )
        if isinstance(new, Declaration) and new is not declared:
            raise InvalidPipeline(
                f'"{type(self).__name__}.{name}" is given its state by an assignment: declare it in the class body',
                hint=f"write it below the class line, without self: {name} = sk.value(...)",
            )
        super().__setattr__(name, new)


def written_as(state: Declaration, place: str) -> str:
    """The call that does what was meant by an assignment to this state."""
    if isinstance(state, MapState):
        return f"{place}[key] = ... or {place}.put(key, ...)"
    return f"{place}.replace(...)" if isinstance(state, ListState) else f"{place}.set(...)"


def hold(holder: StateHolder, name: str, view: Any) -> None:
    """Give a holder the state of one task."""
    object.__setattr__(holder, name, view)
