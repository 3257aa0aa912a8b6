"""Progress lines where there is no terminal."""

import io

import pytest

from goatbench.progress import Progress, duration


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_line_at_most_every_interval_with_the_time_left():
    stream, clock = io.StringIO(), Clock()
    with Progress("training", total=8, unit="step", stream=stream, interval=10, clock=clock) as bar:
        for _ in range(4):
            clock.now += 6
            bar.advance(1, loss=0.53125, epoch=1)
    # after 12 s two of eight are done: six more take 36 s; the last line is the end's
    assert stream.getvalue().splitlines() == [
        "training: 2/8 steps, 12 s elapsed, 36 s left, loss 0.5312 epoch 1",
        "training: 4/8 steps, 24 s elapsed, 24 s left, loss 0.5312 epoch 1",
        "training: 4/8 steps, 24 s elapsed, 24 s left, loss 0.5312 epoch 1",
    ]


def test_the_end_says_how_long_it_took():
    stream, clock = io.StringIO(), Clock()
    with Progress("evaluating", total=2, unit="image", stream=stream, clock=clock) as bar:
        clock.now = 12
        bar.advance(2)  # the interval is over, too: said once
    assert stream.getvalue() == "evaluating: 2/2 images, took 12 s\n"


def test_an_exception_leaves_a_last_line_and_goes_on():
    stream = io.StringIO()
    with pytest.raises(RuntimeError), Progress("training", total=5, stream=stream, clock=Clock()) as bar:
        bar.advance(1)
        raise RuntimeError
    assert stream.getvalue().startswith("training: 1/5 steps")


def test_a_terminal_gets_a_live_bar():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    with Progress("training", total=2, stream=stream) as bar:
        bar.advance(2, loss=0.25)
    assert "2/2" in stream.getvalue() and "loss 0.25" in stream.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (187, "3 min 07 s"), (7500, "2 h 05 min")]
)
def test_duration(seconds, text):
    assert duration(seconds) == text
