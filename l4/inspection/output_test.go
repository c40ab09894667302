package inspection

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/capture"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

const testConfig = `
devices: [{name: gw0}]
snat: 198.18.2.1
services: [{name: dns, protocol: udp, address: "198.18.1.1:53", backends: [{address: "198.18.2.11:53"}]}]
inspection:
  alerts: {file: ALERTS, buffer: 65536}
  packets: {file: PACKETS, size: 65536}
  policies: [{name: p, mode: prevent, rules: a.rules, access: a.access}]
`

// opened returns an inspector of testConfig with one loop, and its folder.
func opened(t testing.TB, rules, access, alerts string) (*Inspector, string) {
	t.Helper()
	return openedAs(t, rules, access, Options{}, func(c *config.Config) { c.Inspection.Alerts.File = alerts })
}

// openedAs is opened with other options and a configuration that edit has changed.
func openedAs(t testing.TB, rules, access string, opt Options, edit func(*config.Config)) (*Inspector, string) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.rules"), rules)
	write(t, filepath.Join(dir, "a.access"), access)
	cfg := parsed(t, dir, "alerts.json")
	if edit != nil {
		edit(cfg)
	}
	opt.Wall = func(now clock.Time) time.Time { return time.Unix(1, int64(now)) }
	i, err := Open(cfg, opt)
	if err != nil {
		t.Fatal(err)
	}
	i.SetLoops(1)
	return i, dir
}

// alertsOf closes an inspector and returns its alerts.
func alertsOf(t testing.TB, i *Inspector, dir string) (list []Alert) {
	t.Helper()
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "alerts.json"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var a Alert
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	return list
}

func parsed(t testing.TB, dir, alerts string) *config.Config {
	t.Helper()
	src := strings.NewReplacer("ALERTS", alerts, "PACKETS", "p.pcapng").Replace(testConfig)
	cfg, err := config.Parse(filepath.Join(dir, "gw.yaml"), []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// inspect1 gives a loop a datagram of a client that opens a connection.
func inspect1(l *Loop, now clock.Time, port uint16, payload string) packet.Verdict {
	return inspectIn(l, datagramOf(port, payload), &datapath.Inspected{Now: now, FromClient: true, Opens: true})
}

// inspectIn gives a loop a packet of an IPv4 client whose payload is at 42, or that of TCP at 54.
func inspectIn(l *Loop, frame []byte, in *datapath.Inspected) packet.Verdict {
	d := packet.Desc{Len: uint16(len(frame)), L3: 14, L4: 34, Payload: 42, Flags: packet.FlagIPv4 | packet.FlagL4ChecksumOK, Proto: frame[23]}
	if d.Proto == wire.ProtoTCP {
		d.Payload = 54
	}
	in.Arena, in.Chain = &packet.Arena{Mem: frame, Shift: 11}, []packet.Desc{d}
	in.Service, in.Policy = "dns", cmp.Or(in.Policy, 1)
	v, _ := l.Inspect(in)
	return v
}

// datagramOf is a datagram of a client.
func datagramOf(port uint16, payload string) []byte {
	mac := wire.MAC{2, 0, 0, 0, 0, 1}
	frame := wire.AppendEthernet(nil, mac, mac, wire.EtherTypeIPv4)
	frame = wire.AppendIPv4(frame, &wire.IPv4Header{PayloadLen: wire.UDPLen + len(payload), TTL: 64, Proto: wire.ProtoUDP, Src: [4]byte{192, 0, 2, 1}, Dst: [4]byte{198, 18, 1, 1}})
	return append(wire.AppendUDP(frame, port, 53, len(payload)), payload...)
}

const evilRule = "drop udp any any -> any any (msg:\"evil\"; content:\"evil\"; sid:7; rev:2;)\n"

// A metric that two help texts have would make the whole scrape fail.
func TestMetricsOfAPolicyAreASeriesEach(t *testing.T) {
	i, _ := opened(t, `drop udp any any -> any 53 (content:"evil"; sid:1;)`, "drop udp from 198.18.9.0/24 to any port 53\n", "a.json")
	defer i.Close()
	inspect1(i.Loop(0), 1, 40000, "evil")
	r := metrics.NewRegistry(metrics.Build{})
	r.Add(i.WriteMetrics)
	if err := r.WriteText(io.Discard, metrics.Selection{}); err != nil {
		t.Error(err)
	}
}

// What has no meaning on a gateway is refused at its place, each line once.
func TestAccessRulesWithoutMeaningAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"pass tcp\nredirect eth1 to any port 1,2":                "a.access:2:1: redirect has no meaning on a gateway",
		"alert tcp any any -> any any (content:\"abc\"; sid:1;)": "inspection rules are not read in a file of access rules",
		"drop from list bad":                                     "a.access:1:16: no line before defines the list",
		"list bad file \"none.txt\"\ndrop from list bad":         "none.txt",
		"include \"b.access\"":                                   "b.access:1:1: redirect has no meaning",
		"capture mark 9":                                         "the rule has capture, but there is no file for packets",
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "a.rules"), "")
		write(t, filepath.Join(dir, "a.access"), text+"\n")
		write(t, filepath.Join(dir, "b.access"), "redirect eth1\n")
		cfg := parsed(t, dir, "a.json")
		if strings.HasPrefix(text, "capture") {
			cfg.Inspection.Packets.File = ""
		}
		ce := new(config.Error)
		if _, err := Open(cfg, Options{}); !errors.As(err, &ce) || !strings.Contains(err.Error(), want) || len(ce.Problems) != 1 {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// A full disk takes no alerts, and costs nothing but them.
func TestAFullDiskLosesAlertsOnly(t *testing.T) {
	i, _ := opened(t, evilRule, "drop from 192.0.2.9\n", "/dev/full")
	for n := range 100 {
		if v := inspect1(i.Loop(0), clock.Time(n), uint16(1000+n), "evil"); v != packet.DropInspection {
			t.Fatalf("verdict %v", v)
		}
	}
	for end := time.Now().Add(20 * time.Second); i.Status(1).AlertsFailed == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no failed write counted")
		}
	}
	if err := i.Close(); !errors.Is(err, errUnwritten) {
		t.Errorf("the end of an inspector whose disk is full: %v", err)
	}
}

