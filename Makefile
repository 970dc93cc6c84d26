# brisk: see README.md. Every target does its own set-up on Debian (lab/deps, as root).

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
BRISK = target/release/brisk

# Features that are off by default and have tests of their own.
EVERYTHING = --features brisk/lzo-encode,brisk-image/rust-decoders

.PHONY: all compiler smoke demo test bench figures launches fuzz torture sanitize install install-system deps clean

# brisk itself is linked statically where there is a static C library: a launch from cold then reads no library and no
# cache of the loader's. It asks the library for no names of users or hosts.
archive = $(wildcard $(shell cc -print-file-name=$(1)))
STATIC = $(and $(call archive,libc.a),$(call archive,libgcc_eh.a),-C target-feature=+crt-static)
all: compiler
	$(CARGO) build --release --locked -p brisk -p brisk-lab --bin brisk-tools --bin brisk-lab --bin brisk-reads
	$(CARGO) rustc --release --locked -p brisk --bin brisk -- $(STATIC)

# Starts programs with what was built.
smoke: all
	lab/smoke $(BRISK) $(if $(STATIC),static,dynamic)

# Traces a real program, packs it, starts it from the image, and measures what that gained.
demo: deps
	lab/demo --check
	$(MAKE) all
	lab/demo $(BRISK)

# All tests, with all decoders and encoders. Root mounts real images; the tests say what is missing if a tool is.
# Programs that they start are sent signals, which a shell that runs this in the background has them ignore.
test: deps
	env --default-signal=HUP,INT,QUIT $(CARGO) test --workspace --locked $(EVERYTHING)

# What takes too long for every day: the full cross product, files over 4 GiB, memory bounds.
torture: deps
	CARGO_TARGET_DIR=target/torture $(CARGO) test --workspace --locked --release $(EVERYTHING) -- --ignored --skip regenerate

# brisk beside squashfs-tools and the kernel, on the trees of lab/tree: `make bench TREES=DIR` to keep the trees.
TREES ?= target/trees
RUNS ?= 7
bench: deps all
	lab/tree python $(TREES)/python
	lab/tree chromium $(TREES)/chromium
	$(CARGO) run --release --locked --manifest-path bench/Cargo.toml --bin image -- \
		--brisk $(BRISK) --tree $(TREES)/python --tree $(TREES)/chromium \
		--runs $(RUNS) --out target/bench/image
	$(CARGO) run --release --locked --manifest-path bench/Cargo.toml --bin session -- \
		--brisk $(BRISK) --python $(TREES)/python --chromium $(TREES)/chromium \
		--runs $(RUNS) --out target/bench/session

# Two tables, in the README and in docs/benchmarks.md, and docs/launches.svg are made from these raw runs, and a test
# compares them. The picture is of the first.
FIGURES = $(addprefix docs/runs/2026-11-2, 2-launches-chromium-amd.json 2-launches-python-amd.json \
	2-launches-chromium-amd-2000iops.json 3-launches-chromium-amd-200m.json 2-launches-python-amd-2000iops.json)
figures: export FORMATS = directory,directory-replay/another,brisk-speed/another,brisk-size/another
figures: deps all
	lab/figures $(BRISK) README.md docs/benchmarks.md docs/launches.svg $(FIGURES)

# The launches of the README and docs/benchmarks.md, one experiment after the other: hours, on a machine with nothing
# else to do. Raw runs go to OUT, and none is overwritten: `make launches RUNS=10 OUT=docs/runs`.
OUT ?= target/launches
launches: deps all
	lab/launches $(BRISK) $(TREES) $(OUT) $(RUNS)

# Each fuzz target for SECONDS.
SECONDS ?= 1800
fuzz: deps
	fuzz/run read $(SECONDS)
	fuzz/run launch $(SECONDS)
	fuzz/run round_trip $(SECONDS)

# The room with unsafe code, under AddressSanitizer. Needs a nightly toolchain, which rustup installs. Mappings
# that handlers of signals look for live as long as the process.
TARGET = $(shell rustc -vV | sed -n 's/^host: //p')
sanitize:
	RUSTFLAGS="-Zsanitizer=address" ASAN_OPTIONS=detect_leaks=0:handle_sigbus=0:use_sigaltstack=0 \
		CARGO_TARGET_DIR=target/sanitize \
		$(CARGO) +nightly test --locked -p brisk-io --features io-uring --tests --target $(TARGET)

# What `make` has built: nothing is built here, as root may have no toolchain. brisk works without brisk-lab, which
# measures: a package may leave it out.
install:
	@test -x $(BRISK) || { echo "there is no $(BRISK); run make first" >&2; exit 1; }
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/bin $(BRISK) $(BRISK)-tools $(BRISK)-lab
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	$(BRISK) man $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	$(BRISK) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/brisk
	install -d $(DESTDIR)$(PREFIX)/share/zsh/site-functions
	$(BRISK) completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_brisk
	install -d $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(BRISK) completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/brisk.fish

# For all users of the system.
install-system:
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system $(DESTDIR)$(PREFIX)/lib/systemd/user
	sed 's#/usr/local/bin/brisk#$(PREFIX)/bin/brisk#' contrib/systemd/brisk-warm.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/brisk-warm.service
	sed 's#/usr/local/bin/brisk#$(PREFIX)/bin/brisk#' contrib/systemd/brisk-replay.service > $(DESTDIR)$(PREFIX)/lib/systemd/user/brisk-replay.service
	install -D -m 644 packaging/apparmor $(DESTDIR)/etc/apparmor.d/brisk

deps:
	lab/deps

compiler:
	lab/deps --build

clean:
	$(CARGO) clean
