package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// policy lists the folders of the repository in the order of imports, with the packages of the project that each may import.
//
// It is a statement of policy: change it by discussion, not to fix a build.
const policy = `
packet            :
wire              :
clock             :
metrics           :
internal/bounded  :
internal/devargs  :
internal/excerpt  :
internal/heapfloor:
internal/litref   :
internal/logqueue :
internal/packed   :
internal/random   :
internal/regfile  :
internal/rtnl     :
internal/secretfile:
internal/suggest  :
internal/controlsocket:
internal/programsocket:
internal/ports    : wire clock
internal/strictyaml: internal/excerpt internal/suggest
ring              : packet
capture           :
pmd               : packet ring clock wire
gpukern/cuda/dl   :
pmd/segment       : packet wire
pmd/dpdk          : packet ring clock pmd pmd/segment wire gpukern/cuda/dl internal/devargs
pmd/vnet          : packet
pmd/xdp           : internal/rtnl
pmd/pcap          : packet ring clock capture pmd
pmd/afpacket      : packet ring clock pmd pmd/vnet pmd/segment wire
pmd/afxdp         : packet ring clock pmd pmd/vnet pmd/xdp internal/rtnl
pmd/tap           : packet ring clock pmd
pmd/exception     : packet ring clock wire pmd pmd/tap
pmd/virtio/vhostuser:
pmd/virtio/vring  :
pmd/virtio        : packet ring clock pmd pmd/segment pmd/virtio/vhostuser pmd/virtio/vring
pmd/device        : ring pmd pmd/* internal/devargs internal/rtnl
gpukern/image     :
gpukern/tuple     :
gpukern/lpm       : gpukern/image gpukern/tuple
gpukern/acl       : gpukern/image gpukern/lpm gpukern/tuple
gpukern/flow      : packet ring gpukern/image gpukern/tuple internal/random
gpukern/montgomery:
gpukern/ecdsa     : gpukern/montgomery
gpukern/field25519:
gpukern/ed25519   : gpukern/field25519
gpukern/sign      : gpukern/ecdsa gpukern/ed25519 gpukern/montgomery
gpukern/x25519    : gpukern/field25519
gpukern/aead      : packet
gpukern/digest    :
gpukern/literal   : gpukern/image
gpukern/expression: gpukern/image
gpukern           : packet wire gpukern/acl gpukern/flow gpukern/image gpukern/literal gpukern/lpm gpukern/tuple
gpukern/cuda/ptx  :
gpukern/cuda/pubkey/ptx:
gpukern/cuda/symmetric/ptx:
gpukern/cuda/loader: gpukern/cuda/dl gpukern/cuda/ptx gpukern/cuda/pubkey/ptx gpukern/cuda/symmetric/ptx
gpukern/cuda      : packet gpukern gpukern/cuda/dl gpukern/expression gpukern/flow gpukern/image gpukern/literal
gpukern/cuda/offload : gpukern/cuda
gpukern/cuda/pubkey : gpukern/cuda gpukern/cuda/dl gpukern/cuda/offload gpukern/sign gpukern/x25519
gpukern/cuda/symmetric : gpukern/cuda gpukern/cuda/dl gpukern/cuda/offload gpukern/aead gpukern/digest
gpukern/choose    : packet wire ring gpukern gpukern/cuda gpukern/expression
internal/kernref  : packet wire gpukern gpukern/* internal/litref
filter/regex      : gpukern/expression
filter            : packet wire clock filter/regex gpukern/acl gpukern/expression gpukern/literal gpukern/lpm gpukern/tuple internal/excerpt internal/suggest
filter/signature  : filter/regex internal/excerpt internal/suggest
filter/ebpf       : internal/rtnl pmd/xdp
filter/expr       : packet internal/suggest
filter/reassembly :
filter/initial    : tls/clienthello
filter/appid      : filter/initial tls/clienthello
filter/inspect/ascii:
filter/inspect/inflate: filter/inspect/ascii
filter/inspect/applayer: filter/initial filter/inspect/ascii filter/signature tls/clienthello
filter/inspect/httpmsg: filter/inspect/applayer filter/inspect/ascii filter/inspect/inflate filter/signature
filter/inspect    : packet wire filter/inspect/* filter/reassembly filter/regex filter/signature gpukern/literal http2/hpack
internal/sysnames : filter/expr
ip                : packet wire clock internal/random
ip/dhcp           : wire clock internal/random
udp               : packet wire clock ip internal/ports
tcp/cc            : clock
tcp/seqnum        :
tcp/buffer        : tcp/seqnum
tcp/loss          : wire clock tcp/seqnum
tcp/auth          : wire
tcp/ecn           : wire internal/bounded
tcp/syncookie     : clock internal/random
tcp/stamp         : clock tcp/seqnum
tcp               : packet wire clock ip tcp/auth tcp/buffer tcp/cc tcp/ecn tcp/loss tcp/seqnum tcp/stamp tcp/syncookie internal/random internal/ports internal/bounded
rdma/roce         : wire
rdma/memory       :
rdma/transport    : wire clock rdma/memory rdma/roce
rdma/cm           : wire clock
stack             : packet wire ring clock pmd gpukern
stack/host        : packet ring clock wire pmd gpukern ip tcp udp stack
node/nexthop      : internal/rtnl
node              : packet ring pmd pmd/* gpukern gpukern/choose gpukern/cuda gpukern/literal stack metrics internal/controlsocket internal/devargs internal/rtnl
rdma              : internal/packed packet clock wire pmd stack metrics node node/nexthop rdma/*
socket            : packet ring clock wire pmd gpukern ip tcp tcp/stamp udp stack stack/host metrics
shim/ring         :
shim/ring/layoutgen:
rdma/program      : internal/programsocket metrics clock wire stack rdma rdma/cm rdma/memory rdma/roce rdma/transport shim/ring
shim              : internal/packed internal/programsocket shim/ring metrics socket stack tcp tcp/cc wire clock
shim/notify       : shim
gpunet/queue      : shim/ring
gpunet            : clock ring socket gpunet/queue
collective/schedule:
collective/numeric:
collective/link   :
collective        : collective/link collective/numeric collective/schedule
.                 : wire gpukern ip node node/nexthop socket stack/host
tls/clienthello   :
tls/handshake13   : gpukern/x25519 tls/clienthello
tls               : gpukern/aead gpukern/sign gpukern/x25519 tls/clienthello tls/handshake13 internal/secretfile metrics
tls/acme          : tls internal/bounded internal/secretfile
quic/fec          :
quic              : quic/fec
semantics         :
http1             : semantics
http2/hpack       : semantics
http2             : http2/hpack semantics
http3/qpack       : http2/hpack semantics
http3             : http3/qpack quic semantics
websocket         :
proxyproto        :
l7/route          : semantics
l7/files          : semantics
l7/fastcgi        : semantics
l7/encode         :
l7/ratelimit      : clock
l7/auth           :
l7/accesslog      : clock internal/logqueue metrics semantics
l7/waf            : semantics
l7/udptunnel      :
l7/rewrite        : internal/random semantics
l7/cache          : metrics semantics l7/files l7/rewrite
gateway/health    : clock internal/regfile l7/fastcgi
gateway/maglev    :
gateway/bgp       : metrics
gateway/resolve   :
gateway/upgrade   :
gateway/config    : gateway/bgp tls tls/acme internal/secretfile gateway/health gateway/resolve l7/accesslog l7/auth l7/fastcgi l7/files l7/rewrite l7/route gpukern/lpm semantics internal/devargs internal/strictyaml internal/suggest internal/regfile
l4/quiclb         :
l4/fastpath       : clock
l4/kernelflows    : l4/fastpath clock metrics pmd wire
l4/datapath       : l4/quiclb l4/fastpath gateway/maglev packet clock wire ip gpukern gpukern/lpm metrics ring internal/random
l4/statesync      : gpukern/aead l4/datapath
l4/role           : clock
l4/rolelink       : l4/role clock wire metrics
l4/inspection     : filter filter/expr filter/inspect filter/signature gateway/config l4/datapath gpukern gpukern/literal gpukern/tuple capture clock packet wire metrics internal/logqueue internal/sysnames
l4/control        : gateway/health l4/statesync l4/quiclb node/nexthop gateway/config l4/datapath packet clock wire stack metrics internal/suggest
l7/transport      : clock ip socket stack stack/host tcp wire
l7/quicconn       : l7/transport quic socket
l7/pool           : clock gateway/health gateway/maglev internal/random
l7/link           : clock l7/transport tls
l7/side           : http1 http2 l7/link semantics
l7/h1side         : clock http1 l7/link l7/side semantics
l7/h2side         : clock http1 http2 l7/link l7/side semantics
l7/h3side         : clock http1 http3 http3/qpack l7/link l7/quicconn l7/side quic semantics
l7/fcgiside       : clock l7/fastcgi l7/link l7/side semantics
l7/topk           : l7/accesslog
l7/trace          : l7/accesslog semantics
l7/proxy          : clock wire internal/bounded filter/inspect filter/signature l7/accesslog l7/auth l7/cache l7/fastcgi l7/fcgiside gpukern/lpm gpukern/sign l7/h1side l7/h2side l7/h3side l7/encode l7/files l7/link l7/pool l7/quicconn l7/ratelimit l7/rewrite l7/route l7/side l7/trace l7/transport l7/udptunnel l7/waf http1 http2 http3 quic metrics proxyproto semantics tls tls/clienthello websocket
l7/control        : clock tls/acme internal/secretfile internal/random internal/regfile metrics semantics http1 http2 http3 quic tls stack stack/host gateway/config gateway/health gateway/resolve l7/accesslog l7/auth l7/cache l7/fastcgi l7/files l7/pool l7/proxy l7/quicconn l7/ratelimit l7/rewrite l7/route l7/side l7/topk l7/trace l7/transport l7/udptunnel l7/waf internal/suggest
gateway/defence   : filter/ebpf gateway/config metrics pmd
gateway/admin     : gateway/bgp l4/control gateway/defence l4/inspection l4/rolelink gateway/config l7/control l7/topk gpukern internal/controlsocket
gateway/dashboard : gateway/admin gpukern internal/bounded l4/control l7/control
gateway/daemon    : clock gateway/* l4/* l7/* node node/nexthop pmd pmd/device gpukern gpukern/cuda stack stack/host socket ip tcp wire metrics internal/controlsocket internal/devargs internal/heapfloor
internal/app/lifetime:
internal/app/convert: tls/acme gateway/config l7/accesslog l7/rewrite l7/route semantics internal/excerpt internal/regfile
internal/app/rulefile: filter filter/inspect filter/signature
internal/app/doctor: gpukern gpukern/aead gpukern/digest internal/rtnl pmd/dpdk
internal/app/replay: packet wire clock ring capture pmd pmd/pcap gpukern gpukern/* filter filter/appid filter/inspect filter/signature stack internal/kernref
internal/app/kernbench: packet wire ring capture gpukern gpukern/* internal/kernref
internal/app/kernbench/chart: internal/app/kernbench
internal/app/service:
internal/app/collectiveperf: collective
internal/app/rdmaperf: rdma rdma/transport node node/nexthop pmd/device internal/controlsocket
internal/app/stackd: . rdma rdma/program node/nexthop shim wire clock packet gpukern gpukern/cuda metrics ip ip/dhcp tcp tcp/cc udp stack stack/host socket node pmd/device internal/app/service internal/strictyaml internal/controlsocket internal/rtnl internal/regfile internal/devargs
deploy/sbom       :
docs              :
cmd/prom          : metrics
cmd/coraza        : l7/waf semantics
cmd/ociimage      :
cmd/millrace      : *
internal/layers   :
internal/tools    :
internal/testkit/checkout:
internal/testkit/cavp: internal/testkit/checkout
internal/testkit/wycheproof: internal/testkit/checkout
internal/testkit/avx512:
internal/testkit/blockcount:
internal/testkit/browser:
internal/testkit/chromium: websocket
internal/testkit/consttime:
internal/testkit/evasions:
internal/testkit/conformance: packet ring clock pmd
internal/testkit/cut:
internal/testkit/derivepcaps:
internal/testkit/flowmodel: l4/fastpath clock wire
internal/testkit/h3cases: quic
internal/testkit/guardpages:
internal/testkit/hostkern: gpukern/cuda/loader gpukern/image gpukern/tuple internal/testkit/checkout
internal/testkit/interop:
internal/testkit/interop/bogoshim: gpukern/sign socket tls
internal/testkit/interop/programs:
internal/testkit/memtransport: clock l7/transport
internal/testkit/netsim: packet wire clock pmd ip tcp
internal/testkit/onenode:
internal/testkit/sass: internal/testkit/checkout
internal/testkit/script: wire clock ip tcp
internal/testkit/shimtest:
internal/testkit/stackpair: gpukern pmd ring socket stack
internal/testkit/testcert:
internal/testkit/testdns:
internal/testkit/testinitial:
internal/testkit/testnet:
internal/testkit/testpmd: internal/testkit/testnet
internal/testkit/testpackets: packet ring
internal/testkit/testpcaps: internal/testkit/checkout
internal/testkit/testport:
internal/testkit/wrongcases:
internal/testkit/wscases:
examples          :
examples/httpclient: . socket
examples/datagrams : quic quic/fec
examples/httpserver: . socket
examples/poller   : . socket
examples/udpecho  : . socket
examples/lab      : internal/testkit/testcert internal/testkit/testnet websocket
bench/harness     : internal/testkit/testnet
bench/webpeer     : http1 http2 semantics tls
bench/netpeer     : *
bench/role        : *
bench             : *
bench/asavie      :
`

