"""The report of a fit: figures of plain arrays. Needs matplotlib: `pip install "thali[report]"`."""
