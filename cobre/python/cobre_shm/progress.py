"""A table of the iterations, with the library rich."""

from __future__ import annotations

from typing import Any


class Progress:
    """An `on_iteration` that shows a line for each iteration, and the latest one live. It is a context, too:

        with cobre_shm.Progress() as progress:
            cobre_shm.run("my-case", num_workers=4, on_iteration=progress)

    It needs rich: `pip install rich`. `console`: a `rich.console.Console`.
    """

    def __init__(self, console: Any = None, most_lines: int = 12) -> None:
        try:
            from rich.live import Live
        except ImportError as missing:
            raise ImportError("cobre_shm.Progress needs the library rich: pip install rich") from missing
        self._events: list[dict[str, Any]] = []
        self._most_lines = most_lines
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Progress:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def __call__(self, event: dict[str, Any]) -> None:
        """Shows an iteration. Training goes on."""
        self._events.append(event)
        self._live.update(self._table(), refresh=True)

    def _table(self) -> Any:
        from rich.table import Table

        table = Table(title="Cobre")
        for name in ("iteration", "lower bound", "upper bound", "gap", "seconds"):
            table.add_column(name, justify="right")
        for event in self._events[-self._most_lines :]:
            gap = "" if event["gap"] is None else f"{100 * event['gap']:.3f} %"
            bounds = ("" if each is None else f"{each:.6e}" for each in (event["lower_bound"], event["upper_bound"]))
            table.add_row(str(event["iteration"]), *bounds, gap, f"{event['wall_time_ms'] / 1000:.1f}")
        return table
