# The ways into this repository. Each target installs the programs it is missing (Debian, as root)
# or says what to run.

SHELL := /bin/bash
TARGET := $(or $(CARGO_TARGET_DIR),target)
export FOREBAY ?= $(abspath $(TARGET))/release/forebay
# Seconds after which make soak ends at the next occasion; 0 is never.
SOAK_SECONDS ?= 0
# Kills of the daemon, cuts of its power, and lost SSDs, in one run of the tests of each.
SOAK_KILLS ?= 100
# Crashes for each profile on devices that fail, in one round of make soak.
SOAK_CRASHES ?= 20
# Runs of the simulator in one round of make soak; each has some ten power cuts.
SOAK_RUNS ?= 20000
# Tests at a time in make test: those of the daemon wait more than they work.
TEST_THREADS ?= 6
# What is tested, built once: the simulator wants an optimized engine and planted bugs, and its tests are half of all.
TESTED := --workspace --profile simulation --features forebay-lab/mutations --locked
# The build whose instructions are counted: that which users run.
COUNTED ?= --release --locked -p forebay-engine
# The profile that make doc shares its builds with.
PROFILE ?= dev
# Deaths of the daemon, and at least as many of servers of origins, in make test-origins.
ORIGIN_KILLS ?= 200
# Deaths of the daemon in front of a real cluster and of a real bucket there.
ORIGIN_LIVES ?= 12
# Tests of forebay/tests/guest that make test-guest runs.
GUEST_TESTS ?= nbd ublk boot systemd
# Systems that make versus measures; all, if none is named.
SYSTEMS ?=
# Seconds for each fuzz target.
FUZZ_SECONDS ?= 30

.PHONY: deb test-deb help build demo check test test-guest test-xfstests test-origins doc package test-package deny soak \
	bench bench-engine bench-watching bench-origins versus fuzz

help:
	@echo "make build   the release binary"
	@echo "make demo    a modelled disk with and without a cache in front, in two minutes"
	@echo "make check   the quick lane: format, lints, unit tests, the rules of the tree"
	@echo "make test    everything that CI runs"
	@echo "make test-guest   kernel devices and systemd, in a virtual machine with Debian's kernel (as root;"
	@echo "             GUEST_TESTS=$(GUEST_TESTS))"
	@echo "make test-xfstests   xfstests of file systems on disks and on volumes, in that machine (as root; needs XFSTESTS=DIR)"
	@echo "make test-origins   origins behind NBD, for long: kills (ORIGIN_KILLS=$(ORIGIN_KILLS)), a Ceph cluster, a bucket"
	@echo "make doc     the reference of all crates, in $(TARGET)/doc"
	@echo "make package what a registry would get, built from the packages alone"
	@echo "make test-package   installs it from the packages with cargo install, and serves a cache with it"
	@echo "make deb     the Debian package, in $(TARGET)/debian (needs cargo-deb)"
	@echo "make test-deb  installs, upgrades, removes and purges it in a root of its own"
	@echo "make deny    licences, sources and duplicates of dependencies (needs cargo-deny)"
	@echo "make soak    simulated power cuts, failing devices and kill tests until stopped, or for SOAK_SECONDS"
	@echo "             (SOAK_RUNS=$(SOAK_RUNS), SOAK_CRASHES=$(SOAK_CRASHES), SOAK_KILLS=$(SOAK_KILLS) in a round)"
	@echo "make bench   speed through NBD against qemu-nbd, on block devices in memory (needs root)"
	@echo "make bench-engine   instructions of the engine for a request, against the kept figures (KEEP=1 keeps new ones)"
	@echo "make bench-watching  instructions that metrics, histograms and samples cost a cached read: at most 2 % (release build)"
	@echo "make bench-origins  speed with origins behind NBD, and with a Ceph cluster"
	@echo "make versus  kernel caches and ours over modelled disks, in virtual machines: writes docs/versus.md (SYSTEMS=)"
	@echo "make fuzz    each fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS) (needs cargo-fuzz and nightly)"

build:
	@scripts/tools cc
	cargo build --release --locked -p forebay

demo:
	@scripts/tools cc fio jq
	cargo build --release --locked -p forebay
	scripts/demo

test:
	@scripts/tools cc fio jq nbdinfo nbdcopy nbdfuse fusermount3 nbdkit qemu-nbd openssl mkfs.ext4 e2fsck losetup mount setpriv prlimit flock valgrind promtool systemd-analyze tmux chromium
	cargo fmt --all --check
	cargo clippy $(TESTED) --all-targets -- -D warnings
	$(MAKE) --no-print-directory doc PROFILE=simulation
	RUST_TEST_THREADS=$(TEST_THREADS) cargo test $(TESTED) --lib --bins --tests
	cargo test $(TESTED) --doc
	$(MAKE) --no-print-directory bench-engine

