"""Reports, verdicts and trends as text, pages and files. Renderers measure nothing.

Words that several renderers share are in `words`.
"""
