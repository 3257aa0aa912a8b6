"""Figures: each function returns a matplotlib Figure, `style.save` writes it as PNG and SVG. matplotlib is imported when drawing starts."""
