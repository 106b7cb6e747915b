# The two commands of the README are `make demo` and `make test`; both install what they need, or say how.

target   := x86_64-unknown-linux-gnu
# Of `make packages`: x86_64 or aarch64, whatever this machine is.
machine  ?= x86_64
penstock := target/$(target)/release/penstock
model    ?= examples/xeon-d.yaml

.PHONY: demo docs recording test foreign test-aarch64 quick build image cluster lint bars bench bench-growth bench-switch campaign fresh kubernetes packages packages-test container board-image-file release msrv fuzz sanitize clean

demo: build
	$(penstock) rehearse $(model)

build:
	@scripts/install-dependencies
	@scripts/build-release $(target) penstock-cli penstock-switch

image: build
	$(penstock) board image

# What clusters on boards are made of (docs/cluster.md): a Go program of ten minutes of processor time, once. Tests that need it say so where
# there is none.
cluster: image
	@if command -v go >/dev/null 2>&1; then $(penstock) board cluster prepare || echo "skipped: no cluster could be prepared"; \
	else echo "skipped: Go is not installed, of which a cluster's programs are built"; fi

# The optimised binary is what runs inside the boards that the tests boot. Making the image waits for the network most of
# the time. Test programs run side by side, as many as there are CPUs; `cargo test` runs the same tests, one program after
# the other. `make test tests="--package penstock-cli --test watch_in_board"` runs some of them. PENSTOCK_PATH: root takes no program
# from a directory below somebody's home unless it is told to.
tests ?=
side_by_side := target/$(target)/debug/side-by-side
test_environment = PENSTOCK_BINARY=$(CURDIR)/$(penstock) \
	PENSTOCK_GRUB_TREE=$(CURDIR)/target/grub PENSTOCK_CONTAINERD_TREE=$(CURDIR)/target/containerd \
	PENSTOCK_PODMAN_TREE=$(CURDIR)/target/podman PENSTOCK_OPENVSWITCH_TREE=$(CURDIR)/target/openvswitch \
	PENSTOCK_TUNED_TREE=$(CURDIR)/target/tuned PENSTOCK_INCUS_TREE=$(CURDIR)/target/incus \
	PENSTOCK_LIBVIRT_TREE=$(CURDIR)/target/libvirt PENSTOCK_NETPLAN_TREE=$(CURDIR)/target/netplan \
	PENSTOCK_VIRSH_TREE=$(CURDIR)/target/virsh \
	PENSTOCK_YAML_LANGUAGE_SERVER=$(CURDIR)/target/yaml-language-server/yaml-language-server \
	PENSTOCK_ANSIBLE=$(CURDIR)/target/ansible/ansible-playbook \
	PATH="$(CURDIR)/target/netperf:$$PATH" PENSTOCK_PATH="$(CURDIR)/target/netperf:$$PATH"
unpack_containerd = scripts/unpack-packages target/containerd usr/bin/ctr containerd runc containernetworking-plugins
unpack_podman = scripts/unpack-packages target/podman usr/bin/podman podman conmon netavark libgpg-error0 \
	'libassuan9|libassuan0' 'libgpgme11t64|libgpgme11' 'libsubid5|libsubid4'
unpack_incus = scripts/unpack-of-boards target/incus usr/libexec/incus/incusd incus-base ./usr/bin/incus ./usr/libexec/incus \
	./usr/bin/newuidmap ./usr/bin/newgidmap ./usr/bin/unsquashfs ./usr/bin/sqfs2tar ./usr/bin/rsync ./usr/bin/setfattr ./usr/bin/getfattr \
	$(foreach library,cowsql raft uv squashfs lzo2 subid,'./usr/lib/*/lib$(library).so.*')
unpack_netplan = scripts/unpack-of-boards target/netplan usr/sbin/netplan netplan.io ./usr/sbin/netplan ./usr/share/netplan \
	./usr/libexec/netplan ./usr/lib/systemd/system-generators/netplan ./usr/lib/python3/dist-packages/netplan \
	$(foreach module,yaml _yaml _cffi_backend*,'./usr/lib/python3/dist-packages/$(module)') \
	$(foreach library,netplan yaml-0 glib-2.0,'./usr/lib/*/lib$(library).so.*')
