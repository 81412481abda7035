# Each target says what it does; "make help" lists them.
GOTOOLCHAIN := go1.27.3
export GOTOOLCHAIN
# The toolchain that make setup fetched for a machine whose own Go is too old.
export PATH := $(CURDIR)/.tools/go/bin:$(PATH)
SHELL := /bin/bash

VERSION := $(shell sed -n 's/^\#\# \[\([0-9][^]]*\)\].*/\1/p' CHANGELOG.md | head -1)
GO := CGO_ENABLED=0 go
COMMANDS := $(notdir $(wildcard cmd/portreeve*))
TOOLS := ./.build/prove ./.build/mutants ./.build/summary ./.build/demo
# Pinned tools, fetched by the Go command when they are asked for.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0

.PHONY: help setup build commands run test race fuzz bench bench-egress prove mutants bank bank-sensitivity lint vuln e2e demo dist vm docs generate check clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1	\2/p' $(MAKEFILE_LIST) | sort | expand -t 12

setup: ## bring what building and testing needs (Debian packages, the Go toolchain); skips what is there
	@.build/setup

build: commands bin/runsc bin/tiny.tar ## make bin/portreeve and its companions, with runsc and the image tiny

commands:
	@mkdir -p bin
	$(GO) build -trimpath -ldflags='-X portreeve.dev/gateway/release.number=$(VERSION)' -o bin/ $(addprefix ./cmd/,$(COMMANDS))

# The pinned gVisor, from its Go module: four to five minutes the first time, seconds with a warm build cache.
bin/runsc: nodes/runsc/gvisor/go.mod nodes/runsc/gvisor/go.sum
	@mkdir -p bin
	cd nodes/runsc/gvisor && $(GO) build -trimpath -ldflags='-s -w' -o $(CURDIR)/bin/runsc.new gvisor.dev/gvisor/runsc
	mv bin/runsc.new bin/runsc

bin/tiny.tar: $(wildcard nodes/images/*.go) | commands
	bin/portreeve-node write-tiny $@.new
	mv $@.new $@

run: setup build ## start Portreeve on this machine, as root
	bin/portreeve dev $(ARGS)

test: setup build ## all tests, black-box ones included; a skipped test is a failed one
	CGO_ENABLED=0 .build/test

race: setup build ## the packages' tests under the race detector
	CGO_ENABLED=1 go test -race -short -count=1 $$(go list ./... | grep -v /e2e)

fuzz: ## each fuzz target for FUZZTIME (60s)
	CGO_ENABLED=0 .build/fuzz

bench: ## all benchmarks
	$(GO) test -run '^$$' -bench . -benchmem $$(go list ./... | grep -v /e2e)

bench-egress: build ## the way out beside goproxy, smokescreen, HAProxy, CoreDNS, unbound, Squid and mitmproxy; ARGS='-rounds 3' takes ten minutes, '-run dns' one row
	@.build/setup bench
	cd bench && $(GO) build -o $(CURDIR)/bin/bench/ ./... github.com/stripe/smokescreen
	bin/bench/egress -tools $(CURDIR)/bin/bench -bin $(CURDIR)/bin $(ARGS)

prove: build ## for each invariant: its test fails without its guard and passes with it; RUN=regex chooses, ARGS=-quick, ARGS="-quick -part 0/3"
	$(GO) run ./.build/prove -run '$(RUN)' $(ARGS)

MUTATED := ./policies/... ./egress/dial ./egress/proxy/...
N := 50
mutants: ## N changes of one thing each in MUTATED, chosen by SEED: how many the tests don't notice; fails over 10 %
	$(GO) run ./.build/mutants -n $(N) -seed $(or $(SEED),1) $(MUTATED)

lint: ## format, vet and staticcheck
	@unformatted=$$($$(go env GOROOT)/bin/gofmt -l $$(find . -name '*.go' -not -path './.tools/*')); [ -z "$$unformatted" ] || { echo "not as gofmt writes it: $$unformatted"; exit 1; }
	$(GO) vet ./... $(TOOLS)
	$(GO) run $(STATICCHECK) ./... $(TOOLS)

vuln: ## known holes in what we build from (asks vuln.go.dev)
	$(GO) run $(GOVULNCHECK) ./...

e2e: setup build ## the black-box tests alone; RUN=regex chooses
	$(GO) test -count=1 -v -timeout 15m -run '$(RUN)' ./e2e/...

bank: setup build ## the bank of known bugs, played against the running product; RUN=regex chooses ids
	$(GO) test -count=1 -v -timeout 15m -run '^TestBank$$' ./e2e/bank -args -elsewhere -rows '$(RUN)'

bank-sensitivity: setup build ## the bank against edges made worse: a policy that always allows, no other walls beside that, a policy that always denies
	$(GO) test -count=1 -v -timeout 30m -run '^TestSensitivity$$' ./e2e/bank -args -sensitivity

demo: setup build ## the tour: each step, and what it saw
	$(GO) run ./.build/demo $(ARGS)

dist: build ## dist/: one tar and one deb that need no compiler
	.build/package $(VERSION)

vm: dist ## the product out of its tar in a stock Debian guest; VM_SUITE=trixie for another release
	@.build/setup vm
	.build/vm test dist/portreeve_$(VERSION)_linux_amd64.tar.gz

docs: ## what of docs/ is made from the source
	$(GO) run ./.build/prove -table >docs/invariants.md

generate: ## what is generated and checked in
	$(GO) generate ./...

check: lint test prove ## all that can be checked without the guest

clean: ## remove what was built; caches outside the tree stay
	rm -rf bin dist
