"""The dashboard's charts as Plotly figures.

Colours are names of the page's CSS variables.
"""
