"""Google Ads data you can trust: sealed extractions, judged by checks, published by a pointer swap."""

__version__ = "0.1.0"
