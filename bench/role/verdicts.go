package role

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/wire"
)

// What the client of the verdict measures sends, and the gateway's configuration (bench/verdicts.go) acts on.
const (
	VerdictService = "198.18.1.1:53"
	VerdictLimit   = 1000 // limits.packets
	VerdictBurst   = 10   // of them at once
	VerdictExcess  = 100  // defence.limits.excess
	VerdictText    = "verdict please"
)

// verdictTime is the time that the client sends after what leads to a verdict, and verdictGap is between two packets.
const (
	verdictTime = 12 * time.Millisecond
	verdictGap  = 4 * time.Microsecond
)

// openVerdicts makes a gateway decide against one source after another, and measures when XDP drops its packets:
//
//	-as inspection  a packet matches a rule of the gateway's inspection
//	-as limits      packets exceed the gateway's limits
//	-as operator    `defence add`, from the request on the control socket to the first packet that is dropped
//
// The arguments are the control socket and the link address of the gateway. The client sends each source's packets at
// verdictGap, in one thread, and notes when; XDP drops all that come after the verdict, so the number of those that it has
// counted says which was the first. From the send call of the packet that decides to that of the first that was dropped is
// the time of a verdict; of packets that are never dropped it is unknown, and counted as failed.
func openVerdicts(o roleOptions) (roleWork, error) {
	if len(o.args) != 2 {
		return roleWork{}, errors.New("which control socket and link address?")
	}
	mac, err := net.ParseMAC(o.args[1])
	if err != nil {
		return roleWork{}, err
	}
	nic, err := net.InterfaceByName(o.dev)
	if err != nil {
		return roleWork{}, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return roleWork{}, err
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: nic.Index}); err != nil {
		return roleWork{}, err
	}
	v := &verdicts{fd: fd, g: admin.NewClient(o.args[0]), as: o.as, src: nic.HardwareAddr, dst: mac}
	return roleWork{version: "verdicts by " + o.as, step: v.step, counts: v.counts, close: func() error { return unix.Close(fd) }}, nil
}

type verdicts struct {
	fd       int
	g        *admin.Client
	as       string
	src, dst net.HardwareAddr
	n        uint16 // sources so far

	done, failed atomic.Uint64
	mu           sync.Mutex
	times        []time.Duration
}

// dropped returns what XDP has dropped by rules of the kind that is measured.
func (v *verdicts) dropped() (n uint64, err error) {
	st, err := v.g.Defence(context.Background())
	for _, r := range st.Rules {
		n += r.Packets
	}
	return n, err
}

// frame is a datagram of a source to the service.
func (v *verdicts) frame(source netip.Addr, text string) []byte {
	to := netip.MustParseAddrPort(VerdictService)
	b := slices.Concat([]byte(v.dst), []byte(v.src), []byte{8, 0})
	ip := make([]byte, 20)
	ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(ip[2:], uint16(28+len(text)))
	copy(ip[12:], source.AsSlice())
	copy(ip[16:], to.Addr().AsSlice())
	binary.BigEndian.PutUint16(ip[10:], wire.Fold(wire.Sum(ip, 0)))
	udp := make([]byte, 8) // without a checksum
	binary.BigEndian.PutUint16(udp, 40000)
	binary.BigEndian.PutUint16(udp[2:], to.Port())
	binary.BigEndian.PutUint16(udp[4:], uint16(8+len(text)))
	return append(append(append(b, ip...), udp...), text...)
}

// step measures one verdict.
func (v *verdicts) step() error {
	v.n++
	source := netip.AddrFrom4([4]byte{198, 19, byte(v.n >> 8), byte(v.n)})
	before, err := v.dropped()
	if err != nil {
		return err
	}
	follow := v.frame(source, "harmless")
	decided, err := v.provoke(source, follow)
	if err != nil {
		return err
	}
	var sent []time.Time
	for next := decided; time.Since(decided) < verdictTime; next = next.Add(verdictGap) {
		for time.Now().Before(next) { // spinning: a sleep is longer than the gap
		}
		sent = append(sent, time.Now())
		if _, err := unix.Write(v.fd, follow); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return err
		}
	}
	time.Sleep(5 * time.Millisecond) // for what is on its way
	after, err := v.dropped()
	if err != nil {
		return err
	}
	n := int(after - before)
	if n == 0 || n > len(sent) {
		v.failed.Add(1)
		return nil
	}
	v.mu.Lock()
	v.times = append(v.times, sent[len(sent)-n].Sub(decided))
	v.mu.Unlock()
	v.done.Add(1)
	return nil
}

// provoke does what leads to a verdict, and returns when that was complete.
func (v *verdicts) provoke(source netip.Addr, follow []byte) (at time.Time, err error) {
	switch v.as {
	case "inspection":
		at = time.Now()
		_, err = unix.Write(v.fd, v.frame(source, VerdictText))
		return at, err
	case "limits":
		for range VerdictBurst + VerdictExcess {
			at = time.Now()
			if _, err = unix.Write(v.fd, follow); err != nil {
				return at, err
			}
		}
		return at, nil
	case "operator":
		at = time.Now()
		p := netip.PrefixFrom(source, 32)
		return at, v.g.AddVerdict(context.Background(), admin.DefenceVerdict{DefenceSource: admin.DefenceSource{Source: p}})
	}
	return at, fmt.Errorf("no verdicts by %q", v.as)
}

// counts returns how many verdicts there were, and percentiles of all of them.
func (v *verdicts) counts() (map[string]uint64, error) {
	v.mu.Lock()
	times := slices.Clone(v.times)
	v.mu.Unlock()
	c := map[string]uint64{"verdicts": v.done.Load(), "failed": v.failed.Load()}
	if n := len(times); n > 0 {
		slices.Sort(times)
		us := func(i int) uint64 { return uint64(times[i].Microseconds()) }
		c[harness.P50], c[harness.P99], c[harness.Longest] = us(n/2), us(n*99/100), us(n-1)
	}
	return c, nil
}
