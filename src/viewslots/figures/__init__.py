"""Pictures for people: sheets, strips, curves, films."""
