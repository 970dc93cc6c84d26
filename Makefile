# brisk: see README.md. On Debian, every target installs what it needs (workshop/lab/deps, as root).

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
# `make PROFILE=dev` builds without optimisation, into target/debug.
PROFILE ?= release
# `make MACHINE=aarch64` builds for another machine than this one, with Debian's cross compiler.
MACHINE ?= $(shell uname -m)
CROSS = $(filter-out $(shell uname -m),$(MACHINE))
GNU = $(MACHINE)-unknown-linux-gnu
MUSL = $(MACHINE)-unknown-linux-musl
BUILT = target/$(if $(CROSS),$(GNU)/)$(PROFILE:dev=debug)
BRISK = $(BUILT)/brisk
# What asks other hosts: `make LIBC=musl` links it statically, too.
LIBC ?= glibc
ASKING = $(if $(filter musl,$(LIBC)),target/$(MUSL)/$(PROFILE:dev=debug)/,$(dir $(BRISK)))
# Debian has no compiler for musl on other machines. ring and blake3, the only C code there, use nothing that glibc's headers
# declare otherwise. musl lacks a symbol that atomics out of line need.
ifneq ($(CROSS),)
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER = aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER = aarch64-linux-gnu-gcc
export CC_aarch64_unknown_linux_musl = aarch64-linux-gnu-gcc
export CFLAGS_aarch64_unknown_linux_musl = -mno-outline-atomics
endif

# Features that are off by default and have tests of their own.
EVERYTHING = --features brisk/lzo-encode,brisk-image/rust-decoders,brisk-http/blocking,brisk-http/json,$\
brisk-cache/rkyv,brisk-cache/tokio,brisk-cache/bytes,brisk-objects/tokio,brisk-objects/uuid

# Published cases that are measured anew.
CASES = case-leyden case-uv case-squashfs case-siaqodb

.PHONY: all starters bundle compiler dist tarball deb unpacked licences smoke smoke-tested demo check test python wheel conformance bench figures launches proxy-figures index-figures objects-figures caches-figures datasets $(CASES) reporter fuzz torture torture-cache trust sanitize install install-system uninstall deps clean

# What looks up no name of a host is linked statically if there is a static C library. A cold start then reads no library and no
# cache of the loader. A static glibc would look names up with the libraries that /etc/nsswitch.conf names, of another
# glibc, so what asks other hosts is linked dynamically, or against musl.
archive = $(wildcard $(shell $(if $(CROSS),$(MACHINE)-linux-gnu-gcc,cc) -print-file-name=$(1)))
STATIC = $(and $(call archive,libc.a),$(call archive,libgcc_eh.a))
flags = --profile $(1) --locked $(if $(CROSS),--target $(GNU))
linked = $(CARGO) rustc $(call flags,$(PROFILE)) -p $(1) --bin $(2) $(if $(STATIC),-- -C target-feature=+crt-static)
all: compiler starters bundle
	$(call linked,brisk,brisk-tools)
	$(call linked,brisk-lab,brisk-lab)
	$(call linked,brisk-lab,brisk-reads)
	$(call linked,brisk-db,brisk-db)
	$(CARGO) build $(if $(filter musl,$(LIBC)),--profile $(PROFILE) --locked --target $(MUSL),$(call flags,$(PROFILE))) \
		-p brisk-fetch -p brisk-proxy --bin brisk-fetch --bin brisk-proxy

starters:
	$(call linked,brisk,brisk)
	$(call linked,brisk,brisk-run)

# The program in front of the image of each bundle, linked statically, too. A release has it in its own profile, because each
# bundle carries it.
BUNDLE = $(if $(filter release,$(PROFILE)),bundle,$(PROFILE))
bundle:
	$(CARGO) rustc $(call flags,$(BUNDLE)) -p brisk-bundle --bin brisk-bundle $(if $(STATIC),-- -C target-feature=+crt-static -C link-args='-z pack-relative-relocs')
	$(if $(filter release,$(PROFILE)),install -D -t $(BUILT) $(patsubst %/release,%/bundle,$(BUILT))/brisk-bundle)

# Tests what was built: starts programs with it.
smoke: all
	workshop/lab/smoke $(BRISK) $(if $(STATIC),static,dynamic) without-lzo

# The same with what `make test` has built.
smoke-tested:
	workshop/lab/smoke target/debug/brisk dynamic lzo

