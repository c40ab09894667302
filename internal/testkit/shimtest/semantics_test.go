package shimtest

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/shim"
	"github.com/millrace/millrace/socket"
)

// resetPort is a service whose connections are reset after one byte.
const resetPort = "2"

// throughLoop are the arguments of parts whose local connections are no pairs.
var throughLoop = []string{"through-loop"}

// TestSemantics runs programs that use sockets in states that they should not, with the library and, where nothing stands
// against it, on the kernel's stack first: that is the judge of what they expect.
func TestSemantics(t *testing.T) {
	for _, tc := range []struct {
		part   string
		args   []string
		kernel bool
		says   string // on standard error
	}{
		{"unconnected", nil, true, ""},
		{"early-bytes", nil, false, ""},
		{"connect-error", nil, true, ""},
		{"reset", []string{resetPort}, false, ""},
		{"linger", throughLoop, true, ""}, // of a pair it is no reset (docs/design/035-shim-cost.md)
		{"writes-on", nil, true, ""},
		{"writes-on", throughLoop, true, ""},
		{"unread", nil, true, ""},
		{"unread", throughLoop, true, ""},
		{"rebind", nil, true, ""},
		{"in-progress", nil, true, ""},
		{"interfaces", nil, true, ""},
		{"in-progress", throughLoop, true, ""},
		{"closed-listener", nil, true, ""},
		{"closed-listener", throughLoop, true, ""},
		{"unreachable", nil, true, ""},
		{"families", nil, false, "millrace: the stack has TCP and UDP sockets alone"},
		{"urgent", nil, false, ""},
		{"wrong-arguments", nil, true, "millrace: the stack has TCP and UDP sockets alone"},
		{"wrong-arguments", throughLoop, true, "millrace: the stack has TCP and UDP sockets alone"},
		{"passed-descriptors", nil, true, ""},
		{"passed-descriptors", throughLoop, true, ""},
	} {
		t.Run(tc.part, func(t *testing.T) {
			b := newBed(t, 1, func(c *shim.Config) { c.ThroughLoop = slices.Equal(tc.args, throughLoop) })
			b.services()
			if err := serveTCP(b.B, resetPort, func(c net.Conn) {
				_, _ = c.Read(make([]byte, 1))
				_ = c.(*socket.TCPConn).Abort()
			}); err != nil {
				t.Fatal(err)
			}
			if tc.kernel {
				cmd := exec.Command(built.life, append([]string{tc.part}, tc.args...)...)
				cmd.Env = append(os.Environ(), "LIFE_PEER=127.0.0.1")
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("on the kernel's stack: %v\n%s", err, out)
				}
			}
			onTiers(t, func(t *testing.T, env []string) {
				b := b.with(t, env)
				b.runs(append([]string{tc.part}, tc.args...)...).saidOnly(tc.says)
				b.clean()
			})
		})
	}
}

// TestErrorDoesNotCostADatagram: what ICMP has said of one is no reason to drop the next.
func TestErrorDoesNotCostADatagram(t *testing.T) {
	b := newBed(t, 1, nil)
	p := b.start("two-datagrams", "99")
	p.says("refused")
	l, err := b.B.ListenPacket("udp", ":99")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 16)
	_ = l.SetReadDeadline(time.Now().Add(limit))
	if n, _, err := l.ReadFrom(buf); err != nil || string(buf[:n]) != "second" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	p.ends()
}

// TestNoResolver: a stack without a resolver says so.
func TestNoResolver(t *testing.T) {
	b := newBed(t, 1, nil)
	if p := b.runs("no-name"); !strings.Contains(p.out.String(), "the node was started without a resolver") {
		t.Errorf("it said %q", &p.out)
	}
}

// TestServicePort: a program that cannot have the port of a service of the node learns whose it is.
func TestServicePort(t *testing.T) {
	b := newBed(t, 1, func(c *shim.Config) {
		c.Service = func(local netip.AddrPort) string {
			if local.Port() == 80 {
				return "http"
			}
			return ""
		}
	})
	l, err := b.A.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b.runs("service-port", "80").saidOnly("millrace: port 80 is that of the node's service http: start the node without it (millrace stack up -c FILE)\n")
	b.clean()
}
