"""What the command line prints as one line."""


PREEMPTED = 75  # exit code, sysexits.h: EX_TEMPFAIL, try again
REQUEUES = "GOATBENCH_REQUEUES"  # environment variable of a job that its cluster will start again: SIGTERM, too, leaves no record


class UsageError(Exception):
    """What was wrong, the value, what is allowed, what to do, in one line. The command line prints it and exits with 2."""


class RefusedError(UsageError):
    """A mechanism, as it comes, cannot do what the task asks; found when its model is built. It leaves a record, so that boards say it."""


class PreemptedError(Exception):
    """SIGUSR1 ended the run: no record, the same command with the same run id goes on. The command line exits with 75."""


class RankError(Exception):
    """Another rank than the first has failed; the first has been told. The command line exits with 1."""
