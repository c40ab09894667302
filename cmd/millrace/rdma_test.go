package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/app/rdmaperf"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/rdma"
)

// TestRDMACommands runs the server in one namespace and each client in another.
func TestRDMACommands(t *testing.T) {
	nets := testnet.For(t, "mr-cli-rdma")
	na, nb := nets.Namespace("a"), nets.Namespace("b")
	if err := errors.Join(nets.Link(na, "eth0", nb, "eth0"), na.Up("eth0", "198.18.0.1/24"), nb.Up("eth0", "198.18.0.2/24")); err != nil {
		t.Fatal(err)
	}
	in := func(ctx context.Context, ns *testnet.Namespace, args ...string) (code int, out, errs string) {
		var o, e buffer
		err := ns.Do(func() error {
			code = execute(ctx, append([]string{"rdma"}, args...), &console{in: strings.NewReader(""), out: &o, err: &e})
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		return code, o.String(), e.String()
	}
	socket := filepath.Join(t.TempDir(), "rdma.sock")
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan string, 1)
	go func() {
		code, out, errs := in(ctx, nb, "serve", "--dev", "eth0:afpacket", "--socket", socket)
		if code != exitOK {
			t.Errorf("serve: code %d, %s", code, errs)
		}
		served <- out
	}()
	defer cancel()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if code, _, errs := run("rdma", "show", "--socket", socket); code == exitOK {
			break
		} else if time.Now().After(end) {
			t.Fatal(errs)
		}
	}
	client := func(args ...string) string {
		t.Helper()
		code, out, errs := in(context.Background(), na, append(args, "--dev", "eth0:afpacket", "198.18.0.2")...)
		if code != exitOK {
			t.Errorf("%v: code %d, %s", args, code, errs)
		}
		return out
	}
	if out := client("ping", "-c", "3", "-i", "1ms"); strings.Count(out, "64 bytes from 198.18.0.2:7174: seq=") != 3 || !strings.Contains(out, "3 reads, min/avg/max/mdev = ") {
		t.Error(out)
	}
	for _, op := range []string{"write", "read", "send"} {
		var b rdmaperf.Bandwidth
		if err := json.Unmarshal([]byte(client("bw", "--op", op, "-s", "5000", "-n", "300", "--json")), &b); err != nil {
			t.Error(err)
		}
		if b.Op != op || b.Size != 5000 || b.Iterations != 300 || b.Average <= 0 || b.Peak == nil || *b.Peak < b.Average*0.999 || b.Rate <= 0 {
			t.Errorf("%+v", b)
		}
		var l rdmaperf.Latency
		if err := json.Unmarshal([]byte(client("lat", "--op", op, "-n", "50", "--json")), &l); err != nil {
			t.Error(err)
		}
		if l.Op != op || l.Size != 8 || l.Iterations != 50 || l.Min <= 0 || l.Typical < l.Min || l.P99 < l.Typical || l.P999 < l.P99 || l.Max < l.P999 {
			t.Errorf("%+v", l)
		}
	}
	if out := client("bw", "-n", "10"); !strings.Contains(out, "BW peak[MiB/s]") || !strings.Contains(out, "\n65536 ") {
		t.Error(out)
	}
	if out := client("lat", "-n", "10"); !strings.Contains(out, "t_typical[us]") {
		t.Error(out)
	}
	if code, _, errs := in(context.Background(), na, "bw", "--dev", "eth0:afpacket", "198.18.0.2:9"); code != exitFailure || !strings.Contains(errs, "nothing listens") {
		t.Errorf("code %d, %s", code, errs)
	}
	if code, _, errs := in(context.Background(), na, "lat", "--max-time", "100ms", "--dev", "eth0:afpacket", "198.18.0.77"); code != exitTimeout {
		t.Errorf("code %d, %s", code, errs)
	}
	var r rdma.Report
	if _, out, _ := run("rdma", "show", "--json", "--socket", socket); json.Unmarshal([]byte(out), &r) != nil || r.Address.String() != "198.18.0.2" || r.Received == 0 {
		t.Errorf("%+v", r)
	}
	cancel()
	if out := <-served; !strings.Contains(out, "198.18.0.2: mtu 1024") {
		t.Error(out)
	}
}

// TestRDMAUsage has wrong command lines end with code 2.
func TestRDMAUsage(t *testing.T) {
	for _, args := range [][]string{
		{"bw", "198.18.0.2"},
		{"bw", "--dev", "eth0"},
		{"lat", "--dev", "eth0", "host"},
		{"lat", "--dev", "eth0", "--op", "atomic", "198.18.0.2"},
		{"bw", "--dev", "eth0", "-s", "0", "198.18.0.2"},
		{"bw", "--dev", "eth0", "-n", "0", "198.18.0.2"},
		{"ping", "--dev", "eth0:dpdk", "198.18.0.2"},
		{"serve"},
		{"serve", "--dev", "eth0", "--addr", "x"},
		{"show", "x"},
	} {
		if code, _, errs := run(append([]string{"rdma"}, args...)...); code != exitUsage {
			t.Errorf("%v: code %d, %s", args, code, errs)
		}
	}
}

// TestRDMAReportIsShown prints a device with a queue pair.
func TestRDMAReportIsShown(t *testing.T) {
	var out bytes.Buffer
	showRDMA(&console{out: &out}, &rdma.Report{MTU: 1024, QueuePairs: 3, QueuePairList: []rdma.QPReport{{Number: 77, Service: "RC", State: "RTS", Sent: 5}}})
	if s := out.String(); !strings.Contains(s, "77  RC") || !strings.Contains(s, "and 2 more") {
		t.Error(s)
	}
}
