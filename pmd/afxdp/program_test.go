package afxdp

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/pmd"
)

func TestAutoFallsBackToGenericAndReportsWhy(t *testing.T) {
	t.Run("no XDP in the driver", func(t *testing.T) {
		w := newNetwork(t, 1, 1500)
		w.run(t, w.host, "ip", "link", "set", "lo", "mtu", "1500")
		w.wantOpenError(t, Config{Interface: "lo", Mode: ModeNative}, pmd.ErrNotSupported, "no native XDP", "ModeGeneric")
		w.wantNegotiated(t, "lo", "generic (not native: the driver has no XDP), copy")
	})
	t.Run("MTU of the peer", func(t *testing.T) {
		w := newNetwork(t, 1, 1500)
		w.run(t, w.peer, "ip", "link", "set", peerDev, "mtu", "9000")
		w.wantOpenError(t, Config{Mode: ModeNative, MultiBuf: MultiBufOff}, pmd.ErrNotSupported, "MTU", "peer", "MultiBufOn")
		w.wantNegotiated(t, dev, "generic (not native: the MTU of the interface or its peer")
	})
}

func (w *network) wantNegotiated(t *testing.T, name, want string) {
	t.Helper()
	if got := w.open(t, Config{Interface: name}).Queues[0].Info().Negotiated; !strings.HasPrefix(got, want) {
		t.Errorf("granted is %q, want %q", got, want)
	}
}

// TestProgramWithoutAnOwnerIsNotReplaced meets programs as ip(8) attaches them: no process holds
// them.
func TestProgramWithoutAnOwnerIsNotReplaced(t *testing.T) {
	w := newNetwork(t, 1, 1500)
	for _, flags := range []int{unix.XDP_FLAGS_DRV_MODE, unix.XDP_FLAGS_SKB_MODE} {
		index, id := w.attachForeign(t, flags)
		for _, mode := range []Mode{ModeAuto, ModeNative, ModeGeneric} {
			w.wantOpenError(t, Config{Mode: mode}, pmd.ErrBusy, "XDP program", `"foreign"`, "ip link set xdp0 xdp off")
		}
		must(t, w.host.Do(func() error {
			now, err := attached(index)
			if now != id {
				t.Errorf("program %d is attached, want %d", now, id)
			}
			return err
		}))
		w.run(t, w.host, "ip", "link", "set", dev, "xdp", "off") // one of the two
		w.run(t, w.host, "ip", "link", "set", dev, "xdpgeneric", "off")
	}
	w.open(t, Config{})
}

// attachForeign hangs a program that passes everything on dev and forgets it.
func (w *network) attachForeign(t *testing.T, flags int) (index int, id ebpf.ProgramID) {
	t.Helper()
	pass, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "foreign", Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	must(t, err)
	defer pass.Close()
	info, err := pass.Info()
	must(t, err)
	id, _ = info.ID()
	must(t, w.host.Do(func() error {
		l, err := netlink.LinkByName(dev)
		if err != nil {
			return err
		}
		index = l.Attrs().Index
		return netlink.LinkSetXdpFdWithFlags(l, pass.FD(), flags)
	}))
	return index, id
}

// TestProgramMatchesItsSource builds the object again, in two other directories.
func TestProgramMatchesItsSource(t *testing.T) {
	testnet.Program(t, "clang-19", "llvm-strip-19")
	for _, below := range []string{"a", "another/name"} {
		root := filepath.Join(t.TempDir(), below)
		for _, name := range []string{"go.mod", "go.sum", "internal/tools/go.mod", "internal/tools/go.sum", "pmd/afxdp/program.go", "pmd/afxdp/bpf/steer.c"} {
			text, err := os.ReadFile(filepath.Join("../..", name))
			must(t, err)
			must(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
			must(t, os.WriteFile(filepath.Join(root, name), text, 0o644))
		}
		cmd := exec.Command("go", "generate", "./pmd/afxdp")
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, name := range []string{"steer_bpfel.o", "steer_bpfel.go"} {
			committed, err := os.ReadFile(name)
			must(t, err)
			built, err := os.ReadFile(filepath.Join(root, "pmd/afxdp", name))
			must(t, err)
			if !bytes.Equal(committed, built) {
				t.Errorf("%s differs from what bpf/steer.c makes: run go generate", name)
			}
		}
	}
}
