# The dev loop, from nothing but Python 3.11 (or newer) and make.
PYTHON ?= python3
ROOM ?=
REPORTS ?=
ARGS ?=
BIN = .venv/bin
unexport PYTHONDONTWRITEBYTECODE  # or each process compiles 2,000 modules anew

.PHONY: atlas check sheet test test-slow lint tables stale docs pictures bench outside examined clean

atlas: .venv/core  ## the product's first command: the course in the browser
	@$(BIN)/vade atlas $(ARGS)

check: .venv/core  ## run every claim of the course
	@$(BIN)/vade check $(ARGS)

# A claim that does not hold is printed as such; then the last line of both fails.
sheet: .venv/core  ## the formula sheet for print: build/sheet-cheat.pdf, build/sheet-full.pdf
	@$(if $(REPORTS),,$(BIN)/vade check --json build/claims.json || true)
	@for form in cheat full; do \
	  $(BIN)/vade sheet --form $$form --reports $(or $(REPORTS),build/claims.json) \
	    --out build/sheet-$$form.pdf $(ARGS) || code=$$?; \
	done; exit $${code:-0}

# One thread a worker: threads that wait for each other on busy cores cost more than they bring.
# A file a worker: what its tests share is made once, and handing out tests one by one costs more
# the more there are (12,000 empty ones took 33 CPU seconds, by files 19).
test: .venv/dev  ## every test, doctest and claim that is not slow
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile -q -m "not slow" $(ARGS)

test-slow: .venv/dev  ## the slow ones: browsers, servers under load, clusters
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadgroup -q -m slow tests $(ARGS)

lint: .venv/dev  ## formatting, lint, types: what CI and pre-commit run
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright

tables: .venv/dev  ## regenerate the README's room table and the pages on claims, errata and speed
	$(BIN)/python docs/tables.py

stale: .venv/dev  ## whether those are as `make tables` would write them (REPORTS=FILE: of that run)
	$(BIN)/python docs/tables.py --check $(if $(REPORTS),--reports $(REPORTS))

docs: .venv/dev  ## the documentation, in docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -q docs docs/_build/html

pictures: .venv/dev  ## redraw the README's pictures
	$(BIN)/python docs/pictures.py

bench: .venv-bench/ready  ## ours against the peers: make bench ROOM=connectionism
	.venv-bench/bin/python -m bench $(ROOM)

outside: .venv-bench/outside  ## every instrument on models that nobody here wrote
	.venv-bench/bin/python -m bench.outside $(ARGS)

examined: .venv-bench/outside  ## the dossiers of twenty models that nobody here wrote
	.venv-bench/bin/python -m bench.outside.examined $(ARGS)

clean:
	rm -rf .venv .venv-bench .venv-neural-tangents docs/_build

.venv/core: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Setting up .venv (the first time this takes a minute or two) ..."
	@$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e ".[atlas,data]"
	@touch $@

.venv/dev: .venv/core
	@echo "Adding the development tools ..."
	@$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

.venv-bench/ready: pyproject.toml constraints.txt bench/peers.txt
	@test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	@echo "Setting up .venv-bench with the peers ..."
	@.venv-bench/bin/pip install -q --disable-pip-version-check -c constraints.txt -e ".[bench]"
	@.venv-bench/bin/pip install -q --disable-pip-version-check --no-deps -r bench/peers.txt
	@touch $@

.venv-neural-tangents/ready: bench/neural_tangents.txt
	@test -x .venv-neural-tangents/bin/python || python3.11 -m venv .venv-neural-tangents
	@echo "Setting up neural-tangents, which needs a JAX of 2023 ..."
	@.venv-neural-tangents/bin/pip install -q --disable-pip-version-check --no-deps -r $<
	@touch $@

.venv-bench/outside: .venv-bench/ready bench/outside.txt
	@echo "Adding the models from outside ..."
	@.venv-bench/bin/pip install -q --disable-pip-version-check --no-deps -r bench/outside.txt
	@touch $@
