#!/usr/bin/env python3
"""Measures the structure from its imports: rooms, arrows between them, layers, circles.

    .venv/bin/python scripts/rooms.py

A room is a package directly below a root; an arrow, one room that imports another. Imports inside
functions and below `if TYPE_CHECKING` count like all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

import grimp

ROOTS = ("trainmaster", "trainer_runtime.core", "trainer_runtime.host", "trainer_runtime.train")


def main() -> None:
    graph = grimp.build_graph("trainmaster", "trainer_runtime", cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    for root in ROOTS:
        below = [name for name in imports if name.startswith(f"{root}.")]
        rooms = arrows(imports, below, root)
        flat = [name for name in below if name.count(".") == root.count(".") + 1]
        modules = [name for name in flat if not graph.find_children(name)]
        print(
            f"{root}: {len(modules)} modules flat beside {len(flat) - len(modules)} rooms, "
            f"{sum(map(len, rooms.values()))} arrows between them on {layers(rooms)} layers"
        )
    circles = circles_of(imports)
    print(f"circles of files: {len(circles)}")
    for circle in circles:
        print("  " + " <-> ".join(sorted(circle)))


def arrows(imports: Mapping[str, set[str]], below: Iterable[str], root: str) -> dict[str, set[str]]:
    """Which rooms each room of a root imports."""
    depth = root.count(".") + 2

    def room(name: str) -> str:
        return ".".join(name.split(".")[:depth])

    found: dict[str, set[str]] = {}
    for name in below:
        targets = {room(other) for other in imports[name] if other.startswith(f"{root}.")}
        found.setdefault(room(name), set()).update(targets - {room(name)})
    return found


def layers(rooms: Mapping[str, set[str]]) -> str:
    """How many layers the rooms stand on; `circle` where they import each other."""
    try:
        order = list(TopologicalSorter(rooms).static_order())
    except CycleError as circle:
        return f"no (circle: {' -> '.join(circle.args[1])})"
    height: dict[str, int] = {}
    for room in order:
        height[room] = 1 + max((height[other] for other in rooms.get(room, ())), default=0)
    return str(max(height.values()))


def circles_of(imports: Mapping[str, set[str]]) -> list[set[str]]:
    """The sets of files that import each other, packages' `__init__` among them."""
    reached = {name: _reached(imports, name) for name in imports}
    found: list[set[str]] = []
    for name in sorted(imports):
        if name in reached[name] and not any(name in circle for circle in found):
            found.append({other for other in reached[name] if name in reached[other]})
    return found


def _reached(imports: Mapping[str, set[str]], name: str) -> set[str]:
    found: set[str] = set()
    todo = [name]
    while todo:
        for other in imports.get(todo.pop(), ()):
            if other not in found:
                found.add(other)
                todo.append(other)
    return found


if __name__ == "__main__":
    main()
