"""What the book shows: figures, tables, and how they are put on a page."""
