"""Runs the command as a user does, in a process of its own."""

import os
import subprocess
import sys

# One thread each: the suite runs one process per core already.
ENVIRONMENT = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb", "OMP_NUM_THREADS": "1"}


def run(*arguments, status=0, stdin=None, code=None, cwd=None, environment=ENVIRONMENT):
    """Run ``macro`` with ``arguments`` (or Python ``code``) and insist on its exit status."""
    command = [sys.executable, "-c", code] if code else [sys.executable, "-m", "macro_routing.cli.main"]
    command += [] if code else [str(argument) for argument in arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, input=stdin, env=environment, cwd=cwd, check=False, timeout=600
    )
    assert done.returncode == status, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done
