package afpacket_test

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/pmd/afpacket"
)

// Packets beyond 64 KiB pass, with and without Offload, and none is refused or lost.
func TestPacketsBeyond64KiBPass(t *testing.T) {
	for i := range 3 {
		whole, external := i > 0, i > 1
		t.Run(fmt.Sprintf("whole %v, external payload %v", whole, external), func(t *testing.T) {
			c := newCrossing(t, false, external)
			must(t, c.dev.SetOffload(whole))
			must(t, c.linux.BigTCP("eth0", 500_000))
			for _, addr := range []string{"198.18.0.2:80", "[2001:db8::2]:80"} {
				transfer(t, c.linux, c.server, addr)
			}
			// The ring is full for moments, longer ones on a busy machine. Where no packet beyond 64 KiB passes, half of the bytes and more
			// are sent again.
			if n := retransmitted(t, c.linux); n > 2*bulk/1448/10 {
				t.Errorf("%d segments of %d were sent again", n, 2*bulk/1448)
			}
			if n := c.finish(t); whole && n > 2*bulk/1448 {
				t.Errorf("%d packets for %d bytes: they were cut into segments", n, 2*bulk)
			}
		})
	}
}

// Without Offload the ring has blocks, which hold such packets too.
func TestBlocksHoldPacketsBeyond64KiB(t *testing.T) {
	r := newRig(t, 1, 4096, nil)
	server := r.net.Namespace("server")
	must(t, r.net.Link(server, "eth0", r.here, "mr1"))
	must(t, server.Up("eth0", "198.18.0.2/24"))
	must(t, r.here.Sysctl("net.ipv6.conf.mr1.disable_ipv6", "1"))
	must(t, r.here.Up("mr1"))
	var other *afpacket.Device
	must(t, r.here.Do(func() (err error) {
		other, err = afpacket.Open(afpacket.Config{Interface: "mr1", All: true, Pools: r.pools})
		return err
	}))
	defer other.Close()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); forward(t, r.dev.Queues[0], other.Queues[0], r.pools[0], stop) }()
	must(t, r.linux.BigTCP("eth0", 500_000))
	transfer(t, r.linux, server, "198.18.0.2:80")
	close(stop)
	<-done
	// The ring is full for moments, longer ones on a busy machine. Packets that no block holds would be most of the bytes.
	if s := r.dev.Queues[0].Info().Stats; s.RxInvalid != 0 || s.RxMissed > s.RxPackets/10 {
		t.Errorf("%+v", s)
	}
}

// retransmitted returns how many segments the namespace has sent again.
func retransmitted(t *testing.T, ns *testnet.Namespace) (n int) {
	t.Helper()
	text, err := ns.Run("sh", "-c", "awk '/^Tcp:/{v=$13} END{print v}' /proc/net/snmp")
	must(t, err)
	_, err = fmt.Sscan(text, &n)
	must(t, err)
	return n
}
