package expr

import (
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// corpus is libpcap's own list of tests, as testdata/corpus.pl writes it.
type corpus struct {
	Accept []struct {
		Name, DLT, Skip, Netmask string
		Aliases                  []string
		Snaplen                  json.Number
		Linuxext                 json.Number
		Source                   string `json:"generate_offline_filter"`
	}
	Apply []struct {
		Name, Savefile, Expr, Skip, Netmask string
		Results                             []json.Number
	}
	Links  map[string]LinkType
	Reject []struct{ Name, DLT, Expr, Errstr, Skip, Netmask, Savefile string }
}

func readCorpus(t *testing.T) *corpus {
	t.Helper()
	name := os.Getenv("MILLRACE_PCAP_CORPUS")
	if name == "" {
		t.Skip("set MILLRACE_PCAP_CORPUS to the list that \"make pcap-oracle\" writes")
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var c corpus
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	return &c
}

// otherSystem reports a test that holds on other systems only.
func otherSystem(skip string) bool {
	return strings.HasPrefix(skip, "is ") && skip != "is not Linux" || strings.Contains(skip, "!=1")
}

func mask(s string) (a netip.Addr) {
	if s != "" {
		a = netip.MustParseAddr(s)
	}
	return a
}

// TestCorpusAccept compiles every expression that libpcap's tests accept, and compares the verdicts with
// libpcap's program on captures and on packets made for the program.
func TestCorpusAccept(t *testing.T) {
	c := readCorpus(t)
	files := captureFiles(t, os.Getenv("MILLRACE_PCAP_FILES"))
	o := startOracle(t, files)
	pkts := readCaptures(t, files)
	rng := rand.New(rand.NewPCG(1, 2))
	blocks, texts, packets, matched := 0, 0, 0, 0
	for _, b := range c.Accept {
		if otherSystem(b.Skip) || b.Name == "bpf_image" {
			continue
		}
		blocks++
		link, ok := ParseLinkType(b.DLT)
		if !ok {
			t.Errorf("%s: unknown link type %s", b.Name, b.DLT)
			continue
		}
		q := question{link: link, netmask: mask(b.Netmask), source: FromHost, kernel: b.Linuxext != ""}
		if n, err := b.Snaplen.Int64(); err == nil {
			q.snapLen = uint32(n)
		}
		switch b.Source {
		case "unswapped":
			q.source = FromFile
		case "swapped":
			q.source = FromSwappedFile
		}
		for _, q.text = range b.Aliases {
			texts++
			v := o.ask(t, q)
			if v.err != "" {
				t.Errorf("%s: libpcap refuses %q: %s", b.Name, q.text, v.err)
				continue
			}
			f, err := Compile(q.text, link, q.options())
			if err != nil {
				t.Errorf("%s: %q on %v: %v", b.Name, q.text, link, err)
				continue
			}
			made := append(directed(rng, v.prog, 300), pkts[link]...)
			checkInterpreter(t, q, v, pkts[link])
			var aux *auxData
			if q.kernel {
				aux = &auxData{rng.Uint32N(2), 5 + rng.Uint32N(2), 3 + rng.Uint32N(2), rng.Uint32N(20)}
			}
			m, _ := agree(t, q, f, v, made, aux)
			packets += len(made)
			matched += m
		}
	}
	t.Logf("%d blocks, %d expressions, %d packets, %d matches", blocks, texts, packets, matched)
}

// checkInterpreter makes sure that our interpreter of classic BPF agrees with libpcap's.
func checkInterpreter(t *testing.T, q question, v verdict, pkts []pkt) {
	t.Helper()
	if q.kernel {
		return
	}
	if want := (len(pkts) + 3) / 4; len(v.matches) != want {
		t.Fatalf("the oracle has read %d packets of %v, we %d", 4*len(v.matches), q.link, len(pkts))
	}
	for i, p := range pkts {
		digit := strings.IndexByte("0123456789abcdef", v.matches[i/4])
		if got := interpret(v.prog, p.data, p.len, nil) != 0; got != (digit>>(i%4)&1 == 1) {
			t.Fatalf("%q: our interpreter says %v of packet %d, libpcap's another", q.text, got, i)
		}
	}
}

// TestCorpusApply runs the expressions of libpcap's tests on its captures, packet by packet.
func TestCorpusApply(t *testing.T) {
	c := readCorpus(t)
	dir := os.Getenv("MILLRACE_PCAP_FILES")
	files, tests := map[string]bool{}, 0
	for _, b := range c.Apply {
		if otherSystem(b.Skip) {
			continue
		}
		tests++
		name := filepath.Join(dir, b.Savefile)
		files[name] = true
		i := 0
		for link, ps := range readCaptures(t, []string{name}) {
			f, err := Compile(b.Expr, link, Options{Netmask: mask(b.Netmask), Names: testNames})
			if err != nil {
				t.Errorf("%s: %q: %v", b.Name, b.Expr, err)
				break
			}
			for _, p := range ps {
				want, _ := b.Results[i].Int64()
				if got := f.Match(p.data, int(p.len)); got != (want != 0) {
					t.Errorf("%s: %q on packet %d of %s: %v, want %d", b.Name, b.Expr, i+1, b.Savefile, got, want)
				}
				i++
			}
		}
		if i != len(b.Results) {
			t.Errorf("%s: %d packets, %d results", b.Name, i, len(b.Results))
		}
	}
	t.Logf("%d tests on %d captures", tests, len(files))
}

// TestCorpusReject checks that what libpcap's tests reject is an error here.
func TestCorpusReject(t *testing.T) {
	c := readCorpus(t)
	o := startOracle(t, nil)
	tests := 0
	for _, b := range c.Reject {
		if otherSystem(b.Skip) || b.DLT == "" || strings.Contains(b.Errstr, "rejects all packets") {
			continue // the optimizer's errors, and those of files
		}
		link, ok := ParseLinkType(b.DLT)
		if !ok {
			if link, ok = c.Links[b.DLT]; !ok {
				t.Errorf("%s: unknown link type %s", b.Name, b.DLT)
			}
		}
		tests++
		q := question{text: b.Expr, link: link, netmask: mask(b.Netmask), source: FromHost}
		_, err := Compile(b.Expr, link, q.options())
		if err == nil {
			t.Errorf("%s: %q compiles on %v; libpcap: %s (corpus: %s)", b.Name, b.Expr, b.DLT, o.ask(t, q).err, b.Errstr)
		}
	}
	t.Logf("%d tests", tests)
}

// testNames are the names that libpcap's tests expect of hosts(5), ethers(5) and networks(5).
var testNames = Names{
	Host: func(name string) (all []netip.Addr) {
		for _, l := range testHosts {
			if f := strings.Fields(l); strings.EqualFold(f[1], name) {
				all = append(all, netip.MustParseAddr(f[0]))
			}
		}
		return all
	},
	Ethernet: func(name string) (mac [6]byte, ok bool) {
		name = strings.ToLower(name)
		switch {
		case !strings.HasPrefix(name, "eth-"):
			return mac, false
		case strings.HasSuffix(name, ".host123.libpcap.test"):
			return [6]byte{0xaa, 0, 4, 0, 0x14, 0x0e}, true
		case strings.HasSuffix(name, ".host357.libpcap.test"):
			return [6]byte{0xaa, 0, 4, 0, 1, 8}, true
		}
		return mac, false
	},
	Network: func(name string) (netip.Addr, bool) {
		s, ok := map[string]string{
			"net-10-0-0-0.libpcap.test": "10.0.0.0", "net-10-20-0-0.libpcap.test": "10.20.0.0",
			"net-10-20-30-0.libpcap.test": "10.20.30.0",
		}[strings.ToLower(name)]
		a, _ := netip.ParseAddr(s)
		return a, ok
	},
	Port: func(name, protocol string) (uint16, bool) {
		p := testServices[name]
		if slices.Contains(p.protocols, protocol) {
			return p.port, true
		}
		return 0, false
	},
}

var testServices = map[string]struct {
	port      uint16
	protocols []string
}{
	"http": {80, []string{"tcp"}}, "https": {443, []string{"tcp", "udp"}}, "domain": {53, []string{"tcp", "udp"}},
	"ssh": {22, []string{"tcp"}}, "tftp": {69, []string{"udp"}}, "ntp": {123, []string{"udp"}},
	"smtp": {25, []string{"tcp"}}, "snmp": {161, []string{"tcp", "udp"}}, "echo": {7, []string{"tcp", "udp"}},
	"discard": {9, []string{"tcp", "udp"}}, "chargen": {19, []string{"tcp", "udp"}},
	"ftp-data": {20, []string{"tcp"}}, "ftp": {21, []string{"tcp"}}, "telnet": {23, []string{"tcp"}},
	"syslog": {514, []string{"udp"}}, "bootps": {67, []string{"udp"}}, "bootpc": {68, []string{"udp"}}, "daytime": {13, []string{"tcp", "udp"}},
}

var testHosts = []string{
	"10.20.30.40 noeth-ipv4-noipv6.host123.libpcap.test",
	"10.20.30.40 noeth-ipv4-ipv6.host123.libpcap.test",
	"10.20.30.40 eth-ipv4-noipv6.host123.libpcap.test",
	"10.20.30.40 eth-ipv4-ipv6.host123.libpcap.test",
	"fd00:a1b2:c3d4::1020:3040:5060:7080 noeth-noipv4-ipv6.host123.libpcap.test",
	"fd00:a1b2:c3d4::1020:3040:5060:7080 noeth-ipv4-ipv6.host123.libpcap.test",
	"fd00:a1b2:c3d4::1020:3040:5060:7080 eth-noipv4-ipv6.host123.libpcap.test",
	"fd00:a1b2:c3d4::1020:3040:5060:7080 eth-ipv4-ipv6.host123.libpcap.test",
	"192.168.243.1 eth-ipv4x4-noipv6.host357.libpcap.test",
	"192.168.242.4 eth-ipv4x4-noipv6.host357.libpcap.test",
	"192.168.244.2 eth-ipv4x4-noipv6.host357.libpcap.test",
	"192.168.241.3 eth-ipv4x4-noipv6.host357.libpcap.test",
	"192.168.241.3 eth-ipv4x4-ipv6x2.host357.libpcap.test",
	"192.168.244.2 eth-ipv4x4-ipv6x2.host357.libpcap.test",
	"192.168.242.4 eth-ipv4x4-ipv6x2.host357.libpcap.test",
	"192.168.243.1 eth-ipv4x4-ipv6x2.host357.libpcap.test",
	"fd00:a1b2:c3d4::a0b0:c0d0:e0f0:1278 eth-noipv4-ipv6x2.host357.libpcap.test",
	"fd00:a1b2:c3d4::a0b0:c0d0:e0f0:3456 eth-noipv4-ipv6x2.host357.libpcap.test",
	"fd00:a1b2:c3d4::a0b0:c0d0:e0f0:3456 eth-ipv4x4-ipv6x2.host357.libpcap.test",
	"fd00:a1b2:c3d4::a0b0:c0d0:e0f0:1278 eth-ipv4x4-ipv6x2.host357.libpcap.test",
}
