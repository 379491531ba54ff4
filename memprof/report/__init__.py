"""The only places that format: console (rich), JSON and HTML (plotly)."""