test-guest:
	@scripts/tools cc qemu-system-x86_64 busybox cpio depmod dpkg-deb xz mkfs.ext4 e2fsck mkfs.xfs udevadm setpriv
	cargo build --release --locked -p forebay
	TARGET=$(abspath $(TARGET)) scripts/guest $(GUEST_TESTS)

test-xfstests:
	@scripts/tools cc qemu-system-x86_64 busybox cpio depmod dpkg-deb xz mkfs.ext4 e2fsck
	cargo build --release --locked -p forebay
	TARGET=$(abspath $(TARGET)) scripts/guest-xfstests

test-origins:
	@scripts/tools cc fio jq python3 nbdinfo nbdcopy nbdkit qemu-nbd openssl setpriv
	FOREBAY_KILLS=$(ORIGIN_KILLS) FOREBAY_LIVES=$(ORIGIN_LIVES) \
		cargo test $(TESTED) --test live -- --nocapture --test-threads=2 nbd_origin:: recipes::

check:
	@scripts/tools cc
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo test --workspace --exclude forebay-lab --locked --lib --bins
	cargo test --locked -p forebay --test tidy

doc:
	RUSTDOCFLAGS="-D warnings" cargo doc --profile $(PROFILE) --workspace --no-deps --document-private-items --locked

package:
	@scripts/tools cc
	cargo package --workspace --locked

test-package:
	@scripts/tools cc nbdcopy
	@scripts/test-package

deb:
	@scripts/tools cc dpkg-deb
	@scripts/deb

test-deb:
	@scripts/tools cc dpkg-deb nbdcopy
	@scripts/test-deb

deny:
	@cargo deny --version >/dev/null 2>&1 || { \
		echo "deny: needs cargo-deny; run: cargo install cargo-deny --locked" >&2; exit 1; }
	cargo deny --offline check licenses bans sources

soak:
	@scripts/tools cc setpriv prlimit flock nbdkit nbdfuse fusermount3 nbdcopy mount mkfs.ext4 e2fsck losetup
	cargo build --release --locked -p forebay
	cargo test --release --locked -p forebay --test live --no-run
	@is_over() { (( $(SOAK_SECONDS) > 0 && SECONDS >= $(SOAK_SECONDS) )) && echo "soak: $$SECONDS s without a finding"; }; \
	live() { FOREBAY_SEED=$$seed FOREBAY_KILLS=$$2 FOREBAY_LOSSES=$$2 \
		cargo test --release --locked -p forebay --test live -- --nocapture $$1; }; \
	for ((round = 1; ; round++)); do \
		seed=$$(($$(date +%s%N) / 1000)); \
		echo "soak: round $$round, seed $$seed"; \
		$(FOREBAY) lab verify --json --seed $$seed --runs $(SOAK_RUNS) || exit 1; \
		is_over && exit 0; \
		$(FOREBAY) lab verify --json --mixed --seed $$seed --runs $(SOAK_RUNS) || exit 1; \
		is_over && exit 0; \
		live judge:: $(SOAK_CRASHES) || exit 1; \
		is_over && exit 0; \
		live kills:: $(SOAK_KILLS) || exit 1; \
		is_over && exit 0; \
		live order:: $(SOAK_KILLS) || exit 1; \
		is_over && exit 0; \
	done

bench:
	@scripts/tools cc fio jq nbdkit nbdcopy qemu-nbd
	cargo build --release --locked -p forebay
	scripts/bench

bench-origins:
	@scripts/tools cc fio jq python3 nbdkit nbdcopy qemu-nbd setpriv
	cargo build --release --locked -p forebay
	scripts/bench-origins

versus:
	@scripts/tools cc qemu-system-x86_64 busybox cpio depmod xz jq fio dmsetup
	cargo build --release --locked -p forebay
	@TARGET=$(abspath $(TARGET)) versus/run $(SYSTEMS); status=$$?; \
		cargo run --quiet --release --locked -p forebay --example versus -- docs/versus.json docs && exit $$status

bench-engine:
	@scripts/tools cc jq valgrind
	@COUNTED="$(COUNTED)" KEEP="$(KEEP)" scripts/bench-engine

bench-watching:
	@scripts/tools cc fio jq valgrind
	cargo build --release --locked -p forebay
	@scripts/bench-watching

fuzz:
	@cargo +nightly fuzz --version >/dev/null 2>&1 || { \
		echo "fuzz: needs cargo-fuzz and a nightly toolchain; run: rustup toolchain install nightly && cargo install cargo-fuzz" >&2; \
		exit 1; }
	@set -e; for target in $$(cargo +nightly fuzz list); do \
		cargo +nightly fuzz run "$$target" -- -max_total_time=$(FUZZ_SECONDS); \
	done