# Traces a real program, packs it, starts it from the image, and measures how much faster that is. Builds what the demo
# starts, and not the proxy or the databases.
demo: PROFILE = demo
demo: deps
	workshop/lab/demo --check
	$(MAKE) PROFILE=$(PROFILE) starters
	$(CARGO) build --profile $(PROFILE) --locked -p brisk -p brisk-lab --bin brisk-tools --bin brisk-lab
	workshop/lab/demo $(BRISK)

# What a change should pass before anything else: form, lints, and the tests that need neither root nor other programs.
check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) test --workspace --locked --lib --bins $(EVERYTHING)

# All tests, with all decoders and encoders. As root they mount real images. If a tool is missing, they name it.
# Tests send signals to programs that they start. A shell that runs make in the background makes its children ignore some
# of these signals, so env restores the default. Many tests wait for processes of theirs, so more of them run than there are processors.
test: deps
	RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$$((2 * $$(nproc)))} CARGO="$(CARGO)" env --default-signal=HUP,INT,QUIT \
		workshop/lab/tests --first launch,session,differential,remote --workspace --locked $(EVERYTHING)

# Builds the wheel of the Python module without optimisation, and tests it by pytest, in a virtual environment of its own. The
# program in it is the one that `make test` has built, with the same features, and so is the one by which tests publish images.
PYTHON = target/tools/python
python: deps $(PYTHON)/made
	$(CARGO) build --workspace --locked $(EVERYTHING) --bin brisk-fetch --bin brisk-tools
	rm -rf target/python
	$(call module,dev,target/python)
	$(call add_programs,target/python,target/debug/brisk-fetch)
	$(PYTHON)/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps target/python/brisk-*.whl
	BRISK_TOOLS=$(abspath target/debug/brisk-tools) $(PYTHON)/bin/python -m pytest --quiet -p no:cacheprovider start/brisk-python/tests

# Makes one wheel in target/wheels, with the Python module and programs: `pip install` gives both, and `pipx install` the command brisk.
# It has no brisk-lab, brisk-proxy and brisk-db, as a small package: brisk works without them.
wheel: all licences $(PYTHON)/made
	rm -rf target/wheels
	$(call module,$(PROFILE),target/wheels)
	LICENCES=target/LICENCES $(call add_programs,target/wheels,$(BRISK) $(addprefix $(BRISK)-,run tools bundle fetch))

module = $(PYTHON)/bin/maturin build --quiet --profile $(1) --locked --compatibility linux --manifest-path start/brisk-python/Cargo.toml \
	--target-dir $(abspath target) --out $(2)/module
add_programs = start/brisk-python/add-programs $(PYTHON) $(1)/module/brisk-*.whl $(1) $(2)

$(PYTHON)/made: start/brisk-python/tests/requirements.txt
	python3 -m venv --clear $(PYTHON)
	$(PYTHON)/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

# Runs the public suite of cache tests, by its own runner, against brisk proxy, a private cache, nginx, Squid, Varnish and no
# cache at all, and writes all verdicts to RESULT. Fails if brisk's verdicts are others than docs/conformance.md says. This
# takes eight minutes. The suite is that of npm, or a checkout: `make conformance SUITE=DIR RESULT=FILE`.
conformance: RESULT = target/conformance/$(STARTED).json
conformance: STARTED := $(shell date -u +%Y-%m-%dT%H%M%SZ)
conformance:
	workshop/lab/deps --conformance
	$(CARGO) build --profile $(PROFILE) --locked -p brisk-proxy --bin brisk-proxy --example private_cache
	node workshop/lab/conformance/run.mjs --proxy $(BRISK)-proxy --private $(dir $(BRISK))examples/private_cache \
		$(if $(SUITE),--suite $(SUITE)) --work target/conformance --out $(RESULT)
	BRISK_CACHE_TESTS=$(abspath target/conformance/suite.json) BRISK_CONFORMANCE_RUN=$(abspath $(RESULT)) \
		$(CARGO) test --locked -p brisk-http --test conformance -- --ignored --nocapture the_suites_own_runner_agrees

# Tests that take too long for every day: all combinations, files over 4 GiB, memory limits. The current suite of
# docs/conformance.md is not part of this repository. The programs of workshop/bench with their rivals, of which uv's need Rust 1.97.
torture: deps torture-cache
	CARGO_TARGET_DIR=target/torture $(CARGO) test --workspace --locked --release --no-fail-fast $(EVERYTHING) -- \
		--ignored --show-output --skip regenerate --skip thousand_kills --skip the_current_suite --skip the_suites_own_runner_agrees
	$(CARGO) test --locked --manifest-path workshop/bench/Cargo.toml --features cache-rivals,object-stores --test caches --test objects
	cargo +1.97.0 test --locked --manifest-path workshop/bench/Cargo.toml --target-dir workshop/bench/target/index \
		--features index-ways --test index_ways

