"""The golden record of one job, and the measurements of its baseline."""

import pytest
from made_up_check import golden_job, measured


@pytest.fixture
def golden():
    return golden_job()


@pytest.fixture
def baseline():
    return measured(cost=1.0)
