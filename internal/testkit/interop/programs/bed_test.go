package programs

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// tier is the stack that the programs in the namespace "host" use.
type tier string

const (
	onKernel tier = "kernel" // the kernel's, without millrace exec
	onTier0  tier = "tier 0" // Millrace's, data through AF_UNIX sockets
	onLoop   tier = "loop"   // the same, connections between programs of the stack, too
	onRings  tier = "rings"  // the same through rings in shared memory
)

// tiers are the columns of the page, in the order in which they run.
var tiers = []tier{onKernel, onTier0, onLoop, onRings}

// execFlags are the flags of millrace exec for a tier, and shimConfig what the stack's section "shim" has beside.
var (
	execFlags  = map[tier][]string{onRings: {"--rings"}}
	shimConfig = map[tier]string{onLoop: ", through_loop: true", onRings: ", through_loop: true"}
)

// The addresses of the two namespaces.
const (
	peerAddr, peerAddr6 = "198.18.20.1", "2001:db8:20::1"
	hostAddr, hostAddr6 = "198.18.20.2", "2001:db8:20::2"
)

// patience bounds what is awaited.
const patience = 60 * time.Second

// place is a namespace, with what is put before each command that runs there.
type place struct {
	ns     *testnet.Namespace
	prefix []string
	addr   string // its IPv4 address
	addr6  string
}

// bed is two namespaces, joined by a veth pair.
type bed struct {
	tier       tier
	net        *testnet.Net
	host, peer *place
	dir        string // of files of this bed that all users may read
	millrace   string
	socket     string // the control socket of the stack
	stack      *process
	root       *testing.T // whose end is that of the bed

	rows   map[string]*row // what came of other tiers
	failed []string        // tests of the suite that runs
	// skipped is why a program cannot run on this tier.
	skipped string
}

// skip ends the test of a program that cannot run on this tier, and keeps the reason for the page.
func (b *bed) skip(t *testing.T, reason string) {
	t.Helper()
	b.skipped = reason
	t.Skip(reason)
}

// newBed makes the namespaces, and starts the stack unless the tier is the kernel.
func newBed(t *testing.T, on tier) *bed {
	t.Helper()
	return newBedOver(t, on, "")
}

// newBedOver is newBed with a bridge between the namespaces that impairs both directions, unless impair is empty.
func newBedOver(t *testing.T, on tier, impair string) *bed {
	t.Helper()
	n := testnet.For(t, "mr-programs-"+strings.ReplaceAll(string(on)+os.Getenv("PROGRAM"), " ", ""))
	b := &bed{
		tier: on, root: t, net: n, dir: sharedDir(t), millrace: os.Getenv("MILLRACE_PROGRAMS"),
		host: &place{ns: n.Namespace("host"), addr: hostAddr, addr6: hostAddr6}, peer: &place{ns: n.Namespace("peer"), addr: peerAddr, addr6: peerAddr6},
	}
	t.Cleanup(func() { killAll(b.host.ns, b.peer.ns) })
	if impair == "" {
		must(t, n.Link(b.peer.ns, "eth0", b.host.ns, "st0"))
	} else {
		b.bridge(t, n.Namespace("wire"), impair)
	}
	must(t, b.peer.ns.NoOffload("eth0"), b.host.ns.NoOffload("st0"),
		b.peer.ns.Up("eth0", peerAddr+"/24", peerAddr6+"/64"))
	if on == onKernel {
		must(t, b.host.ns.Up("st0", hostAddr+"/24", hostAddr6+"/64"))
		return b
	}
	must(t, b.host.ns.Up("st0"))
	b.socket, b.stack = startStack(t, b.host.ns, b.dir, b.millrace, "st0", shimConfig[on], hostAddr+"/24", hostAddr6+"/64")
	b.host.prefix = b.execPrefix(b.socket)
	return b
}

// execPrefix is what is put before commands that use the stack with the control socket.
func (b *bed) execPrefix(socket string) []string {
	return append(append([]string{b.millrace, "exec", "--socket", socket}, execFlags[b.tier]...), "--")
}