// stuck is a disk that does not answer.
type stuck struct{ free chan struct{} }

func (s stuck) Write(p []byte) (int, error) { <-s.free; return len(p), nil }
func (s stuck) Close() error                { return nil }

// A disk that hangs delays no packet: what does not fit the buffer is dropped and counted.
func TestASlowDiskDelaysNoPacket(t *testing.T) {
	i, _ := opened(t, evilRule, "drop from 192.0.2.9\n", "alerts.json")
	disk := stuck{make(chan struct{})}
	if err := i.alerts.Load().file.swap(disk); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		for n := range 1000 {
			inspect1(i.Loop(0), clock.Time(n), uint16(1000+n), "evil")
		}
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("the loop waits for the disk")
	}
	s := i.Status(10)
	if s.AlertsDropped == 0 || s.Rules[0].Alerts != 1000 || s.Rules[0].Drops != 1000 {
		t.Errorf("%+v", s)
	}
	close(disk.free)
	if err := i.Close(); err != nil {
		t.Error(err)
	}
}

// The packets of alerts are a capture with the rule of each, up to the size.
func TestPacketsOfAlertsAreCaptured(t *testing.T) {
	i, dir := opened(t, evilRule, "drop from 192.0.2.9\n", "alerts.json")
	for n := range 20 {
		inspect1(i.Loop(0), clock.Time(n), uint16(1000+n), "evil")
	}
	if err := i.Reload(parsed(t, dir, "alerts.json")); err != nil { // another section of the same file
		t.Fatal(err)
	}
	for n := range 1000 {
		inspect1(i.Loop(0), clock.Time(100+n), uint16(2000+n), strings.Repeat("x", 500)+"evil")
	}
	s := i.Status(1)
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "p.pcapng")
	if size := sizeOf(path); size > 65536 || size < 60000 {
		t.Errorf("%d bytes", size)
	}
	in, err := capture.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	n := uint64(0)
	for ; ; n++ {
		r, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if string(r.Meta.Comment) != "p drop: 1:7:2 evil" || !bytes.HasSuffix(r.Data, []byte("evil")) {
			t.Fatalf("packet %d: %q, %q", n, r.Meta.Comment, r.Data)
		}
	}
	if n != s.PacketsWritten || s.PacketsWritten+s.PacketsDropped != 1020 {
		t.Errorf("%d packets in the capture; %+v", n, s)
	}
}

// Loops write to the same files, and are read while they run.
func TestLoopsShareTheOutputs(t *testing.T) {
	i, dir := opened(t, evilRule, "drop from 192.0.2.9\n", "alerts.json")
	i.SetLoops(4)
	var all sync.WaitGroup
	for k := range 4 {
		all.Go(func() {
			for n := range 200 {
				inspect1(i.Loop(k), clock.Time(n), uint16(1000+n), "evil")
			}
		})
	}
	for range 5 {
		i.Status(10)
		if err := i.Reload(parsed(t, dir, "alerts.json")); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	s := i.Status(1)
	if s.Rules[0].Matches != 800 {
		t.Errorf("%+v", s.Rules)
	}
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "alerts.json"))
	if err != nil {
		t.Fatal(err)
	}
	if n := uint64(bytes.Count(text, []byte("\n"))); n+s.AlertsDropped != 800 {
		t.Errorf("%d lines, %d dropped", n, s.AlertsDropped)
	}
}

