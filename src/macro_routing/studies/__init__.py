"""The paper's studies as commands: each plans its parts, runs the missing ones, and writes data, tables and figures."""
