package afxdp

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testnet"
	"github.com/millrace/millrace/pmd"
)

func TestAutoFallsBackToGenericAndSaysWhy(t *testing.T) {
	t.Run("no XDP in the driver", func(t *testing.T) {
		w := newNetwork(t, 1, 1500)
		w.run(t, w.host, "ip", "link", "set", "lo", "mtu", "1500")
		w.refused(t, Config{Interface: "lo", Mode: ModeNative}, pmd.ErrNotSupported, "no native XDP", "ModeGeneric")
		w.wantGranted(t, "lo", "generic (not native: the driver has no XDP), copy")
	})
	t.Run("MTU of the peer", func(t *testing.T) {
		w := newNetwork(t, 1, 1500)
		w.run(t, w.peer, "ip", "link", "set", peerDev, "mtu", "9000")
		w.refused(t, Config{Mode: ModeNative, MultiBuf: MultiBufOff}, pmd.ErrNotSupported, "MTU", "peer", "MultiBufOn")
		w.wantGranted(t, dev, "generic (not native: the MTU of the interface or its peer")
	})
}

func (w *network) wantGranted(t *testing.T, name, want string) {
	t.Helper()
	if got := w.open(t, Config{Interface: name}).Queues[0].Info().Granted; !strings.HasPrefix(got, want) {
		t.Errorf("granted is %q, want %q", got, want)
	}
}

// TestProgramIsTheOneThatItsSourceMakes builds the object again, in two other directories.
func TestProgramIsTheOneThatItsSourceMakes(t *testing.T) {
	testnet.Program(t, "clang-19", "llvm-strip-19")
	for _, below := range []string{"a", "another/name"} {
		root := filepath.Join(t.TempDir(), below)
		for _, name := range []string{"go.mod", "go.sum", "pmd/afxdp/program.go", "pmd/afxdp/bpf/steer.c"} {
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
