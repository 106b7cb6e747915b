# The two commands of the README are `make demo` and `make test`; both install what they need, or say how.

target   := x86_64-unknown-linux-gnu
penstock := target/$(target)/release/penstock
model    ?= examples/xeon-d.yaml

.PHONY: demo test build lint bench fuzz clean

demo: build
	$(penstock) rehearse $(model)

build:
	@scripts/install-dependencies
	cargo build --release --locked --package penstock-cli

# The optimised binary is what runs inside the boards that the tests boot.
test: build lint
	@scripts/install-dependencies test
	$(penstock) board image
	PENSTOCK_BINARY=$(CURDIR)/$(penstock) cargo test --workspace --locked --no-fail-fast

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

bench: build
	$(penstock) board image
	PENSTOCK_BINARY=$(CURDIR)/$(penstock) cargo bench --locked --package penstock-cli

# Each target for a minute; `make fuzz seconds=3600 targets=model` for longer. Needs clang's sanitizer runtime.
seconds ?= 60
targets ?= $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
fuzz:
	@command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
	for t in $(targets); do RUSTC_BOOTSTRAP=1 cargo fuzz run $$t -- -max_total_time=$(seconds) || exit 1; done

clean:
	cargo clean
