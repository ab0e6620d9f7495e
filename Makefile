PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test lint types bench opinfo triton gpu clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e '.[test,dev]'
	@touch $(READY)

demo: $(READY)  ## set up, then profile nanoGPT twice and show what changed
	$(BIN)/thunderfx run sample_models/nanogpt.py --name before
	$(BIN)/thunderfx run sample_models/nanogpt.py --name after --input idx=2x32:i64 --input targets=2x32:i64
	$(BIN)/thunderfx traces --backward
	$(BIN)/thunderfx diff before after

test: $(READY)  ## set up, then run the tests
	$(BIN)/pytest tests

lint: $(READY)  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## mypy
	$(BIN)/mypy

bench: $(READY)  ## steps, first calls and compile time against eager, aot_eager and inductor
	$(BIN)/python tests/benchmarks/bench_step.py
	$(BIN)/python tests/benchmarks/bench_host.py
	$(BIN)/python tests/benchmarks/bench_compile.py

opinfo: $(READY)  ## torch's whole operator database, beside aot_eager (about half an hour)
	$(BIN)/python tests/opinfo/run_all.py

triton: $(READY)  ## every Triton kernel of the sample models, compiled for three GPU generations (needs no GPU)
	$(BIN)/python tests/triton_aot.py

gpu: $(READY)  ## tests that need a CUDA device
	$(BIN)/pytest tests/gpu

clean:  ## remove what the targets made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