// rooms names the folders (and those below them) in which a third-party module may be imported.
// Tests may import oracles anywhere.
const rooms = `
github.com/asavie/xdp             : bench/asavie
github.com/cilium/ebpf            : filter/ebpf pmd/afxdp pmd/xdp l4/kernelflows bench
github.com/coder/websocket        : bench
github.com/gobwas/ws              : bench
github.com/gopacket/gopacket      : capture bench internal/testkit/derivepcaps
github.com/klauspost/compress     : websocket l7/encode bench/webpeer
github.com/andybalholm/brotli     : l7/encode bench/webpeer
github.com/vishvananda/netlink    : filter/ebpf pmd/xdp node internal/rtnl internal/app/stackd pmd/afxdp pmd/afpacket pmd/dpdk pmd/tap pmd/exception pmd/device l4/kernelflows internal/app/doctor internal/testkit/testnet bench
github.com/mholt/acmez/v3         : tls/acme
github.com/vishvananda/netns      : internal/testkit/testnet
github.com/prometheus             : cmd/prom
github.com/corazawaf              : cmd/coraza
github.com/spf13                  : cmd/millrace
github.com/schollz/progressbar/v3 : cmd/millrace
go.yaml.in/yaml/v3                : internal/strictyaml gateway/config internal/app/stackd
github.com/insomniacslk/dhcp      :
github.com/pires/go-proxyproto    :
gvisor.dev/gvisor                 : bench
github.com/quic-go/quic-go        : bench quic
github.com/quic-go/qpack          : bench
golang.org/x/sys                  : *
github.com/ebitengine/purego      : gpukern/cuda internal/testkit/hostkern
gonum.org/v1/plot                 : internal/app/kernbench/chart
golang.org/x/crypto               : l7/auth tls gpukern/aead gpukern/digest bench cmd/ociimage
golang.org/x/net                  : socket quic shim/notify gateway/resolve internal/testkit/testdns internal/testkit/evasions
golang.org/x/term                 : cmd/millrace
`

