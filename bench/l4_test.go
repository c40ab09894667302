package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/testkit/checkout"
)

func testEnv(t *testing.T) *harness.Env {
	t.Helper()
	if os.Geteuid() != 0 || runtime.NumCPU() < 2 {
		t.Skip("needs root and two CPUs")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	return &harness.Env{Root: root, Self: self, Log: func(format string, args ...any) { t.Logf(format, args...) }}
}

// A contestant of every kind delivers, and its books balance. Speed is not looked at.
func TestL4Delivers(t *testing.T) {
	e := testEnv(t)
	b, err := l4.Open(e)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	// A window in which every process gets a CPU, beside others too: in one of 100 ms a sender may not run at all.
	plan := harness.Plan{Rounds: 1, Timing: harness.Timing{Warmup: 100 * time.Millisecond, Window: 400 * time.Millisecond}}
	wanted := map[string][]string{
		"UDP 64 B, 1 flow":                       {ours, oursAFP, nftDNAT, nginxUDP, routing},
		"UDP 64 B, 16 384 flows, socket sender":  {nftThread},
		"plain forwarding 64 B":                  {oursFwd, testpmdBusy},
		"TCP bulk, wire-sized packets, 1 stream": {ours},
		"TCP bulk, veth as it comes, 4 streams":  {nftDNAT},
		"flat in memory: flows":                  {"1 flow"},
		"SYN flood, connections of others":       {oursFlood},
		"SYN flood, CPU time":                    {oursPaced},
		"short connections":                      {ours},
		"loops":                                  {twoLoops, handLoops},
	}
	for _, m := range b.Measures {
		names := wanted[m.Name]
		delete(wanted, m.Name)
		m.Contestants = slices.DeleteFunc(m.Contestants, func(c harness.Contestant) bool { return !slices.Contains(names, c.Name) })
		if len(m.Contestants) != len(names) {
			t.Errorf("%s: not all of %q are there", m.Name, names)
		}
		p := plan
		if strings.HasPrefix(m.Name, "SYN flood") {
			p.Timing.Window = 2 * time.Second // a SYN that a busy machine loses is sent again after one
		}
		for _, o := range delivered(t, e, m, p) {
			checkL4(t, m.Name, o)
		}
	}
	for name := range wanted {
		t.Errorf("no measure %q", name)
	}
}

func checkL4(t *testing.T, measure string, o harness.Outcome) {
	t.Helper()
	for _, f := range o.Failures {
		t.Errorf("%s, %s: %s", measure, o.Name, f.Error)
	}
	if o.NotRun != "" {
		t.Logf("%s, %s: not run: %s", measure, o.Name, o.NotRun)
	}
	for _, s := range o.Samples {
		c := s.Counts
		if s.Units <= 0 || s.CPU <= 0 || c["offered"] != c["received"]+c["lost"] {
			t.Errorf("%s, %s: %v units, %v CPU seconds, counts %v", measure, o.Name, s.Units, s.CPU, c)
		}
	}
}

func TestAnInterruptedRunLeavesNoNamespace(t *testing.T) {
	e := testEnv(t)
	b := &l4Bench{e: e, dir: t.TempDir(), millrace: e.BuildMillrace()}
	if b.millrace.Absent != "" {
		t.Fatal(b.millrace.Absent)
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(300*time.Millisecond, cancel)
	f, name := b.gatewayOf(ours, usual("afxdp")), ""
	c := f.contestant(func(ctx context.Context, t harness.Timing, s *site, f forwarder) (harness.Sample, error) {
		name = s.gateway.Name
		_, err := harness.RunParts(ctx, t, append([]harness.Part{b.sinkPart(s)}, f.part(s)...)...)
		return harness.Sample{}, err
	})
	if _, err := c.Run(ctx, harness.Timing{Window: time.Hour}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	if left, _ := filepath.Glob("/run/netns/" + name); name == "" || len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestTheGatewaysConfigurationsAreValid(t *testing.T) {
	dir := t.TempDir()
	deny, err := writePrefixes(dir, 1<<14+1000)
	if err != nil {
		t.Fatal(err)
	}
	services, listed, loops := usual("afxdp"), million("afpacket"), million("afxdp")
	services.Services, listed.Deny, loops.Queues = manyService, deny, 2
	listed.HalfOpen = listed.Table
	for name, c := range map[string]gatewayConfig{
		"usual": usual("afxdp"), "million": million("afxdp"), "services": services, "listed": listed, "loops": loops,
	} {
		file, err := c.write(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := config.Load(file)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(got.Services) != c.Services+2 || got.Table.Size != c.Table {
			t.Errorf("%s: %d services and a table of %d", name, len(got.Services), got.Table.Size)
		}
	}
}

func TestNoClientIsListed(t *testing.T) {
	const n = 1<<14 + 5000
	listed := map[netip.Prefix]bool{}
	for p := range prefixes(n) {
		if listed[p] || p != p.Masked() {
			t.Fatalf("%v comes twice, or is none", p)
		}
		listed[p] = true
	}
	if len(listed) != n {
		t.Errorf("%d prefixes, want %d", len(listed), n)
	}
	s := memoryStream(million1, 1)
	first, err := s.Probe(64)
	if err != nil {
		t.Fatal(err)
	}
	between := false
	p := bytes.Clone(first)
	for flow := uint32(0); flow < million1; flow += 29 {
		s.Set(p, first, flow, 0)
		src := netip.AddrFrom4([4]byte(p[26:30]))
		for bits := range 33 {
			if listed[netip.PrefixFrom(src, bits).Masked()] {
				t.Fatalf("the client %v is listed", src)
			}
		}
		between = between || listed[netip.PrefixFrom(src.Next(), 32)]
	}
	if !between {
		t.Error("no neighbour of a client is listed")
	}
}

// The C sender writes the packets that vary makes, and valid SYNs.
func TestTheSocketSenderWritesWhatVaryMakes(t *testing.T) {
	e := testEnv(t)
	b := &l4Bench{e: e, packet: e.BuildC("packet")}
	if b.packet.Absent != "" {
		t.Skip(b.packet.Absent)
	}
	s, err := newSite(siteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	st := role.Stream{MAC: s.frontMAC, From: "198.18.64.0:1024", To: "198.18.0.10:53", Flows: 1 << 20, Services: 10_000}
	first, err := st.Probe(64)
	if err != nil {
		t.Fatal(err)
	}
	got := sniff(t, s, b.packetTx(s, first, st, 8, 10_000), 100)
	missed := uint64(0) // before the socket listened
	for missed < 10_000 && !bytes.Equal(got[0], packetOf(st, first, missed)) {
		missed++
	}
	for i, p := range got {
		if want := packetOf(st, first, missed+uint64(i)); !bytes.Equal(p, want) {
			t.Fatalf("packet %d is\n%x, want\n%x", i, p, want)
		}
	}
	flood, err := b.synFlood(s, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range sniff(t, s, flood, 100) {
		d := gopacket.NewPacket(p, layers.LayerTypeEthernet, gopacket.Default)
		tcp, _ := d.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if tcp == nil || !tcp.SYN || tcp.DstPort != tcpPort || len(tcp.Options) != 1 {
			t.Fatalf("packet %d of the flood: %v", i, d)
		}
		if err := tcp.SetNetworkLayerForChecksum(d.NetworkLayer()); err != nil {
			t.Fatal(err)
		}
		if err, bad := d.VerifyChecksums(); err != nil || len(bad) > 0 {
			t.Fatalf("packet %d of the flood: wrong checksums %v, %v: %v", i, bad, err, d)
		}
	}
}

// packetOf returns packet number n of a stream by the plain version.
func packetOf(s role.Stream, first []byte, n uint64) []byte {
	p := bytes.Clone(first)
	s.Vary(p, first, n)
	role.Stamp(p, n)
	return p
}

// sniff returns the first n IPv4 packets of a sender that come to the gateway.
func sniff(t *testing.T, s *site, sender harness.Part, n int) (got [][]byte) {
	t.Helper()
	fd := -1
	err := s.gateway.Do(func() (err error) {
		const proto = unix.ETH_P_IP<<8&0xff00 | unix.ETH_P_IP>>8
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		t.Fatal(err)
	}
	p, err := sender.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	buf := make([]byte, 2048)
	for len(got) < n {
		k, err := unix.Read(fd, buf)
		if err == unix.EINTR { // with SO_RCVTIMEO it is not restarted (signal(7))
			continue
		}
		if err != nil {
			t.Fatalf("after %d packets: %v", len(got), err)
		}
		if binary.BigEndian.Uint16(buf[12:]) == 0x0800 {
			got = append(got, bytes.Clone(buf[:k]))
		}
	}
	return got
}

func TestAProgramThatFailsSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		script, want string
	}{
		"at its start":  {"echo no such device >&2; exit 1", "no such device"},
		"at its end":    {"trap 'echo lost a frame; exit 4' TERM; echo up; while :; do sleep 0.05; done", "lost a frame"},
		"in the middle": {"echo up; sleep 0.1; echo segmentation fault; exit 139", "segmentation fault"},
	} {
		t.Run(name, func(t *testing.T) {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			part := harness.Part{Name: "part", Argv: []string{self, "role", "run", "-ready", "up", "--", "sh", "-c", c.script}}
			_, err = harness.RunParts(context.Background(), harness.Timing{Window: 300 * time.Millisecond}, part)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}
