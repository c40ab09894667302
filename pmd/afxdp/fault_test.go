package afxdp

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testpackets"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// wantOpenError opens dev and wants an error that is want and names all of the words.
func (w *network) wantOpenError(t *testing.T, cfg Config, want error, words ...string) {
	t.Helper()
	if cfg.Pools == nil {
		cfg.Pools = []*ring.Pool{cut(t, newArena(t, 64, 2048), 0)}
	}
	if cfg.Interface == "" {
		cfg.Interface = dev
	}
	err := w.host.Do(func() error {
		d, err := Open(cfg)
		if err == nil {
			d.Close()
		}
		return err
	})
	if err == nil || want != nil && !errors.Is(err, want) {
		t.Fatalf("Open returned %v, want %v", err, want)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not name %q", err, word)
		}
	}
	for i, p := range cfg.Pools {
		if p.Free() != p.Size() {
			t.Errorf("pool %d lost %d frames", i, p.Size()-p.Free())
		}
	}
}

func TestOpenRejectsInvalidConfigurations(t *testing.T) {
	w := newNetwork(t, 1, 3000)
	a, other := newArena(t, 64, 2048), newArena(t, 64, 8192)
	p := []*ring.Pool{cut(t, a, 32)}
	w.wantOpenError(t, Config{Interface: "nonesuch0"}, pmd.ErrGone, "nonesuch0", "no such interface")
	w.wantOpenError(t, Config{Pools: []*ring.Pool{}}, nil, "no pool")
	w.wantOpenError(t, Config{Pools: p, Queues: []int{0, 1}}, nil, "2 queues but 1 pools")
	w.wantOpenError(t, Config{Pools: []*ring.Pool{p[0], p[0]}, Queues: []int{0, 0}}, nil, "queue 0 is named twice")
	w.wantOpenError(t, Config{Pools: p, Queues: []int{1}}, nil, "no such queue: the device has 1")
	w.wantOpenError(t, Config{Pools: []*ring.Pool{cut(t, other, 32)}}, nil, "8192", "at most 4096")
	w.wantOpenError(t, Config{Pools: []*ring.Pool{p[0], cut(t, other, 32)}, Queues: []int{0, 1}}, nil, "different arenas")
	w.wantOpenError(t, Config{Pools: p, Rings: Rings{Rx: 100}}, nil, "rx ring of 100", "power of two")
	w.wantOpenError(t, Config{Pools: p, Rings: Rings{Completion: 64, Tx: 128}}, nil, "would stall Tx")
	w.wantOpenError(t, Config{Pools: p, All: true, Rules: []Rule{{Addr: ourAddr}}}, nil, "both All and rules")
	w.wantOpenError(t, Config{Pools: p, Rules: []Rule{{}}}, ErrRule, "no address")
	w.wantOpenError(t, Config{Pools: p, Headroom: 2000}, nil, "headroom of 2000", "2048")
	w.wantOpenError(t, Config{Pools: p, MultiBuf: MultiBufOff}, pmd.ErrNotSupported, "MTU 3000", "2048", "1770", "multi-buffer")
	w.wantOpenError(t, Config{Pools: p, Copy: CopyOff}, pmd.ErrNotSupported, "zero-copy")
	w.open(t, Config{}) // and nothing was left behind
}

func TestForeignProgramIsNamedAndNotReplaced(t *testing.T) {
	w := newNetwork(t, 1, 1500)
	cmd, line := w.startChild(t)
	if line != "open" {
		t.Fatal(line)
	}
	who := fmt.Sprintf("(pid %d)", cmd.Process.Pid)
	w.wantOpenError(t, Config{}, pmd.ErrBusy, "XDP program", "steer", who, "stop that process")
	w.wantOpenError(t, Config{Mode: ModeGeneric}, pmd.ErrBusy, who)
	if out := w.run(t, w.host, "ip", "link", "show", dev); !strings.Contains(out, "xdp") {
		t.Errorf("the program is gone: %s", out)
	}
}

func TestBoundQueueIsBusy(t *testing.T) {
	w := newNetwork(t, 1, 1500)
	r := w.open(t, Config{All: true})
	must(t, r.prog.held.Close()) // leaves the socket, as a program without XDP of its own would
	defer func(p *program) { p.held = nil }(r.prog)
	w.wantOpenError(t, Config{}, pmd.ErrBusy, "AF_XDP sockets are held by", fmt.Sprintf("(pid %d)", os.Getpid()))
}

