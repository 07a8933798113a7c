"""What every chart is made of."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from nsysdoctor.render import words

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Chart:
    """One chart: its place on the page, its words and the figure behind it."""

    name: str
    title: str
    caption: str
    figure: go.Figure


def label(text: str, width: int = 90) -> str:
    """Returns text as a Plotly label that shows it literally, although Plotly interprets some
    HTML."""
    return escape(words.middle(" ".join(text.split()), width), quote=False)


def empty_figure(x: str, y: str, log: str = "") -> go.Figure:
    """An empty figure with titled axes; `log` names those on a logarithmic scale."""
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.update_xaxes(title_text=x, type="log" if "x" in log else None)
    figure.update_yaxes(title_text=y, type="log" if "y" in log else None)
    figure.update_xaxes(exponentformat="SI")
    figure.update_yaxes(exponentformat="SI")
    figure.update_layout(template="none", hovermode="closest")
    return figure