# What waits for the network or for one compiler leaves room for the rest: the programs, the trees, the image, the checks and a cluster's
# programs are made side by side.
test:
	@scripts/install-dependencies
	@scripts/install-dependencies test
	@$(MAKE) --no-print-directory --jobs=3 build foreign lint image cluster
	@scripts/unpack-netperf $(penstock) $(CURDIR)/target/netperf
	PENSTOCK_INSTALLED=test $(test_environment) \
	sh -c 'cargo test --workspace --locked --no-run && exec $(side_by_side) $(tests)'

# Other projects' programs that tests run, none of which is installed.
foreign:
	@scripts/unpack-packages target/grub usr/sbin/grub-mkconfig grub-common grub2-common gettext-base
	@$(unpack_containerd)
	@$(unpack_podman)
	@scripts/unpack-packages target/openvswitch usr/sbin/ovsdb-server openvswitch-common openvswitch-switch libxdp1 \
		libunbound8 libcap-ng0 'libssl3t64|libssl3' 'libbpf1|libbpf0' 'libevent-2.1-7t64|libevent-2.1-7' 'libnuma1'
	@$(unpack_incus)
	@$(unpack_netplan)
	@scripts/unpack-of-boards target/libvirt usr/share/libvirt/schemas libvirt-daemon-driver-network \
		'./usr/lib/*/libvirt/connection-driver/libvirt_driver_network.so' ./usr/share/libvirt/schemas
	@scripts/unpack-packages target/virsh usr/bin/virsh libvirt-clients libvirt0 libxml2-utils 'libxml2|libxml2-16' libyajl2 libjson-c5 \
		libssh-4 'libssh2-1t64|libssh2-1'
	@scripts/unpack-packages target/tuned usr/lib/tuned/realtime/tuned.conf tuned
	@scripts/fetch-yaml-language-server $(CURDIR)/target/yaml-language-server
	@scripts/fetch-ansible $(CURDIR)/target/ansible

# For every commit: all tests but those that boot a kernel, install packages or open a browser. It installs and builds nothing beside
# them; what this machine lacks (for SSH, the binary of `make build`) is named at the end, as `make test` does.
quick:
	@$(test_environment) sh -c 'cargo test --workspace --locked --no-run && exec $(side_by_side) --quick $(tests)'

# The documents as a site with search in target/site, each of whose links is followed. mdBook is compiled once.
site = cargo run --quiet --locked --package penstock-docs --
docs:
	@scripts/install-dependencies docs
	@scripts/fetch-mdbook $(CURDIR)/target/mdbook
	@$(site) book target/book
	@rm -rf target/site
	@target/mdbook/bin/mdbook build --dest-dir $(CURDIR)/target/site target/book
	@$(site) site target/site

# The recorded session of docs/tutorial.md anew, with the program as it is: two minutes on boards (CONTRIBUTING.md). It is
# looked at before it takes the place of the one that is there.
recording: image
	@scripts/install-dependencies recording
	@mkdir -p target
	@scripts/record-session $(penstock) target/first-steps.cast
	PENSTOCK_RECORDING=$(CURDIR)/target/first-steps.cast cargo test --quiet --locked --package penstock-docs --test recording it_has_no
	mv target/first-steps.cast docs/pictures/first-steps.cast
	UPDATE_GOLDEN=1 cargo test --quiet --locked --package penstock-docs --test recording
	cargo test --quiet --locked --package penstock-cli --test recorded_session

# What a user of a fresh Debian 12 or 13 meets: the install step of each target, every program that it calls, and a rehearsal from
# nothing without root. Part of `make test`.
fresh: build
	@scripts/install-dependencies test
	PENSTOCK_BINARY=$(CURDIR)/$(penstock) PENSTOCK_INSTALLED=test \
	cargo test --locked --package penstock-cli --test fresh_in_tree

