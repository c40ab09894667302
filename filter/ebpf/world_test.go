package ebpf

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/pmd/xdp"
)

// world is two hosts on a wire and a BPF file system of the test's own.
type world struct {
	t         testing.TB
	near, far *testnet.Namespace
	root      string
	store     *Store
}

const objects = "testdata/objects/"

func newWorld(t testing.TB) *world {
	t.Helper()
	n := testnet.For(t, "mr-ebpf")
	w := &world{t: t, near: n.Namespace("near"), far: n.Namespace("far"), root: t.TempDir()}
	for _, ns := range []*testnet.Namespace{w.near, w.far} { // no frames but the test's
		w.ok(ns.Sysctl("net.ipv6.conf.default.disable_ipv6", "1"))
	}
	w.ok(n.Link(w.near, "eth0", w.far, "eth0"))
	w.ok(w.near.Up("eth0"))
	w.ok(w.far.Up("eth0"))
	w.store = open(t, w.root)
	return w
}

// open opens a store and unmounts it when the test ends, with which all pins are gone.
func open(t testing.TB, root string) *Store {
	t.Helper()
	s, err := Open(root)
	if (errors.Is(err, ErrPermission) || errors.Is(err, ErrForbidden)) && os.Getenv("MILLRACE_MUST_NETNS") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if s.fs.Mounted {
		t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	}
	return s
}

// extensions skips a test of several XDP programs on one interface where the kernel refuses them.
func extensions(t testing.TB) {
	t.Helper()
	refused, err := xdp.Extensions()
	if err != nil {
		t.Fatal(err)
	}
	if refused == nil {
		return
	}
	if os.Getenv("MILLRACE_MUST_EXTENSIONS") != "" {
		t.Fatal(refused)
	}
	t.Skipf("%v: `make test-vm` runs this test in a virtual machine", refused)
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// do runs f in the namespace of the near host.
func (w *world) do(f func() error) {
	w.t.Helper()
	w.ok(w.near.Do(f))
}

func (w *world) load(file, name string) Object {
	w.t.Helper()
	o, err := w.store.Load(objects+file, name)
	w.ok(err)
	return o
}

func (w *world) attach(ref string, o XDPOptions) {
	w.t.Helper()
	w.do(func() error { return w.store.AttachXDP(ref, "eth0", o) })
}

func (w *world) detach(ref string) {
	w.t.Helper()
	w.do(func() error { return w.store.DetachXDP(ref, "eth0") })
}

// chain returns the names of the programs at a hook of the near host, in order.
func (w *world) chain(hook string) (names []string) {
	w.t.Helper()
	w.do(func() error {
		hooks, err := w.store.Hooks("eth0")
		for _, h := range hooks {
			for _, c := range h.Chain {
				if h.Hook == hook {
					names = append(names, c.Name)
				}
			}
		}
		return err
	})
	return names
}

// etherType is that of the frames that tests send: for local experiments (IEEE 802).
const etherType = 0x88b5

// packetSocket opens a packet socket on an interface of a host.
func packetSocket(t testing.TB, ns *testnet.Namespace) (fd int) {
	t.Helper()
	err := ns.Do(func() (err error) {
		proto := int(htons(etherType))
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto); err != nil {
			return err
		}
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(etherType), Ifindex: l.Attrs().Index})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// frame is a broadcast frame of 60 bytes with a number.
func frame(n uint32) []byte {
	b := make([]byte, 60)
	copy(b, net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, etherType >> 8, etherType & 0xff})
	b[14], b[15], b[16], b[17] = byte(n>>24), byte(n>>16), byte(n>>8), byte(n)
	return b
}

// send sends frames from the far host.
func send(t testing.TB, fd int, n int) {
	t.Helper()
	for i := range n {
		for {
			_, err := unix.Write(fd, frame(uint32(i)))
			if err == nil {
				break
			}
			if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOBUFS) {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// received counts the frames that come to a socket until none has come for a while.
func received(fd int, until time.Duration) (n int) {
	buf := make([]byte, 2048)
	for end := time.Now().Add(until); time.Now().Before(end); {
		if _, err := unix.Read(fd, buf); err == nil {
			n++
			continue
		}
		time.Sleep(time.Millisecond)
	}
	return n
}

// counter reads a counter of count.o.
func (w *world) counter(ref string, key int) (n uint64) {
	w.t.Helper()
	w.ok(w.store.DumpMap(ref, func(e Entry) error {
		var k int
		if err := json.Unmarshal(e.Key, &k); err != nil || k != key {
			return err
		}
		return json.Unmarshal(e.Value, &n)
	}))
	return n
}

// await waits until a counter has a value.
func (w *world) await(ref string, key int, want uint64) {
	w.t.Helper()
	var n uint64
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if n = w.counter(ref, key); n == want {
			return
		}
	}
	w.t.Fatalf("%s[%d] is %d, want %d", ref, key, n, want)
}

// pins returns what is pinned, as paths below the root.
func (w *world) pins() (list []string) {
	w.t.Helper()
	w.ok(filepath.WalkDir(w.root, func(path string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(w.root, path)
		if err == nil && !d.IsDir() && rel != "maps.debug" && rel != "progs.debug" {
			list = append(list, rel)
		}
		return err
	}))
	return list
}
