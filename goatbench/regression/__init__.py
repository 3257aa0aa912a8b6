"""`goatbench check`: a suite of small runs, compared with golden records. Only `measure` imports torch, and only when it runs."""