// pure lists the packages that have no goroutines, channels, locks, clocks, files or logs: time
// and packets come in as arguments.
var pure = []string{"packet", "wire", "clock", "filter", "filter/initial", "filter/inspect", "filter/inspect/applayer", "filter/inspect/ascii", "filter/inspect/httpmsg", "filter/inspect/inflate", "filter/reassembly", "filter/regex", "filter/signature", "l4/quiclb", "l4/role", "gateway/maglev", "l7/rewrite", "internal/random", "internal/ports", "ip", "udp", "tcp", "rdma/memory", "rdma/roce", "rdma/transport", "rdma/cm", "collective/schedule", "collective/numeric", "internal/testkit/netsim", "internal/testkit/script"}

const (
	root   = "../.."
	module = "github.com/millrace/millrace/"
)

// file is one Go source file, parsed.
type file struct {
	path string // from the root
	dir  string
	test bool
	ast  *ast.File
}

// sources parses every Go file of the repository, those of nested modules too, once for all tests.
func sources(t *testing.T) []file {
	t.Helper()
	files, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("found only %d source files", len(files))
	}
	return files
}

var parsed = sync.OnceValues(func() (files []file, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			name := d.Name()
			if path != root && (name == "testdata" || name == "bin" || strings.HasPrefix(name, ".")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		files = append(files, file{rel, filepath.ToSlash(filepath.Dir(rel)), strings.HasSuffix(path, "_test.go"), f})
		return err
	})
	return files, err
})

