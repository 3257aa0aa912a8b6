"""The command ends at once, and keeps what the end of a process promises."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import textwrap

import pytest

BEFORE = """
import atexit, sys, threading, time
from goatbench import __main__ as command

class Kept:
    def __del__(self):
        print("destroyed")

kept = Kept()
atexit.register(print, "exit handler")
command.main = lambda: print("said") or sys.exit(3)
"""


def end_of(setting: str) -> tuple[int, list[str]]:
    """(exit code, lines) of a process whose command line says a word and ends with code 3."""
    script = textwrap.dedent(BEFORE) + f"{setting}\ncommand.console()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    return done.returncode, (done.stdout + done.stderr).splitlines()


def test_exit_handlers_and_output_are_kept_and_nothing_is_destroyed():
    assert end_of("") == (3, ["said", "exit handler"])


@pytest.mark.parametrize(
    "setting",
    [
        "threading.Thread(target=lambda: time.sleep(0.1) or print('worked')).start()",
        "sys.settrace(lambda *_: None)",
        "sys.setprofile(lambda *_: None)",
    ],
)
def test_a_thread_or_a_tracer_gets_the_ordinary_end(setting):
    """Where the quick end would say so."""
    code, lines = end_of(f"command._leave = lambda code: print('left')\n{setting}")
    assert code == 3 and "left" not in lines and "exit handler" in lines and ("worked" in lines) == ("Thread" in setting)


def test_output_that_fails_is_said_by_the_interpreter():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "goatbench", "list", "scales"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode != 0 and "No space left on device" in done.stderr


def test_a_terminal_of_another_encoding_shows_a_question_mark():
    command = [sys.executable, "-m", "goatbench", "leaderboard", "task=toy_blocks", "--published"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("toy_blocks@v1 ? embedded")


def test_a_stream_that_is_closed_from_the_start_is_no_error():
    command = f"{shlex.quote(sys.executable)} -m goatbench list scales"
    done = subprocess.run(["sh", "-c", f"{command} >&-; echo $?; {command} 2>&-"], capture_output=True, text=True, timeout=60)
    assert done.stderr == "" and done.stdout.startswith("0\n") and "embedded" in done.stdout


def test_ctrl_c_while_the_modules_of_the_command_line_are_imported_is_one_line():
    script = """
    import os, signal, sys
    from goatbench import __main__ as command

    class CtrlC:
        def find_spec(self, name, *_):
            if name == "goatbench.options":
                os.kill(os.getpid(), signal.SIGINT)

    sys.meta_path.insert(0, CtrlC())
    command.console()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "goatbench: interrupted\n")