func TestKilledProcessLeavesTheInterfaceToTheKernel(t *testing.T) {
	w := newNetwork(t, 1, 1500)
	w.wantKernelReset(t, hostAddr, true)
	cmd, line := w.startChild(t)
	if line != "open" {
		t.Fatal(line)
	}
	w.wantKernelReset(t, hostAddr, false)
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	if out := w.run(t, w.host, "ip", "link", "show", dev); strings.Contains(out, "xdp/") || strings.Contains(out, "prog/xdp") {
		t.Errorf("the program is still attached: %s", out)
	}
	w.wantKernelReset(t, hostAddr, true)
	w.exchange(t, w.open(t, Config{All: true}), 10) // a restart works
}

// TestQuickRestarts kills a process that has the queue and starts the next at once: the kernel releases what the first had
// after its end, and the second waits for it.
func TestQuickRestarts(t *testing.T) {
	w := newNetwork(t, 1, 1500)
	for i := range 20 {
		cmd, line := w.startChild(t)
		if line != "open" {
			t.Fatalf("restart %d: %s", i, line)
		}
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
}

func TestMissingCapabilityIsNamed(t *testing.T) {
	w := newNetwork(t, 1, 1500)
	for _, c := range []struct{ name, drop, want string }{
		{"none at all", "-all", "CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"},
		{"no CAP_NET_ADMIN", "-net_admin,-sys_admin", "CAP_NET_ADMIN"},
		{"no CAP_BPF", "-bpf,-sys_admin", "CAP_BPF"},
		{"no CAP_PERFMON", "-perfmon,-sys_admin", "only processes with CAP_PERFMON"},
		{"no CAP_NET_RAW", "-net_raw", "CAP_NET_RAW"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, out := w.startChild(t, "setpriv", "--bounding-set="+c.drop)
			if !strings.Contains(out, c.want) || !strings.Contains(out, "is: "+pmd.ErrPermission.Error()) {
				t.Errorf("the child says %q, want ErrPermission and %s", out, c.want)
			}
		})
	}
	_, out := w.startChild(t, "setpriv", "--bounding-set=-ipc_lock", "prlimit", "--memlock=65536")
	if !strings.Contains(out, "ulimit -l") {
		t.Errorf("with little lockable memory the child says %q", out)
	}
}

func TestLostCarrierIsNoError(t *testing.T) {
	for _, mode := range []Mode{ModeNative, ModeGeneric} {
		w := newNetwork(t, 1, 1500)
		r := w.open(t, Config{All: true, Mode: mode})
		w.run(t, w.peer, "ip", "link", "set", peerDev, "down") // no carrier: the link itself is up
		w.run(t, w.peer, "ip", "link", "set", peerDev, "up")
		w.exchange(t, r, 10)
	}
}

// wantLink polls until Rx returns the state, and calls Tx too, which must not take frames
// that it cannot send.
func (r *rig) wantLink(t testing.TB, want error) {
	t.Helper()
	b := packet.NewBatch(r.arena.View(), 64)
	for end := time.Now().Add(patience); ; {
		n, err := r.poll(0, b)
		r.pools[0].PutBatch(b)
		if n == 0 && errors.Is(err, want) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("Rx says %v, want %v", err, want)
		}
		time.Sleep(time.Millisecond)
	}
	if want == nil {
		return
	}
	off, _ := r.pools[0].Get()
	b.Append(packet.Desc{Off: off, Len: 60})
	n, err := r.Queues[0].Tx(r.now, b)
	if n != 0 || !errors.Is(err, want) {
		t.Errorf("Tx returned %d, %v, want %v", n, err, want)
	}
	r.audit(t, testpackets.Frames{Batch: b})
	r.pools[0].PutBatch(b)
}

func TestOpenOnAnInterfaceThatIsDown(t *testing.T) {
	w := newNetwork(t, 1, 1500)
	w.run(t, w.host, "ip", "link", "set", dev, "down")
	r := w.open(t, Config{All: true})
	r.wantLink(t, pmd.ErrDown)
	w.run(t, w.host, "ip", "link", "set", dev, "up")
	r.wantLink(t, nil)
	w.exchange(t, r, 10)
}
