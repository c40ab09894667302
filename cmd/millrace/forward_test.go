package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/internal/app/doctor"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/wire"
)

// wires is a network with a machine in the middle:
//
//	client eth0 198.18.0.1 -- a [middle] b -- eth0 198.18.0.2 server
type wires struct{ client, middle, server *testnet.Namespace }

func newWires(t *testing.T, name string) *wires {
	n := testnet.For(t, "mr-cli-"+name)
	w := &wires{n.Namespace("client"), n.Namespace("middle"), n.Namespace("server")}
	for _, err := range []error{
		n.Link(w.client, "eth0", w.middle, "a"),
		n.Link(w.server, "eth0", w.middle, "b"),
		w.client.Up("eth0", "198.18.0.1/24", "2001:db8::1/64"),
		w.server.Up("eth0", "198.18.0.2/24", "2001:db8::2/64"),
		w.middle.Up("a"),
		w.middle.Up("b"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// ping sends n echo requests from the client, each after the answer to the one before, and returns
// how many answers came, copies included.
func (w *wires) ping(to string, n int) (answers int, err error) {
	err = w.client.Do(func() error {
		network, request := "ip4:icmp", byte(8)
		if strings.Contains(to, ":") {
			network, request = "ip6:ipv6-icmp", 128 // RFC 4443 4.1; the kernel fills in the checksum
		}
		conn, err := net.Dial(network, to)
		if err != nil {
			return err
		}
		defer conn.Close()
		for seq := range n {
			msg := []byte{request, 0, 0, 0, 0x4d, 0x52, 0, byte(seq)}
			if request == 8 {
				binary.BigEndian.PutUint16(msg[2:], wire.Fold(wire.Sum(msg, 0)))
			}
			if _, err := conn.Write(msg); err != nil {
				return err
			}
			got, err := await(conn.(*net.IPConn), byte(seq), 20*time.Second)
			answers += got
			if err != nil {
				return err
			}
		}
		return nil
	})
	return answers, err
}

// await counts the answers to request seq: it waits for the first, and a little for copies.
func await(conn *net.IPConn, seq byte, limit time.Duration) (answers int, err error) {
	buf := make([]byte, 1500)
	for {
		if err := conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
			return answers, err
		}
		n, _, err := conn.ReadFrom(buf) // without the IPv4 header, unlike Read
		if answers > 0 && err != nil {
			return answers, nil
		}
		if err != nil {
			return 0, err
		}
		if kind := buf[0]; n >= 8 && (kind == 0 || kind == 129) && buf[4] == 0x4d && buf[7] == seq {
			answers++
			limit = 10 * time.Millisecond
		}
	}
}

// forwarding is a millrace in the middle.
type forwarding struct {
	cmd       *exec.Cmd
	out, errs *strings.Builder
}

// forward starts millrace and waits until the client reaches the server.
func (w *wires) forward(t *testing.T, args ...string) *forwarding {
	t.Helper()
	f := &forwarding{program(append([]string{"forward", "--json"}, args...)...), &strings.Builder{}, &strings.Builder{}}
	f.cmd.Stdout, f.cmd.Stderr = f.out, f.errs
	if err := w.middle.Start(f.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.cmd.Process.Kill() })
	for range 50 {
		if n, _ := w.ping("198.18.0.2", 1); n > 0 {
			return f
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("the client never reaches the server: %s", f.errs)
	return nil
}

// stop ends millrace as Ctrl-C does and returns the lines that it printed.
func (f *forwarding) stop(t *testing.T) []Forwarded {
	t.Helper()
	if err := f.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := f.cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, f.errs)
	}
	var lines []Forwarded
	for line := range strings.Lines(f.out.String()) {
		var s Forwarded
		decode(t, line, &s)
		lines = append(lines, s)
	}
	if len(lines) == 0 {
		t.Fatalf("nothing printed: %s", f.errs)
	}
	return lines
}

// balanced checks that the counters account for every packet.
func balanced(t *testing.T, f Forwarded) {
	t.Helper()
	if e := f.Engine; e.Name != "cpu" || len(e.Backends) != 1 || e.Backends[0].Packets < f.Received {
		t.Errorf("engine %+v of %d packets", e, f.Received)
	}
	sum := f.Forwarded + f.InFlight
	for _, n := range f.Dropped {
		sum += n
	}
	a, b := f.Interfaces[0], f.Interfaces[1]
	if f.Received != sum || f.InFlight != 0 || f.Received != a.RxPackets+b.RxPackets || f.Forwarded != a.TxPackets+b.TxPackets {
		t.Errorf("the counters do not balance: %+v", f)
	}
}

func TestForwardBridgesTwoDevices(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, driver, want string }{
		{"afpacket", "afpacket", "afpacket"},
		{"afxdp", "afxdp", "afxdp"},
		{"auto", "auto", "afxdp"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWires(t, tc.name)
			f := w.forward(t, "--driver", tc.driver, "--stats", "a", "b")
			for _, to := range []string{"198.18.0.2", "2001:db8::2"} {
				if n, err := w.ping(to, 20); err != nil || n != 20 {
					t.Errorf("%s: %d answers of 20: %v", to, n, err)
				}
			}
			time.Sleep(1100 * time.Millisecond) // a line of --stats
			lines := f.stop(t)
			end := lines[len(lines)-1]
			balanced(t, end)
			for i, name := range []string{"a", "b"} {
				p := end.Interfaces[i]
				if p.Device != name || p.Driver != tc.want || p.RxPackets < 41 || p.TxPackets < 41 || p.TxInvalid != 0 {
					t.Errorf("interface %d: %+v", i, p)
				}
			}
			if len(lines) < 2 {
				t.Error("--stats printed nothing before the end")
			}
		})
	}
}