# The figures of "What trust costs" in docs/benchmarks.md that no launch is measured for: flipped bits, hostile images and
# mutated images. Each line prints its figure, and fails where a promise is broken. Takes half an hour, as root, on a
# machine that does nothing else.
TRUST = $(CARGO) test --release --locked -p brisk
trust: deps
	$(TRUST) --lib no_flipped_bit_of_forty_thousand -- --ignored --nocapture
	$(TRUST) --test verified three_hundred -- --ignored --nocapture
	BRISK_MOST_SECONDS=2 $(TRUST) --test bounds -- --nocapture --test-threads 1
	$(TRUST) --test mutations ten_thousand -- --ignored --nocapture

# Kills processes that share a cache, 1,000 times, some of them in PID namespaces of their own (this needs root). Prints
# the seed. `make torture-cache SEED=7 KILLS=100 TORTURE_DIR=/mnt` runs that one, 100 times, on another disk.
torture-cache:
	CARGO_TARGET_DIR=target/torture $(CARGO) test -p brisk-cache --lib --locked --release -- --ignored --nocapture thousand_kills

# Compares brisk with squashfs-tools and the kernel, on the trees of workshop/lab/tree. `make bench TREES=DIR` keeps the trees.
TREES ?= target/trees
RUNS ?= 7
bench: deps all
	workshop/lab/tree python $(TREES)/python
	workshop/lab/tree chromium $(TREES)/chromium
	$(CARGO) run --release --locked --manifest-path workshop/bench/Cargo.toml --bin image -- \
		--brisk $(BRISK) --tree $(TREES)/python --tree $(TREES)/chromium \
		--runs $(RUNS) --out target/bench/image
	$(CARGO) run --release --locked --manifest-path workshop/bench/Cargo.toml --bin session -- \
		--brisk $(BRISK) --python $(TREES)/python --chromium $(TREES)/chromium \
		--runs $(RUNS) --out target/bench/session

# Makes the tables of the README and of pages in docs, and docs/launches.svg, from the raw runs that the pages name. A test
# checks that they are up to date.
REPORT = workshop/bench/target/release/report
figures: deps all reporter
	workshop/lab/figures $(BRISK) $(REPORT) README.md docs/benchmarks.md docs/bundle.md docs/python.md

reporter:
	$(CARGO) build --release --locked --manifest-path workshop/bench/Cargo.toml --target-dir workshop/bench/target --bin report

# Measures the launches of the README and docs/benchmarks.md, one experiment after the other. This takes an hour or two,
# on a machine that does nothing else. Raw runs go to OUT, and none is overwritten: `make launches RUNS=10 OUT=target/launches`.
OUT ?= target/launches
launches: deps all
	workshop/lab/deps --auto
	workshop/lab/launches $(BRISK) $(TREES) $(OUT) $(RUNS)

# Measures brisk proxy against nginx and a distant package index, its memory, pages and a 304: 15 to 20 minutes on a machine that
# does nothing else, and 11 GB of disk. The raw run goes to PROXY_OUT, and none is overwritten.
PROXY_OUT ?= target/proxy-figures
proxy-figures:
	workshop/lab/deps --proxy
	$(CARGO) build --release --locked -p brisk-proxy --bin brisk-proxy
	workshop/lab/proxy-figures target/release/brisk-proxy $(PROXY_OUT) --runs $(RUNS)

# Measures ways of reading a package index, on real pages, which it downloads from INDEX_URL if target/index-pages has none.
# 20 minutes on a machine that does nothing else, and 10 GB of disk. Needs Rust 1.97 beside the usual one. The raw
# run goes to INDEX_OUT, and none is overwritten.
INDEX_OUT ?= target/index-figures
index-figures: deps
	workshop/lab/experiment index-ways $(INDEX_OUT) --runs $(RUNS)

# Measures stores of typed records against each other: 15 minutes on a machine that does nothing else, and 4 GB of disk. The
# raw run goes to OBJECTS_OUT, and none is overwritten.
OBJECTS_OUT ?= target/objects-figures
objects-figures: deps
	workshop/lab/experiment objects $(OBJECTS_OUT) --runs $(RUNS) --disk iops=2000