// parse parses a file of a test.
func parse(t *testing.T, code string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "", code, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// table reads lines of the form "name : word word".
func table(text string) map[string][]string {
	m := map[string][]string{}
	for line := range strings.Lines(text) {
		if name, words, ok := strings.Cut(line, ":"); ok {
			m[strings.TrimSpace(name)] = strings.Fields(words)
		}
	}
	return m
}

// folderOf returns the folder of a package of the project; "." is the root.
func folderOf(path string) (dir string, ok bool) {
	if path+"/" == module {
		return ".", true
	}
	return strings.CutPrefix(path, module)
}

// isOurs reports whether a package is the project's.
func isOurs(path string) bool {
	_, ok := folderOf(path)
	return ok
}

// allows reports whether one of the patterns ("a", "a/*" or "*") names dir.
func allows(patterns []string, dir string) bool {
	for _, p := range patterns {
		if p == "*" || p == dir || strings.HasSuffix(p, "/*") && strings.HasPrefix(dir, p[:len(p)-1]) {
			return true
		}
	}
	return false
}

// below reports whether dir is one of the folders or lies in one.
func below(folders []string, dir string) bool {
	for _, f := range folders {
		if f == "*" || dir == f || strings.HasPrefix(dir, f+"/") {
			return true
		}
	}
	return false
}

func TestImportsFlowDown(t *testing.T) {
	may := table(policy)
	for _, f := range sources(t) {
		allowed, known := may[f.dir]
		if !known {
			t.Errorf("%s: folder %s is not in the policy", f.path, f.dir)
			continue
		}
		if f.test {
			continue // tests may build anything around the package
		}
		for _, imp := range f.ast.Imports {
			path, _ := strconv.Unquote(imp.Path.Value)
			if dir, ours := folderOf(path); ours && !allows(allowed, dir) {
				t.Errorf("%s imports %s; %s may import: %s", f.path, dir, f.dir, strings.Join(allowed, " "))
			}
		}
	}
}

// upward lists the imports of a package that stands below the importer in policy, with their reasons: at most five.
const upward = `
filter/appid   tls/clienthello   recognises TLS and QUIC by their ClientHello, which the request path parses for certificates
filter/initial tls/clienthello   the bound of a ClientHello, which it collects for both
filter/inspect/applayer tls/clienthello   the same, for the buffers tls.* of rules
filter/inspect http2/hpack       decodes the field blocks of HTTP/2 without TLS, for the buffers http.* of rules
`

const mostUpward = 5

// TestImportsFollowTheOrder holds the order of policy: a reader from the top meets no package before those that it is
// made of.
func TestImportsFollowTheOrder(t *testing.T) {
	place, reasons := map[string]int{}, map[string]string{}
	for line := range strings.Lines(policy) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			place[strings.TrimSpace(name)] = len(place)
		}
	}
	for line := range strings.Lines(upward) {
		if f := strings.Fields(line); len(f) > 2 {
			reasons[f[0]+" "+f[1]] = strings.Join(f[2:], " ")
		}
	}
	found := map[string]bool{}
	for _, f := range sources(t) {
		for _, imp := range f.ast.Imports {
			path, _ := strconv.Unquote(imp.Path.Value)
			dir, ours := folderOf(path)
			if !ours || f.test || place[dir] < place[f.dir] {
				continue
			}
			arrow := f.dir + " " + dir
			if found[arrow] = true; reasons[arrow] == "" {
				t.Errorf("%s imports %s, which stands below %s in policy", f.path, dir, f.dir)
			}
		}
	}
	for arrow, why := range reasons {
		t.Logf("upward: %s: %s", arrow, why)
		if !found[arrow] {
			t.Errorf("upward: %s is no import", arrow)
		}
	}
	if len(reasons) > mostUpward {
		t.Errorf("%d imports run upward, want at most %d", len(reasons), mostUpward)
	}
}

