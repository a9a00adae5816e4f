# The one way to do things. `make` alone lists them.

SHELL := /bin/sh
export PATH := $(HOME)/.cargo/bin:$(PATH)

# The lock file decides versions, and committed query metadata stands for a database.
CARGO := cargo
LOCKED := --locked
export SQLX_OFFLINE := true

ARGS ?=
MINUTES ?= 60
CLAIMS ?= 0
PROFILE ?= test
LEDGER_STEPS ?= 25000

.DEFAULT_GOAL := help
.PHONY: help setup demo check tidy test unit chaos soak test-llm

help: ## this list
	@sed -n 's/^\([a-z%-]*\):[^#]*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r target what; do printf '%-18s %s\n' "$$target" "$$what"; done

setup: ## install what is missing, and say what and why
	@scripts/setup

demo: setup ## agent turns of two tenants, a waiting run, a takeover (ARGS=--once ends by itself)
	@$(CARGO) run $(LOCKED) --quiet --package tidegate -- demo $(ARGS)

tidy: ## ranks, sizes, links, words, licences, citations
	$(CARGO) xtask tidy

check: tidy ## what a commit must pass before its tests: tidy, format, lints, generated files
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(LOCKED) --workspace --all-targets --features xtask/database -- -D warnings
	$(CARGO) clippy $(LOCKED) --workspace --test chaos --features xtask/database -- -D warnings
	$(CARGO) xtask sqlx --check
	$(CARGO) xtask openapi --check
	$(CARGO) xtask config --check

unit:
	$(CARGO) test $(LOCKED) --workspace

# Tests that kill servers and fill disks run one after the other, in a binary of their own that
# `cargo test` leaves out (`test = false`).
chaos: ## kill, freeze, partition; one at a time
	$(CARGO) test $(LOCKED) --workspace --test chaos -- --test-threads=1 $(ARGS)

test: setup check unit chaos ## everything that must pass

soak: setup ## MINUTES (60) and CLAIMS (0) of load while everything goes wrong, then LEDGER_STEPS (25000) of the ledger (PROFILE=release is faster)
	TIDEGATE_SOAK_SECONDS=$$(($(MINUTES) * 60)) TIDEGATE_SOAK_CLAIMS=$(CLAIMS) \
		$(CARGO) test $(LOCKED) --profile $(PROFILE) --workspace --test chaos -- \
		--test-threads=1 --nocapture soak $(ARGS)
	TIDEGATE_LEDGER_STEPS=$(LEDGER_STEPS) $(CARGO) test $(LOCKED) --profile $(PROFILE) --workspace --test ledger -- \
		--nocapture every_history

# By package, not by workspace: the failpoints of the test kit must not be in what is measured.
bench-%: setup ## one benchmark by name: bench-queue, bench-grants (ARGS="--help" says what it takes)
	$(CARGO) build $(LOCKED) --profile bench --package tidegate
	$(CARGO) bench $(LOCKED) --package tidegate-bench --bench $* -- $(ARGS)

test-llm: setup ## a turn against a small real model on this machine
	@scripts/test-llm