# Measures caches on disk against each other, on a machine that does nothing else. The raw run goes to CACHES_OUT, and none is
# overwritten.
CACHES_OUT ?= target/caches-figures
caches-figures: deps
	workshop/lab/experiment caches $(CACHES_OUT) --runs $(RUNS) --disk iops=2000

# Measures how fast Python reads small files at random, out of images, archives and databases: on a machine that does nothing else.
# The raw run goes to DATASETS_OUT, which must not exist. `make datasets DATASETS="--drop-caches"` also forgets inodes, as root.
DATASETS_OUT ?= target/datasets.json
datasets: deps wheel
	python3 -m venv --clear target/tools/datasets
	target/tools/datasets/bin/pip install --quiet --disable-pip-version-check -r workshop/lab/datasets.txt target/wheels/brisk-*.whl
	target/tools/datasets/bin/python workshop/lab/datasets target/datasets $(DATASETS_OUT) --runs $(RUNS) $(DATASETS)

# Each measures one published case anew, and fails if its bound does not hold (workshop/README.md), on a machine that does nothing
# else. Raw runs go to CASES_OUT, and none is overwritten. case-squashfs needs root, and case-uv Rust 1.97 and a package index.
CASES_OUT ?= target/cases
$(CASES): case-%: deps all
	workshop/lab/case $* $(BRISK) $(CASES_OUT) $(RUNS)

# Runs each fuzz target for SECONDS.
SECONDS ?= 1800
fuzz: deps
	workshop/fuzz/run read $(SECONDS)
	workshop/fuzz/run launch $(SECONDS)
	workshop/fuzz/run sections $(SECONDS)
	workshop/fuzz/run fuse $(SECONDS)
	workshop/fuzz/run session $(SECONDS)
	workshop/fuzz/run round_trip $(SECONDS)
	workshop/fuzz/run cache_index $(SECONDS)
	workshop/fuzz/run cache_records $(SECONDS)
	workshop/fuzz/run cache_tables $(SECONDS)
	workshop/fuzz/run cache_archives $(SECONDS)
	workshop/fuzz/run http_policy $(SECONDS)
	workshop/fuzz/run http_differential $(SECONDS)
	workshop/fuzz/run objects_pages $(SECONDS)

# Tests the crate with unsafe code under AddressSanitizer. Needs a nightly toolchain, which rustup installs. Leaks are not
# looked for, because mappings that signal handlers use live as long as the process.
TARGET = $(shell rustc -vV | sed -n 's/^host: //p')
sanitize:
	RUSTFLAGS="-Zsanitizer=address" ASAN_OPTIONS=detect_leaks=0:handle_sigbus=0:use_sigaltstack=0 \
		CARGO_TARGET_DIR=target/sanitize \
		$(CARGO) +nightly test --locked -p brisk-io --features io-uring --tests --target $(TARGET)

# Installs what `make` has built. Builds nothing, because root may have no toolchain. A package may leave out brisk-lab,
# which only measures, brisk-fetch, which only images on the network need, brisk-proxy, which only brisk proxy needs, and
# brisk-db, which only brisk db needs, and brisk-bundle, which only brisk bundle needs: brisk works without them.
# Pages are written by a brisk that runs here.
install: SPEAKING = $(if $(CROSS),target/$(PROFILE:dev=debug)/brisk,$(BRISK))
install:
	@test -x $(BRISK) || { echo "$(BRISK) does not exist; run make first" >&2; exit 1; }
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/bin $(BRISK) $(addprefix $(BRISK)-,run tools bundle lab db) $(addprefix $(ASKING)brisk-,fetch proxy)
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	$(SPEAKING) man $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	$(SPEAKING) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/brisk
	install -d $(DESTDIR)$(PREFIX)/share/zsh/site-functions
	$(SPEAKING) completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_brisk
	install -d $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(SPEAKING) completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/brisk.fish

