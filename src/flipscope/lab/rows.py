"""The table of a study: rows that can be chosen, grouped and read by column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

Row = dict[str, Any]


class Rows(list[Row]):
    """Rows of one table, each a dictionary of its columns.

    >>> rows = Rows([{"n": 4, "seed": 0, "y": 1.0}, {"n": 8, "seed": 0, "y": 2.0}, {"n": 4, "seed": 1, "y": 3.0}])
    >>> rows.where(n=4).column("y")
    [1.0, 3.0]
    >>> [(n, len(own)) for n, own in rows.by("n")]
    [(4, 2), (8, 1)]
    """

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> Rows:
        """The rows of any table."""
        return rows if isinstance(rows, cls) else cls(dict(row) for row in rows)

    def where(self, test: Callable[[Row], bool] | None = None, **equal: Any) -> Rows:
        """The rows whose columns have these values and that pass the test; rows without such a column are omitted."""
        missing = object()
        return Rows(
            row
            for row in self
            if all(row.get(name, missing) == value for name, value in equal.items()) and (test is None or test(row))
        )

    def having(self, column: str) -> Rows:
        """The rows with a value in this column."""
        return self.where(lambda row: row.get(column) is not None)

    def by(self, *columns: str) -> Iterator[tuple[Any, Rows]]:
        """The rows grouped by these columns, groups in increasing order; a single column gives bare values."""
        groups: dict[Any, Rows] = {}
        for row in self:
            key = tuple(row[name] for name in columns)
            groups.setdefault(key[0] if len(key) == 1 else key, Rows()).append(row)
        yield from sorted(groups.items(), key=lambda group: group[0])

    def each(self, column: str, values: Iterable[Any]) -> list[tuple[Any, Rows]]:
        """The rows for each of these values of a column, in this order, including values without rows."""
        return [(value, self.where(**{column: value})) for value in values]

    def column(self, name: str) -> list[Any]:
        """One column."""
        return [row[name] for row in self]

    def pooled(self, name: str) -> list[Any]:
        """The values of a column of lists, all together."""
        return [value for row in self for value in row[name]]

    def total(self, name: str) -> Any:
        """The sum of a column; a row without a number there adds nothing."""
        return sum(self.having(name).column(name))

    def values(self, name: str) -> list[Any]:
        """The values of a column, each once, in increasing order."""
        return sorted(set(self.column(name)))


def matched(first: Rows, second: Rows, column: str) -> list[tuple[Row, Row]]:
    """The rows of two tables that agree in a column, such as a seed, whose values differ in each table.

    >>> before, after = Rows([{"seed": 0, "y": 1}, {"seed": 1, "y": 2}]), Rows([{"seed": 1, "y": 5}])
    >>> matched(before, after, "seed")
    [({'seed': 1, 'y': 2}, {'seed': 1, 'y': 5})]
    """
    ours, theirs = ({row[column]: row for row in rows} for rows in (first, second))
    return [(ours[value], theirs[value]) for value in sorted(ours.keys() & theirs.keys())]