// bridge joins the namespaces by millrace forward in a third one.
func (b *bed) bridge(t *testing.T, wire *testnet.Namespace, impair string) {
	t.Helper()
	must(t, b.net.Link(b.peer.ns, "eth0", wire, "a"), b.net.Link(wire, "b", b.host.ns, "st0"),
		wire.NoOffload("a"), wire.NoOffload("b"), wire.Up("a"), wire.Up("b"))
	f := (&place{ns: wire}).start(t, b.millrace, "forward", "--impair-a", "rx: "+impair, "--impair-b", "rx: "+impair, "a", "b")
	t.Cleanup(func() { f.stop(t) })
}

// startStack starts millrace stack up on an interface until the test ends, and returns its control socket and process.
func startStack(t *testing.T, ns *testnet.Namespace, dir, millrace, iface, more string, addrs ...string) (socket string, node *process) {
	t.Helper()
	socket = filepath.Join(dir, iface+".sock")
	config := filepath.Join(dir, iface+".yaml")
	text := fmt.Sprintf("devices: [{name: %s, driver: afxdp, addresses: [%s]}]\ncontrol: {socket: %s}\nshim: {everyone: true%s}\n", iface, strings.Join(quoted(addrs), ", "), socket, more)
	must(t, os.WriteFile(config, []byte(text), 0o644))
	node = (&place{ns: ns}).start(t, millrace, "stack", "up", "-c", config)
	t.Cleanup(func() {
		if !node.stopped {
			node.stop(t)
		}
	})
	await(t, "the stack serves programs", func() bool { return exec.Command(millrace, "exec", "--socket", socket, "--", "true").Run() == nil })
	return socket, node
}

// restart ends the stack of the bed, and starts another one at the same place.
func (b *bed) restart(t *testing.T) {
	t.Helper()
	b.stack.stop(t)
	b.socket, b.stack = startStack(b.root, b.host.ns, b.dir, b.millrace, "st0", shimConfig[b.tier], hostAddr+"/24", hostAddr6+"/64")
}

func quoted(list []string) []string {
	var q []string
	for _, s := range list {
		q = append(q, strconv.Quote(s))
	}
	return q
}

// sockets returns the sockets of programs that the stack has, a line each.
func (b *bed) sockets(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command(b.millrace, "net", "sockets", "--json", "--socket", b.socket).Output()
	if err != nil {
		t.Fatalf("net sockets: %v", err)
	}
	var report struct{ Sockets []json.RawMessage }
	must(t, json.Unmarshal(out, &report))
	var list []string
	for _, s := range report.Sockets {
		list = append(list, string(s))
	}
	return list
}

// settled waits until no program has a socket left: programs that ended must leave none.
func (b *bed) settled(t *testing.T) {
	t.Helper()
	if b.socket == "" {
		return
	}
	var left []string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if left = b.sockets(t); len(left) == 0 {
			return
		}
	}
	t.Errorf("sockets left behind: %s", strings.Join(left, "\n"))
}

// sharedDir returns an empty folder that every user can read, below a short path (of UNIX sockets).
func sharedDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mr-programs-")
	must(t, err, os.Chmod(dir, 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// killAll ends the processes that are left in the namespaces.
func killAll(spaces ...*testnet.Namespace) {
	mine := map[string]bool{}
	for _, ns := range spaces {
		_ = ns.Do(func() error {
			link, err := os.Readlink("/proc/thread-self/ns/net")
			mine[link] = true
			return err
		})
	}
	links, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, path := range links {
		pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
		if link, err := os.Readlink(path); err == nil && mine[link] && pid != os.Getpid() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// must ends the test if one of its arguments is an error.
func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// await waits until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("not within %v: %s", patience, what)
}

// opens waits until a server in the namespace host answers connections of the peer.
func (b *bed) opens(t *testing.T, s *process, port int) {
	t.Helper()
	b.answers(t, s, b.peer, net.JoinHostPort(hostAddr, strconv.Itoa(port)))
}

func (b *bed) answers(t *testing.T, s *process, from *place, addr string) {
	t.Helper()
	await(t, s.String()+" listens on "+addr, func() bool {
		if s.ended() {
			t.Fatalf("%s ended: %s", s, &s.log)
		}
		return from.ns.Do(func() error {
			c, err := net.DialTimeout("tcp", addr, time.Second)
			if err == nil {
				err = c.Close()
			}
			return err
		}) == nil
	})
}
