"""Reader of files of rows: encodings, formats, separators, lines and rows, with errors that name the line."""