// unreachable names what a package must not import, directly or through other packages of ours.
const unreachable = `
l4/datapath : gateway/config node/nexthop go.yaml.in/yaml/v3 github.com/vishvananda/netlink net/http
`

func TestWhatMustNotBeReachedIsNot(t *testing.T) {
	imports := map[string]map[string]bool{}
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		if imports[f.dir] == nil {
			imports[f.dir] = map[string]bool{}
		}
		for _, imp := range f.ast.Imports {
			path, _ := strconv.Unquote(imp.Path.Value)
			imports[f.dir][strings.TrimPrefix(path, module)] = true
		}
	}
	for from, never := range table(unreachable) {
		seen, todo := map[string]bool{from: true}, []string{from}
		for len(todo) > 0 {
			dir := todo[0]
			todo = todo[1:]
			for path := range imports[dir] {
				if slices.Contains(never, path) {
					t.Errorf("%s reaches %s, by %s", from, path, dir)
				}
				if !seen[path] {
					seen[path] = true
					todo = append(todo, path)
				}
			}
		}
		if len(seen) < 5 {
			t.Errorf("%s imports only %v", from, seen)
		}
	}
}

func TestThirdPartiesStayInTheirRooms(t *testing.T) {
	may := table(rooms)
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		for _, imp := range f.ast.Imports {
			path, _ := strconv.Unquote(imp.Path.Value)
			if !strings.Contains(strings.Split(path, "/")[0], ".") || isOurs(path) {
				continue
			}
			if !inRoom(may, path, f.dir) {
				t.Errorf("%s imports %s outside of its rooms", f.path, path)
			}
		}
	}
}

