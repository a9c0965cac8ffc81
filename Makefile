# Every target sets up what it needs: see tests/need and tests/with-postgres. ARGS goes to the program that runs.
SHELL := /bin/bash
CARGO ?= cargo
BUF := npx --yes @bufbuild/buf@1.75.0
NEED := CARGO='$(CARGO)' tests/need
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help run test test-secured test-interruptions test-clients lint deny released-proto dist test-reproducible \
	test-deploy test-deploy-cluster test-deploy-image

help: ## Lists the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
		while IFS='|' read -r target what; do printf '%-24s %s\n' "$$target" "$$what"; done

run: ## Builds the service and serves on the embedded store: make run ARGS='--listen 127.0.0.1:50052'
	@$(NEED) rust cc
	$(CARGO) run --locked -- serve $(ARGS)

test: ## Runs every Rust test, on SQLite and on a private, throw-away PostgreSQL; three a processor, for most wait
	@$(NEED) rust cc pgbouncer
	RUST_TEST_THREADS="$${RUST_TEST_THREADS:-$$((3 * $$(getconf _NPROCESSORS_ONLN)))}" \
		RUNLEDGER_TEST_OLDER="$$(tests/older-release)" RUNLEDGER_TEST_PROMTOOL="$$(tests/promtool)" \
		RUNLEDGER_TEST_IN_MEMORY="$${RUNLEDGER_TEST_IN_MEMORY-1}" tests/with-postgres $(CARGO) test --locked --workspace --no-fail-fast $(ARGS)

test-interruptions: ## Goes through interruptions of all lengths on the real binary, for minutes, and says which workers died
	@$(NEED) rust cc
	RUNLEDGER_TEST_INTERRUPTIONS=1 tests/with-postgres $(CARGO) test --locked --test it -- interruptions --nocapture $(ARGS)

test-secured: ## Runs the tests of calls, processes and commands once more with TLS and a token on every wire: 12 minutes
	@$(NEED) rust cc pgbouncer
	CARGO='$(CARGO)' tests/with-postgres tests/secured $(ARGS)

test-clients: ## Runs the tests of generated clients (Go, Java, Python, TypeScript) against the real binary
	@$(NEED) rust cc node python go java
	$(CARGO) build --locked
	tests/clients/run
	tests/clients/older

lint: ## Checks format, lints, documentation links and the proto
	@$(NEED) rust cc node
	@$(CARGO) fmt --version >/dev/null 2>&1 || rustup component add rustfmt
	@$(CARGO) clippy --version >/dev/null 2>&1 || rustup component add clippy
	@least="$$(sed -nE 's/^rust-version = "(.*)"/\1/p' Cargo.toml)"; grep -qE "^channel = \"$$least\.[0-9]+\"" rust-toolchain.toml || \
		{ echo "rust-toolchain.toml has no release of the rust-version in Cargo.toml, $$least" >&2; exit 1; }
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --workspace --no-deps
	$(BUF) lint
	$(BUF) breaking --against proto/released.binpb

released-proto: ## Writes the API of the last release anew, which `lint` holds the proto against: once a release
	@$(NEED) rust cc node
	BUF='$(BUF)' release/proto

deny: ## Checks licences, bans, sources and known vulnerabilities of what the service depends on
	@$(NEED) rust cc
	CARGO='$(CARGO)' release/deny

dist: ## Builds what a release hands out, into target/dist: the binary in a tar.gz, its SBOM, and checksums
	@$(NEED) rust cc node
	CARGO='$(CARGO)' release/dist

test-reproducible: ## Builds a release twice in two folders, and compares: two release builds, 20 to 40 minutes
	@$(NEED) rust cc node
	CARGO='$(CARGO)' release/reproducible

test-deploy: ## Holds the Helm chart, on an API server where test-deploy-cluster built one: a minute, and 5 the first time
	@$(NEED) rust cc
	$(CARGO) build --locked
	tests/deploy/chart
	tests/deploy/cluster

test-deploy-cluster: ## Builds a Kubernetes API server, once, in 20 to 60 minutes, and holds the chart on it
	@$(NEED) rust cc go
	tests/deploy/kubernetes
	$(CARGO) build --locked
	tests/deploy/cluster

test-deploy-image: ## Builds the image and runs it read-only, as root of a Debian: 15 minutes
	@$(NEED) rust cc
	tests/deploy/image
