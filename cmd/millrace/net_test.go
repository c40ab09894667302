package main

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/app/stackd"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/shim"
)

// TestListsHaveTheFormOfIPAndSS shows each form of each line.
func TestListsHaveTheFormOfIPAndSS(t *testing.T) {
	var out bytes.Buffer
	c := &console{out: &out}
	seconds := 3600.0
	via, src := netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2")
	showAddrs(c, []stackd.AddrReport{
		{Device: "eth1", MAC: "02:00:00:00:00:01", MTU: 1500, Link: "up", Address: netip.MustParsePrefix("198.18.0.2/24"), Origin: "static", State: "preferred"},
		{Device: "eth1", MAC: "02:00:00:00:00:01", MTU: 1500, Link: "up", Address: netip.MustParsePrefix("fe80::1/64"), Origin: "static", State: "tentative", Valid: &seconds, Preferred: &seconds},
		{Device: "eth2", Link: "down", MAC: "02:00:00:00:00:02", MTU: 9000, Address: netip.MustParsePrefix("2001:db8::2/64"), Origin: "ra", State: "deprecated", Valid: &seconds},
	})
	for _, r := range []stackd.RouteReport{
		{To: netip.MustParsePrefix("0.0.0.0/0"), Via: &via, Device: "eth1", Origin: "static", Metric: 100},
		{To: netip.MustParsePrefix("198.18.0.0/24"), Device: "eth1", Origin: "connected", Source: &src},
		{To: netip.MustParsePrefix("198.19.7.1/32"), Device: "eth1", Origin: "static", Reject: true},
	} {
		c.printf("%s\n", routeLine(&r))
	}
	for _, n := range []stackd.NeighReport{
		{Address: via, Device: "eth1", MAC: "02:00:00:00:00:03", State: "reachable", Router: true},
		{Address: src, Device: "eth1", State: "incomplete"},
	} {
		c.printf("%s\n", neighLine(&n))
	}
	showSockets(c, &stackd.Sockets{More: 1234, Sockets: []stackd.SocketReport{
		{Protocol: "tcp", State: "LISTEN", Local: netip.MustParseAddrPort("[::]:7"), Remote: netip.MustParseAddrPort("[::]:0"), Loop: -1, Service: "echo"},
		{Protocol: "udp", State: "UNCONN", Local: netip.MustParseAddrPort("0.0.0.0:7"), Remote: netip.MustParseAddrPort("0.0.0.0:0"), Receive: 17},
		{
			Protocol: "tcp", State: "ESTAB", Local: netip.MustParseAddrPort("[2001:db8::2]:80"), Remote: netip.MustParseAddrPort("[2001:db8::1]:40000"), Send: 1448, Loop: 1,
			Service: "http", TCP: &stackd.TCPReport{
				Congestion: "cubic", Cwnd: 14480, RTT: 0.25, RTTVar: 0.125, MinRTT: 0.1, RTO: 200.25, MSS: 1448, PathMTU: 1500, Acked: 5,
				InFlight: 1448, Delivery: 1_000_000, SendScale: 7, RecvScale: 8, Timestamps: true, SACK: true, RecvWindow: 65536,
			},
		},
	}}, true)
	showSockets(c, &stackd.Sockets{Sockets: []stackd.SocketReport{{
		Protocol: "tcp", State: "LISTEN", Local: netip.MustParseAddrPort("0.0.0.0:80"), Remote: netip.MustParseAddrPort("0.0.0.0:0"), Loop: -1,
		Process: &stackd.ProcessReport{PID: 7, UID: 1000, Command: "ngi\x1b[1mnx"},
	}}}, false)
	showShim(c, &stackd.ShimStats{
		Counters: map[string]int64{"accepts": 12345, "sockets": 3, "failures": 0}, Users: []shim.UserStats{{UID: 1000, Sockets: 3, Channels: 1, Limited: 4444}},
	})
	golden(t, "net.txt", out.String())
}

