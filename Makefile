# Two commands from a fresh clone: `make demo` and `make test`. Both set up .venv on their first run.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-long test-slurm lint readme matrix clean-venv

demo: $(VENV)/.ready
	$(BIN)/goatbench run task=vit_res512
	$(BIN)/goatbench leaderboard task=vit_resolution
	$(BIN)/goatbench leaderboard task=vit_res512
	@echo "done: your run is the row with a * above; what it means: README.md. Next: . $(BIN)/activate && goatbench list"

test: $(VENV)/.ready
	$(BIN)/ruff check .
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow and not gpu" -n 2 --dist loadfile --no-loadscope-reorder

test-long: $(VENV)/.ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not gpu" -n 2 --dist loadfile --no-loadscope-reorder

# Needs Slurm's programs (Debian: apt-get install slurm-wlm munge), no cluster; make test-long runs it where they are.
test-slurm: $(VENV)/.ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slurm tests/slurm

readme: $(VENV)/.ready
	$(BIN)/goatbench leaderboard --published --results-dir results --scale embedded --format md --out results/LEADERBOARD.md
	$(BIN)/python tests/integration/test_readme.py

matrix: $(VENV)/.ready
	OMP_NUM_THREADS=1 $(BIN)/python -m goatbench.matrix

lint: $(VENV)/.ready
	$(BIN)/ruff check .

# The tested pair of torch and torchvision stands in constraints.txt. On Linux, PyPI's torch brings CUDA along (several GB).
$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v >= (3, 11) else f"goatbench needs Python 3.11 or newer, found {v[0]}.{v[1]}: make PYTHON=python3.11 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV): two to ten minutes, most of them PyTorch's"
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install -c constraints.txt torch torchvision
	$(BIN)/python -m pip install -c constraints.txt -e ".[dev]"
	@touch $@

clean-venv:
	rm -rf $(VENV)
