"""The command ``macro``: one file per command, each parses, calls and prints."""