# Installs services and the AppArmor profile, for all users of the system. An AppArmor before version 4 cannot read the profile, and
# its service would fail at each boot.
install-system:
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system $(DESTDIR)$(PREFIX)/lib/systemd/user $(DESTDIR)/var/lib/brisk/profiles
	sed 's#/usr/local/bin/brisk#$(PREFIX)/bin/brisk#' packaging/systemd/brisk-warm.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/brisk-warm.service
	sed 's#/usr/local/bin/brisk#$(PREFIX)/bin/brisk#' packaging/systemd/brisk-record.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/brisk-record.service
	sed 's#/usr/local/bin/brisk#$(PREFIX)/bin/brisk#' packaging/systemd/brisk-replay.service > $(DESTDIR)$(PREFIX)/lib/systemd/user/brisk-replay.service
	sed 's#/usr/local/bin/brisk#$(PREFIX)/bin/brisk#' packaging/systemd/brisk-proxy.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/brisk-proxy.service
	install -m 644 packaging/systemd/brisk-proxy.socket $(DESTDIR)$(PREFIX)/lib/systemd/system/brisk-proxy.socket
	if [ -n "$(DESTDIR)" ] || [ -e /etc/apparmor.d/abi/4.0 ]; then install -D -m 644 packaging/apparmor $(DESTDIR)/etc/apparmor.d/brisk; fi

# Makes what others install: packages and their checksums, in target/dist. They come there only when workshop/lab/packages has
# tested them. Two runs on one commit in one place make the same bytes. As root, because the tests make root directories.
# `make dist MACHINES=x86_64` makes those of this machine alone.
PACKAGES = tarball deb wheel
MACHINES ?= x86_64 aarch64
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
DIST ?= target/dist.untested
# Not in the environment of compilers: a new commit would build what it has not changed.
EPOCH = $(shell git log -1 --format=%ct)
dist:
	workshop/lab/deps --dist $(MACHINES)
	rm -rf $(DIST)
	mkdir -p $(DIST)
	$(MAKE) $(PACKAGES)
	install -m 644 -t $(DIST) target/wheels/brisk-*.whl
	cd $(DIST) && sha256sum -- * > SHA256SUMS
	workshop/lab/packages $(DIST)
	rm -rf target/dist
	mv $(DIST) target/dist

# For each machine a directory that needs nothing of the system it is unpacked on.
tarball:
	for machine in $(MACHINES); do $(MAKE) unpacked MACHINE=$$machine LIBC=musl || exit; done

NAME = brisk-$(VERSION)-$(MACHINE)-linux
unpacked: all licences
	rm -rf target/tarball/$(NAME)
	$(MAKE) install PREFIX= DESTDIR=$(abspath target/tarball/$(NAME))
	install -D -m 644 -t target/tarball/$(NAME) README.md CHANGELOG.md SECURITY.md LICENSE-MIT LICENSE-APACHE
	install -D -m 644 -t target/tarball/$(NAME)/docs docs/*.md
	cp -r packaging/apparmor packaging/systemd target/tarball/$(NAME)/share
	install -m 644 -t target/tarball/$(NAME) target/LICENCES
	mkdir -p $(DIST)
	tar --create --directory target/tarball --sort=name --mtime=@$(EPOCH) --owner=0 --group=0 --numeric-owner \
		--mode=u=rwX,go=rX --format=gnu $(NAME) | gzip -9 --no-name > $(DIST)/$(NAME).tar.gz

# What the C libraries and the standard library of Rust say.
LICENCES = /usr/share/doc/libc6-dev/copyright /usr/share/common-licenses/LGPL-2.1 $(wildcard /usr/share/doc/musl/copyright) \
	$(shell rustc --print sysroot)/share/doc/rust/licenses/MIT.txt
licences:
	mkdir -p target
	packaging/licences $(GNU) $(LICENCES) > target/LICENCES

deb: all licences
	mkdir -p $(DIST)
	SOURCE_DATE_EPOCH=$(EPOCH) packaging/deb target/LICENCES $(DIST)

# Removes what install and install-system have put there, with the same DESTDIR and PREFIX. What brisk has learned and
# linked for a user, that user removes before: brisk auto forget, brisk auto off, brisk wrap --remove.
PAGES = $(DESTDIR)$(PREFIX)/share/man/man1
uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/bin/,brisk brisk-run brisk-tools brisk-bundle brisk-fetch brisk-lab brisk-proxy brisk-db)
	rm -f $(PAGES)/brisk.1 $(PAGES)/brisk-*.1
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/brisk
	rm -f $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_brisk
	rm -f $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/brisk.fish
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/lib/systemd/,system/brisk-warm.service system/brisk-record.service \
		user/brisk-replay.service \
		system/brisk-proxy.service system/brisk-proxy.socket)
	rm -f $(DESTDIR)/etc/apparmor.d/brisk
	rmdir $(DESTDIR)/var/lib/brisk/profiles $(DESTDIR)/var/lib/brisk 2> /dev/null || :

deps:
	workshop/lab/deps

compiler:
	workshop/lab/deps --build

clean:
	$(CARGO) clean
