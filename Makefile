# `make demo` shows it, `make test` proves it, `make bench` measures it.

CARGO ?= cargo
# What to measure: see `make bench RUN=help`.
RUN ?= all

.PHONY: build demo test check drivers bench deb

build:
	$(CARGO) build --release --package howdah

# A PostgreSQL of its own in a temporary folder; nothing is left behind.
demo: build
	$(CARGO) run --release --quiet --package howdah-demo

# Everything, on a machine that may have nothing yet.
test:
	ci/install
	ci/check

# The same without installing anything.
check:
	ci/check

# Well-known drivers and tools, through the pooler; `make drivers RUN=pgx` for one of them, RUN=--quick for one of each language.
drivers:
	$(CARGO) build --package howdah
	tests/drivers/run-all $(filter-out all,$(RUN))

bench: build
	$(CARGO) run --release --quiet --package howdah-bench -- $(RUN)

# Debian packages, into target/debian; as root, packaging/check installs them, tries them and takes them away.
deb:
	packaging/deb