# The agent of a Kubernetes node (docs/kubernetes.md), which nothing else needs: the API's types take minutes to compile.
kubernetes: build
	@scripts/build-release $(target) penstock-kubernetes

# .deb, .rpm and tarballs in target/packages (docs/install.md). What they hold beside the programs is made by a program of the same build.
packages: build
	@scripts/install-dependencies packages
	@scripts/build-release $(target) penstock-packages penstock-kubernetes
ifneq ($(machine),x86_64)
	@scripts/install-dependencies packages-$(machine)
	@scripts/build-release $(machine)-unknown-linux-gnu penstock-cli penstock-switch penstock-kubernetes
endif
	@BOARD_IMAGE=$(board_image) scripts/make-packages $(machine)-unknown-linux-gnu

# Programs for another processor, under QEMU's emulation of its user mode: the tests that boot nothing, make no namespace, start no other
# program and measure no time; of the switch those of frames, rings and memory. Not part of `make test`.
test-aarch64:
	@scripts/install-dependencies packages-aarch64
	@scripts/add-rust-target aarch64-unknown-linux-gnu
	cargo test --locked --target aarch64-unknown-linux-gnu $(addprefix --package penstock-,model plan render report audit exchange) --lib
	cargo test --locked --target aarch64-unknown-linux-gnu --package penstock-switch --lib -- \
	allow:: config:: copy:: dirty:: iotlb:: net:: offload:: ring:: rx_filter:: settings:: --skip ring::orders

# The packages and the board image as one container image, in target/packages (docs/install.md). Debian's part comes from a mirror.
# Of the packages after the image: they are summed up with all that is there.
container: board-image-file
	@$(MAKE) --no-print-directory packages board_image=new
	@scripts/make-container

# All that is published of a version, in target/packages: the packages, the board image as a file, the container image, what CHANGELOG.md says of the
# version, which has to be something, the sums, and with `make release key=FILE.key` their signatures (docs/install.md).
release:
	@scripts/check-signing-key "$(key)"
	@scripts/release-notes "$$(scripts/version)" >/dev/null
	@$(MAKE) --no-print-directory msrv
	@$(MAKE) --no-print-directory container
	@$(MAKE) --no-print-directory packages machine=aarch64 board_image=new
	@scripts/publish "$(key)"

# Whether the oldest Rust that Cargo.toml names compiles everything. `rustup toolchain install VERSION --profile minimal` brings it.
msrv:
	@scripts/check-msrv

board-image-file: image
	@mkdir -p target/packages
	@rm -f target/packages/penstock-board-image-*
	$(penstock) board image --to target/packages/penstock-board-image-x86_64.tar.gz

# The packages as a machine meets them: bare Debian 12 and 13 trees where they are installed, upgraded, looked at by lintian and rpmlint, and
# removed, and a first rehearsal; the container image as podman runs it; and packages for aarch64, where this machine can make them. Not part of
# `make test`.
packages-test: container
	@if command -v aarch64-linux-gnu-gcc >/dev/null 2>&1 && command -v qemu-aarch64 >/dev/null 2>&1; then \
	$(MAKE) --no-print-directory packages machine=aarch64 board_image=new; \
	else echo "skipped: packages for aarch64 need a cross compiler and qemu-aarch64 (scripts/install-dependencies packages-aarch64)"; fi
	@$(unpack_containerd)
	@$(unpack_podman)
	@scripts/fetch-ansible $(CURDIR)/target/ansible
	PENSTOCK_PACKAGES=$(CURDIR)/target/packages PENSTOCK_INSTALLED=test $(test_environment) \
	cargo test --locked --package penstock-packages

# Fuzz targets are a workspace of their own, and are compiled here so that a change of names does not pass them by.
# A toolchain of rustup's minimal profile has neither rustfmt nor clippy: that is said, not passed over.
lint:
	@if cargo fmt --version >/dev/null 2>&1; then \
	cargo fmt --all --check && cargo fmt --manifest-path fuzz/Cargo.toml --check; \
	else echo "skipped: rustfmt is not installed"; fi
	@if cargo clippy --version >/dev/null 2>&1; then \
	cargo clippy --workspace --all-targets --locked -- -D warnings; \
	else echo "skipped: clippy is not installed"; fi
	cargo check --locked --manifest-path fuzz/Cargo.toml --target-dir target

