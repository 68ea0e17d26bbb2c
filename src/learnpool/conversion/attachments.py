"""Move what others attached to a module, hooks and attributes, to the module that takes its place, and back."""

from __future__ import annotations

from torch import nn

from ..ops.transforms import rebind_hooks

_HOOKS = tuple(name for name in nn.Module().__dict__ if "_hooks" in name)
_OURS = ("_old_pool", "_routed", "forward", "_replicate_for_data_parallel")


def move_attachments(old: nn.Module, new: nn.Module, plain_pool: nn.Module) -> tuple[str, ...]:
    """Give ``new`` the hooks of ``old`` and the attributes ``plain_pool`` lacks; return the names of the latter."""
    for name in _HOOKS:
        # One dict for both: a handle the user kept still removes its hook, and restore finds hooks added meanwhile.
        theirs, ours = old.__dict__.get(name), new.__dict__.get(name)
        if theirs is not None and not ours:
            new.__dict__[name] = theirs
        elif theirs and ours is not None:
            ours.update(theirs)
    rebind_hooks(new, old)
    attributes = (name for name in old.__dict__ if name not in plain_pool.__dict__ and name not in _OURS)
    # nn.Module.type may be hidden, as it was on the old one; what the new pool has of its own may not.
    names = tuple(name for name in attributes if not hasattr(new, name) or _is_hidden(name, new))
    new.__dict__.update({name: old.__dict__[name] for name in names})
    return names


def _is_hidden(name: str, module: nn.Module) -> bool:
    return name not in module.__dict__ and getattr(type(module), name, None) is getattr(nn.Module, name, module)


def move_back(new: nn.Module, old: nn.Module, names: tuple[str, ...]) -> None:
    """Give the old module its hooks and attributes back, as they are now."""
    rebind_hooks(old, new)
    old.__dict__.update({name: new.__dict__[name] for name in names if name in new.__dict__})
