# Two commands do everything on a fresh machine: `make demo` and `make test`.
#
# Two environments, as users have them: .venv holds Headroom (no torch), .venv-torch is the interpreter that the
# programs run under. constraints.txt pins all of the first, constraints-torch.txt all of the second.

PYTHON ?= python3
HEADROOM := .venv/bin/headroom

.PHONY: demo test check setup clean

setup: .venv/ready .venv-torch/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

.venv-torch/ready: constraints-torch.txt
	$(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip install --quiet --constraint constraints-torch.txt torch numpy
	touch $@

# The main job: a program that runs out of memory goes in, a patch that makes it fit comes out. No GPU, no key.
demo: setup
	$(HEADROOM) fix --device virtual --gpu h200 --capacity 8GiB --python .venv-torch/bin/python eval/scenarios/evaluation_graph.py

check: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/mypy --python-version 3.10 -p headroom.sandbox.recorder -p headroom.sandbox.virtual
	.venv/bin/lint-imports --no-logo

test: check
	.venv/bin/pytest --numprocesses auto --maxprocesses 8 $(PYTEST)

clean:
	rm -rf .venv .venv-torch .headroom build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