# What a user waits for; hours for all of it. `make bench rows="audit plan"` measures some (docs/performance.md).
bench: image
	@scripts/install-dependencies bench
	PENSTOCK_BINARY=$(CURDIR)/$(penstock) cargo bench --locked --package penstock-cli --bench rehearsal -- $(rows)

# What pods and fleets on Kubernetes cost, as figures beside what is wanted (docs/performance.md): for root, and a machine that does nothing else for an
# hour. `make bars pods=20 nodes=200` takes less. Each part is run, also after one that failed.
pods ?= 100
nodes ?= 1000
bars: kubernetes cluster
	@scripts/install-dependencies test
	@failed=; export $(test_environment); \
	PENSTOCK_KUBERNETES=$(CURDIR)/target/$(target)/release/penstock-kubernetes; export PENSTOCK_KUBERNETES; \
	part() { echo "== $$*"; "$$@" || failed="$$failed$$*; "; }; \
	part cargo bench --locked --package penstock-kubernetes --bench claims; \
	part env PENSTOCK_FLEET_NODES=$(nodes) cargo test --locked --package penstock-kubernetes --test rollout_in_cluster -- many_nodes; \
	part env PENSTOCK_BARS=1 cargo test --locked --package penstock-cluster --test cluster_in_board -- costs; \
	part env PENSTOCK_PODS=$(pods) cargo test --locked --package penstock-kubernetes --test claims_in_board; \
	[ -z "$$failed" ] || { echo "failed: $$failed" >&2; exit 1; }

# How time and memory grow with VFs, guests, steps, cells of a report and ports of a switch. `make bench-growth what="vfs ports"` measures
# some of it, `what=docs` puts the pictures into docs/pictures (docs/performance.md).
bench-growth: build
	PENSTOCK_BINARY=$(CURDIR)/$(penstock) cargo bench --locked --package penstock-cli --bench growth -- $(what)

# Each step of the examples' plans meets each fault on a board; takes many hours, and goes on where it was interrupted. `make campaign
# model=smallest steps=2,3 faults=middle,full runs=apply,undo` tries some of it (here `model` is a name in examples/); `steps=kinds` the
# first step of each kind of action; `builds=all` only what no other build has shown to be right.
campaign: image
	@scripts/install-dependencies bench
	PENSTOCK_BINARY=$(CURDIR)/$(penstock) cargo bench --locked --package penstock-cli --bench campaign -- \
	$(if $(filter command,$(origin model)),model=$(model)) $(if $(steps),steps=$(steps)) \
	$(if $(faults),faults=$(faults)) $(if $(runs),runs=$(runs)) $(if $(builds),builds=$(builds))

# The embedded switch against Open vSwitch with DPDK. `make bench-switch rows=64,1518 pairs=3` measures some of it; its VMs are made
# of the image of the boards.
bench-switch:
	@scripts/install-dependencies bench-switch
	$(if $(if $(rows),$(findstring vms,$(rows)),all),@$(MAKE) --no-print-directory image)
	cargo bench --locked --package penstock-switch --bench switch -- $(if $(rows),rows=$(rows)) $(if $(pairs),pairs=$(pairs))

# Each fuzz target for a minute; `make fuzz seconds=3600 targets=model` for longer.
seconds ?= 60
targets ?= $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
fuzz:
	@scripts/install-dependencies fuzz
	for target in $(targets); do fuzz/run $$target -max_total_time=$(seconds) || exit 1; done

# Tests of the switch where whatever they touch is watched; `make sanitize watchers=miri`. See fuzz/README.md.
watchers ?= address thread miri
sanitize:
	@scripts/install-dependencies sanitize
	for watcher in $(watchers); do fuzz/sanitize $$watcher penstock-switch || [ $$? -eq 4 ] || exit 1; done

clean:
	cargo clean
