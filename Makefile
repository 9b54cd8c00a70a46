# The ways into this repository. Each target installs the programs it is missing (Debian, as root)
# or says what to run.

SHELL := /bin/bash
TARGET := $(or $(CARGO_TARGET_DIR),target)
export FOREBAY ?= $(abspath $(TARGET))/release/forebay
# Kills of the daemon, and cuts of its power, in one run of the kill tests.
SOAK_KILLS ?= 500
# Runs of the simulator in one round of make soak; each has some ten power cuts.
SOAK_RUNS ?= 20000
# Seconds for each fuzz target.
FUZZ_SECONDS ?= 30

.PHONY: help build demo check test doc package deny soak bench fuzz

help:
	@echo "make build   the release binary"
	@echo "make demo    a modelled disk with and without a cache in front, in two minutes"
	@echo "make check   the quick lane: format, lints, unit tests, the rules of the tree"
	@echo "make test    everything that CI runs"
	@echo "make doc     the reference of all crates, in $(TARGET)/doc"
	@echo "make package what a registry would get, built from the packages alone"
	@echo "make deny    licences, sources and duplicates of dependencies (needs cargo-deny)"
	@echo "make soak    simulated power cuts and kill tests until stopped (SOAK_RUNS=$(SOAK_RUNS), SOAK_KILLS=$(SOAK_KILLS) in a round)"
	@echo "make bench   speed through NBD against nbdkit's file plugin"
	@echo "make fuzz    each fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS) (needs cargo-fuzz and nightly)"

build:
	@scripts/tools cc
	cargo build --release --locked -p forebay

demo:
	@scripts/tools cc fio jq
	cargo build --release --locked -p forebay
	scripts/demo

test:
	@scripts/tools cc fio jq nbdinfo nbdcopy nbdfuse fusermount3 nbdkit mkfs.ext4 e2fsck losetup mount setpriv prlimit flock
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	$(MAKE) --no-print-directory doc
	cargo test --workspace --exclude forebay-lab --locked
	cargo test --profile simulation --locked -p forebay-lab --features mutations

check:
	@scripts/tools cc
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo test --workspace --exclude forebay-lab --locked --lib --bins
	cargo test --locked -p forebay --test tidy

doc:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --locked

package:
	@scripts/tools cc
	cargo package --workspace --locked

deny:
	@cargo deny --version >/dev/null 2>&1 || { \
		echo "deny: needs cargo-deny; run: cargo install cargo-deny --locked" >&2; exit 1; }
	cargo deny --offline check licenses bans sources

soak:
	@scripts/tools cc setpriv prlimit flock
	cargo build --release --locked -p forebay
	cargo test --release --locked -p forebay --test live --no-run
	@for ((round = 1; ; round++)); do \
		echo "soak: round $$round"; \
		$(FOREBAY) lab verify --json --runs $(SOAK_RUNS) || exit 1; \
		FOREBAY_KILLS=$(SOAK_KILLS) FOREBAY_SEED=$$(($$(date +%s%N) / 1000)) \
			cargo test --release --locked -p forebay --test live -- --nocapture kills:: || exit 1; \
	done

bench:
	@scripts/tools cc fio jq nbdkit nbdcopy
	cargo build --release --locked -p forebay
	scripts/bench

fuzz:
	@cargo +nightly fuzz --version >/dev/null 2>&1 || { \
		echo "fuzz: needs cargo-fuzz and a nightly toolchain; run: rustup toolchain install nightly && cargo install cargo-fuzz" >&2; \
		exit 1; }
	@set -e; for target in $$(cargo +nightly fuzz list); do \
		cargo +nightly fuzz run "$$target" -- -max_total_time=$(FUZZ_SECONDS); \
	done
