"""Text: where it comes from, its tokens in the cache, windows of them, and made-up sequences with known answers."""
