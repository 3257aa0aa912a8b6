"""How a metric's value is shown, the same in every table."""

from __future__ import annotations

import pytest

from goatbench.records.record import Metric


@pytest.mark.parametrize(
    ("percent", "digits", "value", "sign", "text"),
    [
        (True, 1, 0.4567, "", "45.7"),
        (False, 2, 1.2345, "+", "+1.23"),
        (True, 1, -0.0321, "+", "-3.2"),
        (False, 0, 123456789.0, "", "123456789"),
        (False, 2, 1234567890123456.0, "", "1.23e+15"),  # the perplexity of a net that knows nothing
        (False, 2, float("inf"), "", "inf"),
    ],
)
def test_a_value_as_tables_show_it(percent, digits, value, sign, text):
    assert Metric(name="m", unit="u", direction="higher", percent=percent, digits=digits).text(value, sign) == text