// TestStackServesAndEndsWithABalance runs it as a process, asks it by every command, and ends it in each way.
func TestStackServesAndEndsWithABalance(t *testing.T) {
	t.Parallel()
	n := testnet.For(t, "mr-cli-stack")
	client, host := n.Namespace("client"), n.Namespace("host")
	for _, err := range []error{
		n.Link(client, "eth0", host, "st0"), client.NoOffload("eth0"), client.Up("eth0", "198.18.0.1/24", "2001:db8::1/64"), host.Up("st0"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	testnet.Program(t, "curl")
	dir := t.TempDir()
	file, socket := filepath.Join(dir, "stack.yaml"), filepath.Join(dir, "s.sock")
	text := "devices: [{name: st0, driver: afxdp, addresses: [198.18.0.2/24, \"2001:db8::2/64\"]}]\nservices: all\ncontrol: {socket: " + socket + "}\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	end := func(how string) func(p *os.Process) {
		return func(p *os.Process) {
			switch how {
			case "SIGTERM":
				_ = p.Signal(syscall.SIGTERM)
			case "SIGINT":
				_ = p.Signal(os.Interrupt)
			default:
				if code, out, err := run("stack", "down", "--socket", socket); code != exitOK || out != "the stack has stopped\n" {
					t.Errorf("stack down: code %d, %q %q", code, out, err)
				}
			}
		}
	}
	for how, args := range map[string][]string{
		"SIGTERM": {"-c", file},
		"SIGINT":  {"--dev", "st0:afpacket", "--addr", "198.18.0.2/24", "--addr", "2001:db8::2/64", "--socket", socket},
		"down":    {"-c", file, "--socket", socket, "--engine", "cpu"},
	} {
		t.Run(how, func(t *testing.T) {
			var out, log buffer
			cmd := program(append([]string{"stack", "up", "--json"}, args...)...)
			cmd.Stdout, cmd.Stderr = &out, &log
			if err := host.Start(cmd); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			log.until(t, `"state":"up"`)
			for _, url := range []string{"http://198.18.0.2/bytes/100000", "http://[2001:db8::2]/bytes/100000"} {
				if got, err := client.Run("curl", "-sS", "-g", "--max-time", "10", "-o", "/dev/null", "-w", "%{http_code} %{size_download}", url); err != nil || got != "200 100000" {
					t.Errorf("%s: %q, %v", url, got, err)
				}
			}
			for args, want := range map[string]string{
				"addr": "inet6 2001:db8::2/64 scope global", "addr -4": "inet 198.18.0.2/24", "route -6": "2001:db8::/64 dev st0",
				"neigh": "198.18.0.1 dev st0 lladdr", "neigh --state reachable": "REACHABLE", "sockets -t -l": "LISTEN", "sockets -u": "UNCONN",
				"stats": "dropped", "addr --json": `"device": "st0"`, "route --json": `"via": null`, "neigh --json": `"router": false`,
				"sockets --json": `"service": "http"`, "stats --json": `"passive_opens": 2`,
			} {
				code, out, err := run(append(append([]string{"net"}, strings.Fields(args)...), "--socket", socket)...)
				if code != exitOK || !strings.Contains(out, want) {
					t.Errorf("net %s: code %d, %q is not in %q %q", args, code, want, out, err)
				}
				if asJSON := strings.HasSuffix(args, "--json"); asJSON != json.Valid([]byte(out)) || asJSON && !strings.HasPrefix(out, "{\n  \"schema\": 1,\n") {
					t.Errorf("net %s prints %q", args, out)
				}
			}
			if code, out, _ := run("net", "addr", "-4", "--socket", socket); code != exitOK || strings.Contains(out, "inet6") {
				t.Errorf("net addr -4: %q", out)
			}
			end(how)(cmd.Process)
			done := make(chan error, 1)
			go func() { done <- cmd.Wait() }()
			select {
			case err := <-done:
				if err != nil {
					t.Fatalf("%v\n%s", err, &log)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("it does not end:\n%s", &log)
			}
			var s stackd.Stats
			decode(t, out.String(), &s)
			sum := s.Packets.Forwarded + s.Packets.Delivered
			for _, n := range s.Packets.Dropped {
				sum += n
			}
			if s.Packets.Received == 0 || s.Packets.Received+s.Packets.Originated != sum || s.TCP["passive_opens"] != 2 {
				t.Errorf("the counters do not balance: %+v", s)
			}
			if _, err := os.Stat(socket); err == nil {
				t.Error("the control socket is left")
			}
		})
	}
}