func TestForwardImpairsAndCaptures(t *testing.T) {
	t.Parallel()
	w := newWires(t, "impair")
	file := filepath.Join(t.TempDir(), "wire.pcapng")
	f := w.forward(t, "--driver", "afpacket", "--capture", file, "--impair-b", "rx: dup=100% delay=5ms", "a", "b")
	if n, err := w.ping("198.18.0.2", 10); err != nil || n != 20 {
		t.Errorf("%d answers, want 10 and as many copies: %v", n, err)
	}
	lines := f.stop(t)
	end := lines[len(lines)-1]
	balanced(t, end)
	m := end.Interfaces[1].Impaired
	if end.Interfaces[0].Impaired != nil || m == nil || m.Duplicated < 10 || m.Lost != 0 {
		t.Errorf("impaired: %+v and %+v", end.Interfaces[0].Impaired, m)
	}
	// The capture has what was on the wire: answers before they were doubled.
	n := packetsOf(t, file)
	if n["a"] != int(end.Interfaces[0].RxPackets) || 2*n["b"] != int(end.Interfaces[1].RxPackets) {
		t.Errorf("captured %v of %+v", n, end.Interfaces)
	}
}

// packetsOf counts the packets of a capture by the interface that they arrived on.
func packetsOf(t *testing.T, file string) map[string]int {
	t.Helper()
	r, err := capture.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := map[string]int{}
	for {
		rec, err := r.Next()
		if err != nil {
			return n
		}
		n[r.Interfaces()[rec.Interface].Name]++
	}
}

func TestDoctorNamesTheProgramThatHoldsAnInterface(t *testing.T) {
	t.Parallel()
	w := newWires(t, "doctor")
	f := w.forward(t, "--driver", "afxdp", "a", "b")
	var out strings.Builder
	cmd := program("doctor", "--json", "-i", "a")
	cmd.Stdout = &out
	if err := w.middle.Start(cmd); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // what else this machine lacks does not matter here
	var rep doctor.Report
	decode(t, out.String(), &rep)
	i := rep.Interfaces[0]
	holder := fmt.Sprintf("(pid %d)", f.cmd.Process.Pid)
	if i.Driver != "veth" || i.Program == 0 || i.AttachMode != "native" || !strings.HasSuffix(i.ProgramBy, holder) {
		t.Errorf("%+v, want a veth held by %s", i, holder)
	}
	f.stop(t)
}