// inRoom reports whether a third-party package may be imported in dir.
func inRoom(may map[string][]string, path, dir string) bool {
	for mod, folders := range may {
		if path == mod || strings.HasPrefix(path, mod+"/") {
			return below(folders, dir)
		}
	}
	return false
}

// TestNoAllowanceIsUnused fails for what policy and rooms permit and no code needs: such a line invites
// the import that it was to prevent.
func TestNoAllowanceIsUnused(t *testing.T) {
	ours, third, tests := map[string][]string{}, map[string][]string{}, map[string][]string{} // importing folders, or imports of folders
	for _, f := range sources(t) {
		ours[f.dir] = append(ours[f.dir], "")
		for _, imp := range f.ast.Imports {
			path, _ := strconv.Unquote(imp.Path.Value)
			dir, isOurs := folderOf(path)
			switch {
			case isOurs && !f.test:
				ours[f.dir] = append(ours[f.dir], dir)
			case !isOurs && f.test:
				tests[path] = append(tests[path], f.dir)
			case !isOurs:
				third[path] = append(third[path], f.dir)
			}
		}
	}
	for dir, patterns := range table(policy) {
		if ours[dir] == nil {
			t.Errorf("policy has a line for %s, which has no source", dir)
		}
		for _, p := range patterns {
			if !slices.ContainsFunc(ours[dir], func(imp string) bool { return allows([]string{p}, imp) }) {
				t.Errorf("policy: %s does not import %s", dir, p)
			}
		}
	}
	for mod, folders := range table(rooms) {
		if len(folders) == 0 && importers(tests, mod) == nil {
			t.Errorf("rooms: no test imports %s", mod)
		}
		for _, room := range folders {
			if !slices.ContainsFunc(importers(third, mod), func(dir string) bool { return below([]string{room}, dir) }) {
				t.Errorf("rooms: nothing in %s imports %s", room, mod)
			}
		}
	}
}

// importers returns the folders that import a module's packages.
func importers(imports map[string][]string, mod string) (dirs []string) {
	for path, from := range imports {
		if path == mod || strings.HasPrefix(path, mod+"/") {
			dirs = append(dirs, from...)
		}
	}
	return dirs
}

// clockReads lists the functions of package time that read the clock or wait for it.
var clockReads = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}

func TestPureLayersHaveNoConcurrencyTimeOrFiles(t *testing.T) {
	forbidden := map[string]bool{"sync": true, "sync/atomic": true, "os": true, "log": true, "log/slog": true, "net": true, "context": true}
	for _, f := range sources(t) {
		if f.test || !below(pure, f.dir) || f.dir == "filter/ebpf" {
			continue
		}
		for _, imp := range f.ast.Imports {
			if path, _ := strconv.Unquote(imp.Path.Value); forbidden[path] {
				t.Errorf("%s imports %s", f.path, path)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.ChanType, *ast.SendStmt, *ast.SelectStmt:
				t.Errorf("%s: %T", f.path, n)
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clockReads, n.Sel.Name) {
					t.Errorf("%s calls time.%s", f.path, n.Sel.Name)
				}
			}
			return true
		})
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	docs := map[string]bool{}
	for _, f := range sources(t) {
		if !f.test || f.dir == "internal/layers" {
			docs[f.dir] = docs[f.dir] || f.ast.Doc != nil
		}
	}
	for dir, ok := range docs {
		if !ok {
			t.Errorf("package %s has no comment", dir)
		}
	}
}
