"""Other people's harnesses; each module needs an optional package, and nothing imports one unasked."""