// Policies have numbers for good, and one that a reload removes stays for one more.
func TestPoliciesHaveNumbersForGood(t *testing.T) {
	i, dir := opened(t, evilRule, "drop from 192.0.2.9\n", "alerts.json")
	cfg := parsed(t, dir, "alerts.json")
	cfg.Inspection.Policies[0].Name = "q"
	if err := i.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	if i.Number("p") != 1 || i.Number("q") != 2 {
		t.Errorf("numbers %d and %d", i.Number("p"), i.Number("q"))
	}
	if v := inspect1(i.Loop(0), 1, 1000, "evil"); v != packet.DropInspection {
		t.Errorf("the policy before: %v", v)
	}
	if err := i.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	if v := inspect1(i.Loop(0), 2, 1001, "evil"); v != packet.Forward {
		t.Errorf("a policy that is gone: %v", v)
	}
	p, err := i.Plan(parsed(t, dir, "alerts.json"))
	if err != nil {
		t.Fatal(err)
	}
	i.Swap(p)
	p.Discard()
	if v := inspect1(i.Loop(0), 3, 1002, "evil"); v != packet.Forward {
		t.Errorf("after a plan that was discarded: %v", v)
	}
	if err := i.Close(); err != nil {
		t.Error(err)
	}
}

// FuzzRules loads any files and inspects any packet: errors are *config.Error, and nothing panics.
func FuzzRules(f *testing.F) {
	f.Add(evilRule, "drop from 192.0.2.0/24 name \"x\"\n", "evil")
	f.Add("alert http any any -> any any (http.uri; content:\"/a\"; pcre:\"/x+y/R\"; sid:1;)\n", "pass udp to any port 53\n", "GET /a HTTP/1.1\r\n\r\n")
	f.Add("reject dns any any -> any any (dns.query; content:\"a.example\"; sid:1;)\ndrop ip any any -> any any (sid:2;)", "drop\n", "\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x07example\x00\x00\x01\x00\x01")
	dir := f.TempDir()
	cfg := parsed(f, dir, "/dev/null")
	cfg.Inspection.Packets.File = ""
	f.Fuzz(func(t *testing.T, rules, access, payload string) {
		write(t, filepath.Join(dir, "a.rules"), rules)
		write(t, filepath.Join(dir, "a.access"), access)
		i, err := Open(cfg, Options{Wall: func(clock.Time) time.Time { return time.Time{} }})
		if err != nil {
			if !errors.As(err, new(*config.Error)) {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		i.SetLoops(1)
		for n := range 3 {
			inspect1(i.Loop(0), clock.Time(n), 1000, payload[:min(len(payload), 1400)])
		}
		i.Status(3)
		i.Close()
	})
}

// Rules of a reload follow those before: the bits that were set are the same ones, whatever their places.
func TestBitsOutliveAReload(t *testing.T) {
	const set = "alert udp any any -> any any (content:\"setit\"; xbits:set,x,track ip_src,expire 600; noalert; sid:1;)\n"
	i, dir := opened(t, set, "drop from 192.0.2.9\n", "alerts.json")
	inspect1(i.Loop(0), 1, 1000, "setit")
	write(t, filepath.Join(dir, "a.rules"), "alert udp any any -> any any (content:\"other\"; xbits:set,y,track ip_src,expire 600; noalert; sid:9;)\n"+set+
		"drop udp any any -> any any (content:\"ask x\"; xbits:isset,x,track ip_src; sid:2;)\n"+
		"drop udp any any -> any any (content:\"ask y\"; xbits:isset,y,track ip_src; sid:3;)\n")
	if err := i.Reload(parsed(t, dir, "alerts.json")); err != nil {
		t.Fatal(err)
	}
	for payload, want := range map[string]packet.Verdict{"ask x": packet.DropInspection, "ask y": packet.Forward} {
		if v := inspect1(i.Loop(0), 2, 1001, payload); v != want {
			t.Errorf("%s: %v, want %v", payload, v, want)
		}
	}
	if err := i.Close(); err != nil {
		t.Error(err)
	}
}

// A pipe without a reader fails the start with the remedy: it does not wait for one.
func TestPipesWithoutAReaderAreRefused(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.rules"), evilRule)
	write(t, filepath.Join(dir, "a.access"), "drop from 192.0.2.9\n")
	for _, name := range []string{"alerts.json", "p.pcapng"} {
		path := filepath.Join(dir, name)
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		i, err := Open(parsed(t, dir, "alerts.json"), Options{Wall: func(clock.Time) time.Time { return time.Unix(1, 0) }})
		if err == nil || !strings.Contains(err.Error(), "start its reader first") {
			t.Errorf("%s: %v, %v", name, i, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
