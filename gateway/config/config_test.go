package config

import (
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/millrace/millrace/gateway/health"
)

var update = flag.Bool("update", false, "write the golden files")

// sameAddrs makes netip values comparable for cmp.
var sameAddrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func TestTheExampleHasEveryKeyAndTheDefaultsItStates(t *testing.T) {
	c, err := Load("../../examples/gateway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := newConfig()
	d.Table.HalfOpen = d.Table.Size / 4
	if c.Table != d.Table || c.SNATPorts != d.SNATPorts || c.Checksum != d.Checksum {
		t.Errorf("the example states other defaults than the code: %+v", c)
	}
	if diff := cmp.Diff(newDevice(), Device{Driver: c.Devices[0].Driver, Queues: c.Devices[0].Queues, Ring: c.Devices[0].Ring, Mode: c.Devices[0].Mode}); diff != "" {
		t.Error(diff)
	}
	i, di := c.Inspection, d.Inspection
	if i.Flows != di.Flows || i.Memory != di.Memory || i.Overload != di.Overload || i.Alerts.Buffer != di.Alerts.Buffer || i.Alerts.Payload != di.Alerts.Payload || i.Packets.Size != di.Packets.Size {
		t.Errorf("the example states other defaults of inspection than the code: %+v", i)
	}
	h := *c.Services[0].Health
	h.Port, h.Device = 0, ""
	if diff := cmp.Diff(*health.New(), h); diff != "" {
		t.Errorf("the example states other health defaults than the code: %s", diff)
	}
	src, err := os.ReadFile("../../examples/gateway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	keys := "devices name driver queues ring mode snat snat_ports checksum table size tcp established syn syn_recv half_closed fin reset udp " +
		"metrics listen services protocol address source removed unhealthy unknown hash_size backends weight health type interval extra_processor " +
		"timeout rise fall port device cpus spin tunnel gue_port sources deny allow default limits packets connections " +
		"burst clients half_open fragments admin socket mode slow_start drain unavailable mss state " +
		"http method path host status body server_name insecure ca_file send_hex expect_hex silence command " +
		"defence drop accept rates packets syn_rate time max_verdicts excess action clients refused inspection " +
		"bgp as router_id graceful_restart med local_preference prepend communities peers local_address password_file hold_time connect_retry hops ttl_security families next_hop max_prefixes announce " +
		"passive failures window down max_down max_ejected " +
		"inspection policies devices rules access capture lenient overlaps urgent variables variables_file classification flows memory overload alerts file buffer payload packets"
	for _, key := range strings.Fields(keys) {
		if !strings.Contains(string(src), key+":") {
			t.Errorf("the example lacks %q", key)
		}
	}
}

func TestAConfigurationIsReadWhole(t *testing.T) {
	src := `
devices: [{name: gw0, driver: afxdp, queues: 1, ring: 16384, mode: generic}]
snat: 198.18.2.1
snat_ports: 2000-2999
checksum: drop
engine: auto
cpus: [3]
extra_processor: true
spin: 20us
kernel_flows: auto
tunnel: {source: [198.18.9.0/24, "2001:db8:9::1"], gue_port: 6081, too_big: fragment}
sources: {deny: [192.0.2.0/24, lists/bad.txt], allow: 192.0.2.1, default: deny}
limits: {packets: 10, connections: 20, burst: 2s, clients: 2048}
table: {size: 4096, tcp: {established: 1h, syn: 5s, fin: 6s, syn_recv: 8s, half_closed: 9s, reset: 10s}, udp: 7s, half_open: 300, fragments: 64, kernel_flows: 5000}
admin: {socket: /tmp/gw.sock}
metrics: {listen: "127.0.0.1:0"}
inspection:
  policies:
    - {name: all, mode: prevent, services: web, devices: [gw0], rules: [a.rules, b.rules], access: a.access, lenient: true, overlaps: pass, urgent: drop}
    - {name: rest, rules: c.rules}
  variables: HOME_NET=any
  variables_file: s.yaml
  classification: c.config
  flows: 100
  memory: 2_097_152
  overload: pass
  alerts: {file: "-", buffer: 131072, payload: 9}
  packets: {file: p.pcapng, size: 262144}
services:
  - name: web
    protocol: udp
    address: 198.18.1.1:80
    source: client
    removed: drop
    unhealthy: drop
    unknown: drop
    hash_size: 251
    slow_start: 3s
    drain: 4s
    unavailable: reject
    quic: {rotation: 2, server_id_length: 2, nonce_length: 6, key: "000102030405060708090a0b0c0d0e0f"}
    sources: {deny: 192.0.2.9, default: deny}
    limits: {packets: 1, connections: 2, burst: 50ms}
    backends:
      - {name: b1, address: 198.18.2.11:8080, weight: 3, state: draining, server_id: "0a0b"}
      - {address: 198.18.2.12:8080, server_id: "0c0d"}
    health:
      {type: https, interval: 300ms, timeout: 200ms, rise: 1, fall: 2, port: 99, device: gw0, http: {method: POST, path: "/a?b", host: web,
       status: [200-299, 304], body: fine, server_name: web.example, insecure: true}}
    passive: {failures: 3, window: 4s, down: 5s, max_down: 6s, max_ejected: 7}
  - name: direct
    address: 198.18.1.1:80
    mode: gue
    mss: auto
    backends: [{address: 198.18.2.11}]
`
	got, err := Parse("f", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Devices:   []Device{{Name: "gw0", Driver: "afxdp", Queues: 1, Ring: 16384, Mode: "generic"}},
		SNAT:      []netip.Addr{netip.MustParseAddr("198.18.2.1")},
		SNATPorts: PortRange{2000, 2999},
		Checksum:  "drop",
		Engine:    "auto",
		Table: Table{
			Size: 4096, TCPEstablished: time.Hour, TCPSYN: 5 * time.Second, TCPFIN: 6 * time.Second, TCPSYNReceived: 8 * time.Second,
			TCPHalfClosed: 9 * time.Second, TCPReset: 10 * time.Second, UDP: 7 * time.Second, HalfOpen: 300, Fragments: 64, KernelFlows: 5000,
		},
		CPUs: CPUs{List: []int{3}},

		ExtraProcessor: true,
		Spin:           20 * time.Microsecond,
		KernelFlows:    KernelFlowsAuto,
		Stack:          StackKernel,
		AccessLog:      newAccessLog(),
		Resolver:       newResolver(),
		Tunnel:         Tunnel{Sources: []netip.Prefix{prefix("198.18.9.0/24"), prefix("2001:db8:9::1/128")}, GUEPort: 6081, TooBig: TooBigFragment},
		Sources: Sources{
			Deny: []SourceList{{Prefix: prefix("192.0.2.0/24")}, {File: "lists/bad.txt"}}, Allow: []SourceList{{Prefix: prefix("192.0.2.1/32")}}, Default: "deny",
		},
		Limits:  Limits{Packets: 10, Connections: 20, Burst: 2 * time.Second, Clients: 2048},
		Admin:   Admin{Socket: "/tmp/gw.sock"},
		Metrics: Metrics{Listen: "127.0.0.1:0"},
		Inspection: Inspection{
			Policies: []InspectionPolicy{{
				Name: "all", Mode: InspectionPrevent, Services: []string{"web"}, Devices: []string{"gw0"}, Rules: []string{"a.rules", "b.rules"},
				Access: []string{"a.access"}, Hold: 64 << 10, Lenient: true, Overlaps: OverloadPass, Urgent: UrgentDrop,
			}, {Name: "rest", Mode: InspectionDetect, Rules: []string{"c.rules"}, Hold: 64 << 10, Overlaps: OverloadDrop, Urgent: UrgentStrip}},
			Variables: []string{"HOME_NET=any"}, VariablesFile: "s.yaml", Classification: "c.config", Flows: 100, Memory: 2 << 20, Overload: OverloadPass,
			Alerts: InspectionAlerts{File: "-", Buffer: 1 << 17, Payload: 9}, Packets: InspectionPackets{File: "p.pcapng", Size: 1 << 18},
		},
		Services: []Service{{
			Name: "web", Protocol: "udp", Addresses: []AddrPorts{addrPorts("198.18.1.1:80")},
			Balance: BalanceMaglev, WhenFull: FullNext,
			Mode: ModeNAT, Source: SourceClient, Removed: "drop", Unhealthy: "drop", Unknown: UnknownDrop, HashSize: 251,
			SlowStart: 3 * time.Second, Drain: 4 * time.Second, Reject: true,
			QUIC:    &QUIC{Rotation: 2, ServerID: 2, Nonce: 6, Key: []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
			Sources: Sources{Deny: []SourceList{{Prefix: prefix("192.0.2.9/32")}}, Default: "deny"},
			Limits:  Limits{Packets: 1, Connections: 2, Burst: 50 * time.Millisecond},
			Backends: []Backend{
				{Name: "b1", Addresses: []AddrPorts{addrPorts("198.18.2.11:8080")}, Weight: 3, State: StateDraining, ServerID: []byte{10, 11}},
				{Name: "198.18.2.12:8080", Addresses: []AddrPorts{addrPorts("198.18.2.12:8080")}, Weight: 1, State: StateActive, ServerID: []byte{12, 13}},
			},
			Health: &health.Check{
				Type: health.TypeHTTPS, Interval: 300 * time.Millisecond, Timeout: 200 * time.Millisecond, Rise: 1, Fall: 2, Port: 99, Device: "gw0",
				HTTP: health.HTTP{
					Method: "POST", Path: "/a?b", Host: "web", Status: []health.StatusRange{{First: 200, Last: 299}, {First: 304, Last: 304}},
					Body: "fine", ServerName: "web.example", Insecure: true,
				},
				UDP: health.UDP{Silence: health.SilenceFailure},
			},
			Passive: &health.Passive{Failures: 3, Window: 4 * time.Second, Down: 5 * time.Second, MaxDown: 6 * time.Second, MaxEjected: 7},
		}, {
			Name: "direct", Protocol: "tcp", Addresses: []AddrPorts{addrPorts("198.18.1.1:80")},
			Balance: BalanceMaglev, WhenFull: FullNext,
			Mode: ModeGUE, Source: SourceGateway, Removed: "keep", Unhealthy: "keep", Unknown: UnknownAuto, HashSize: 1021, MSS: MSSAuto,
			Sources: Sources{Default: "allow"}, Limits: Limits{Burst: time.Second},
			Backends: []Backend{{Name: "198.18.2.11", Addresses: []AddrPorts{addrPorts("198.18.2.11:0")}, Weight: 1, State: StateActive}},
		}},
	}
	same := cmp.Options{
		cmpopts.IgnoreUnexported(Config{}),
		sameAddrs, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	}
	if diff := cmp.Diff(want, got, same); diff != "" {
		t.Error(diff)
	}
}

func prefix(s string) netip.Prefix {
	p, err := parsePrefix(s)
	if err != nil {
		panic(err)
	}
	return p
}

// TestMistakesAreShown compares the messages for each file of testdata with its golden
// file. Run with -update to write them, and read the difference.
func TestMistakesAreShown(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Parse(filepath.Base(file), src)
			var ce *Error
			if !errors.As(err, &ce) {
				t.Fatalf("got %v, want a Error", err)
			}
			got := ce.Text(len(ce.Problems)) + "\n"
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.yaml")
	for _, file := range append(files, "../../examples/gateway.yaml") {
		src, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		c, err := Parse("f", src)
		var ce *Error
		switch {
		case err == nil && (len(c.Services) > 0 && len(c.Devices) == 0 || len(c.Services)+len(c.Listeners) == 0):
			t.Error("accepted services without devices, or a configuration without services and listeners")
		case err != nil && !errors.As(err, &ce):
			t.Errorf("not a Error: %v", err)
		}
	})
}

func TestTheExamplesOfModesAreValid(t *testing.T) {
	files, err := filepath.Glob("../../examples/modes/*.yaml")
	if err != nil || len(files) != 6 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	page, err := os.ReadFile("../../docs/modes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if _, err := Load(file); err != nil {
			t.Error(err)
		}
		if !strings.Contains(string(page), "(../examples/modes/"+filepath.Base(file)+")") {
			t.Errorf("docs/modes.md does not lead to %s", file)
		}
	}
}

// TestServicesShareKeysByAnchors merges what services have in common; an error in it has its place there.
func TestServicesShareKeysByAnchors(t *testing.T) {
	const src = `x-defaults:
  base: &base
    drain: 30s
    health: &check {type: http, interval: 3s}
devices: [{name: eth0}]
snat: 198.18.2.1
services:
  - <<: *base
    name: web
    address: 198.18.1.1:80
    backends: &backends [{address: 198.18.2.11:8080}, {address: 198.18.2.12:8080}]
  - <<: *base
    name: api
    address: 198.18.1.2:80
    backends: *backends
    health: {<<: *check, interval: 5s}
`
	c, err := Parse("f.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	web, api := c.Services[0], c.Services[1]
	if web.Drain != 30*time.Second || api.Drain != web.Drain || len(api.Backends) != 2 || web.Health.Type != "http" || api.Health.Type != "http" ||
		web.Health.Interval != 3*time.Second || api.Health.Interval != 5*time.Second {
		t.Errorf("%+v\n%+v", web, api)
	}
	_, err = Parse("f.yaml", []byte(strings.Replace(src, "drain: 30s", "drain: 30", 1)))
	const want = "f.yaml:3:12: drain has no unit\n      drain: 30\n             ^\n  write 30s for seconds"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}
}

// addrPorts is ParseAddrPorts, and takes port 0.
func addrPorts(s string) (a AddrPorts) {
	if err := a.UnmarshalText([]byte(s)); err != nil {
		panic(err)
	}
	return a
}
