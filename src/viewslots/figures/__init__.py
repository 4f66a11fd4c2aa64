"""Pictures for people: sheets, strips, plots, videos."""
