package dpdk_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/internal/testkit/testpmd"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/dpdk"
)

// TestOffloadsToTestpmd sends packets without checksums, and large datagrams, to a guest that takes neither: dpdk-testpmd, which
// writes what it gets to a file. DPDK's vhost library fills in checksums by what the mbufs say, and tshark verifies them.
func TestOffloadsToTestpmd(t *testing.T) {
	need(t)
	testpmd.Need(t)
	testnet.Program(t, "tshark")
	dir, err := os.MkdirTemp("", "mr-dpdk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	arena, pools := memory(t, 1, 1024, 2048)
	socket, file := filepath.Join(dir, "s"), filepath.Join(dir, "out.pcap")
	d := open(t, dpdk.WithTSO(dpdk.Config{Name: "net_vhost0,iface=" + socket, Pools: pools}))
	peer := testpmd.Start(t, []string{"net_virtio_user0,queue_size=256,path=" + socket, "net_pcap0,tx_pcap=" + file},
		"--forward-mode=io", "--tx-offloads=0x0", "--rx-offloads=0x0")
	p := &guestPair{t: t, host: d, hostHeader: 128}
	p.arenas[0], p.pools[0] = arena, pools[0]
	idle := packet.NewBatch(arena.View(), 64)
	await(t, "testpmd to poll", func() bool {
		_, err := p.end(0).Rx(p.now(), idle)
		pools[0].PutBatch(idle)
		if err != nil && !errors.Is(err, pmd.ErrDown) {
			t.Fatal(err)
		}
		return err == nil && strings.Contains(peer.Out.String(), "Port statistics")
	})
	sent := 0
	for _, k := range []kind{{}, {v6: true}, {tagged: true}, {udp: true}, {udp: true, v6: true}, {udp: true, mss: 1200}, {udp: true, v6: true, mss: 1200}, {mss: 1200, ecn: true}} {
		n := 1001
		if sent++; k.mss > 0 {
			n = 10_000
			sent += packet.Segments(n, int(k.mss)) - 1
		}
		data, o := k.build(n, p.hostHeader)
		p.send(0, data, &o)
	}
	await(t, "testpmd to write the packets", func() bool {
		_, _ = p.end(0).Rx(p.now(), idle) // segments that wait are sent
		pools[0].PutBatch(idle)
		s, err := os.Stat(file)
		return err == nil && s.Size() >= int64(sent*1000)
	})
	peer.End() // it closes the file
	lines, err := exec.Command("tshark", "-r", file, "-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE",
		"-T", "fields", "-e", "tcp.checksum.status", "-e", "udp.checksum.status", "-e", "ip.checksum.status", "-Y", "tcp || udp").Output()
	if err != nil {
		t.Fatal(err)
	}
	good := 0
	for l := range strings.Lines(string(lines)) {
		if strings.Contains(l, "1") && !strings.ContainsAny(l, "023") { // 1 is good
			good++
		} else {
			t.Errorf("tshark: %q", l)
		}
	}
	if good != sent {
		t.Errorf("%d good packets, %d were sent", good, sent)
	}
}

// await polls until done.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited for %s", what)
		}
	}
}
