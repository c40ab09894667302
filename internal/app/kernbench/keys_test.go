package kernbench

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/gpukern/cuda/symmetric"
	"github.com/millrace/millrace/internal/testkit/hostkern"
)

// TestPublicKeysAreMeasuredAndVerified runs the kernels on the CPU, by a driver that is not one.
func TestPublicKeysAreMeasuredAndVerified(t *testing.T) {
	drv := hostkern.OpenDriver(t)
	calls := keyCalls
	keyCalls = []int{1, 64}
	defer func() { keyCalls = calls }()
	ops := []string{"x25519", "mlkem768", "p256-sign", "ed25519", "rsa2048"}
	rep, err := Run(t.Context(), Config{
		Ops: ops, Packets: 32, Time: time.Microsecond, Engine: "cuda", Cores: 2,
		Device: cuda.Options{Library: drv.Path, Management: drv.Path, Patience: time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range rep.Failed() {
		t.Error(s)
	}
	if len(rep.Keys) != 7 || len(rep.Rows) != 0 {
		t.Fatalf("%d public-key operations, %d of packets", len(rep.Keys), len(rep.Rows))
	}
	for _, row := range rep.Keys {
		for _, p := range []string{PathOne, PathAll, PathHost} {
			if f := row.Figure(p); f == nil || f.Verified != f.Operations || f.Verified < 64 || f.Runs < 3 {
				t.Errorf("%s, %s: %+v", row.Op, p, f)
			}
		}
		if len(row.Calls) != 2 || row.Calls[1].Operations != 64 || row.Calls[1].Milliseconds <= 0 {
			t.Errorf("%s: calls %+v", row.Op, row.Calls)
		}
	}
}

// TestPublicKeysWithoutGPU has the CPU's columns alone.
func TestPublicKeysWithoutGPU(t *testing.T) {
	rep, err := Run(t.Context(), Config{Ops: []string{KeyGroup}, Packets: 32, Time: time.Microsecond, Engine: "cpu", Cores: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range rep.Failed() {
		t.Error(s)
	}
	if len(rep.Keys) != len(KeyOps()) {
		t.Errorf("%d rows of %d", len(rep.Keys), len(KeyOps()))
	}
	var text strings.Builder
	rep.WriteText(&text)
	if s := text.String(); strings.Contains(s, "GPU") || !strings.Contains(s, "rsa4096-sign") {
		t.Error(s)
	}
}

// TestWrongResultsAreNoRate has one operation of a load fail on each path.
func TestWrongResultsAreNoRate(t *testing.T) {
	b := &bench{rep: &Report{Machine: Machine{Cores: 2}}, cfg: Config{Time: time.Microsecond}}
	l := &keyLoad{n: 256, core: func(_, _ int) {}, check: func(from, to int) int {
		if from == 0 {
			return to - from - 1
		}
		return to - from
	}}
	for _, p := range []string{PathOne, PathAll} {
		f := b.keyFigure(t.Context(), l, p)
		if f.PerSecond != 0 || f.Verified != f.Operations-1 || !strings.Contains(f.Error, "results are right") {
			t.Errorf("%+v", f)
		}
	}
}

// TestTheGPUPaysFromACallOn needs every larger call to be faster too.
func TestTheGPUPaysFromACallOn(t *testing.T) {
	row := KeyRow{
		Figures: []KeyFigure{{Path: PathOne, PerSecond: 1000}, {Path: PathAll, PerSecond: 10_000}, {Path: PathHost, PerSecond: 1e6}},
		Calls:   []KeyCall{{1, 0.5, 3}, {16, 20, 3}, {64, 20, 3}, {256, 25.6, 3}},
	}
	row.breakEven()
	if row.FromOne != 64 || row.FromAll != 0 {
		t.Errorf("from %d and %d, want 64 and never", row.FromOne, row.FromAll)
	}
	if row.Faster() != "cuda" || row.callOf(16) != "20.0" || row.callOf(17) != "-" {
		t.Errorf("%s, %s, %s", row.Faster(), row.callOf(16), row.callOf(17))
	}
}

func TestThePageHasItsTables(t *testing.T) {
	r := smallReport()
	r.Version, r.Machine = "abc", Machine{Date: "2026-11-29T10:00:00Z", CPU: "Xeon", Cores: 16, Kernel: "6.18", GPU: "H200", Driver: "13.0"}
	r.Rows[0].Figures[3].GPUWatts = 150
	r.Latency = []Latency{
		{Op: "header", Size: Size64, Path: PathOne, Batch: 32, P50: 2, N: 1},
		{Op: "header", Size: Size64, Path: PathOne, Batch: 256, P50: 16, N: 1},
		{Op: "header", Size: Size64, Path: PathRing, Batch: 32, P50: 7, N: 1},
		{Op: "header", Size: Size64, Path: PathRing, Batch: 256, P50: 8, N: 1},
		{Op: "header", Size: Size64, Path: PathHost, Batch: 256, P50: 30, N: 1},
	}
	r.Keys = []KeyRow{{Op: "x25519", FromOne: 64, Figures: []KeyFigure{
		{Path: PathOne, PerSecond: 1e5}, {Path: PathAll, PerSecond: 1e6}, {Path: PathHost, PerSecond: 3e7, GPUWatts: 600},
	}, Calls: []KeyCall{{64, 1.5, 3}}}, {Op: "aes128-gcm", FromOne: 16, Figures: []KeyFigure{
		{Path: PathOne, PerSecond: 1e6}, {Path: PathAll, PerSecond: 8e6}, {Path: PathHost, PerSecond: 4e6, GPUWatts: 140.8},
	}}}
	r.Calibrations = []gpukern.CalibrationReport{{Ops: "parse", Bytes: 64, BreakEven: 90}}
	var w strings.Builder
	r.WritePage(&w)
	for _, want := range []string{
		"H200, driver 13.0, beside 16 cores of Xeon;\nLinux 6.18, commit abc, 2026-11-29.",
		"\n| header | 64 | 10.0 | 150 | 300 | 4000 | 30.0x | 2.00x | 256 | 500 |\n",
		"\n| header | 1408 | 5.00 | 50.0 | 40.0 | - | 8.00x | 0.80x | - | - |\n",
		"\n| x25519 | 100 | 1000 | 30000 | 300x | 30.0x | 1.50 | 64 | never | 20.0 |\n",
		"\n| aes128-gcm | 1.41 | 11.3 | 5.63 | 4.00x | 0.50x | 16 | never | 25.0 |\n",
		"\n| parse | 64 | 90 | never |\n",
	} {
		if !strings.Contains(w.String(), want) {
			t.Errorf("no %q in\n%s", want, w.String())
		}
	}
}

// TestThePageOnGPUsIsGenerated compares docs/gpu.md with bench/results/gpu-h200.json. MILLRACE_UPDATE=1 writes it.
func TestThePageOnGPUsIsGenerated(t *testing.T) {
	const begin, end = "<!-- bench/results/gpu-h200.json -->\n", "<!-- end -->\n"
	root, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Skip(err)
	}
	top := strings.TrimSpace(string(root))
	raw, err := os.ReadFile(filepath.Join(top, "bench/results/gpu-h200.json"))
	if err != nil {
		t.Fatal(err)
	}
	var rep Report
	if err := json.Unmarshal(raw, &rep); err != nil {
		t.Fatal(err)
	}
	if failed := rep.Failed(); len(failed) > 0 || rep.Stopped {
		t.Errorf("the stored run is not whole: %v", failed)
	}
	name := filepath.Join(top, "docs/gpu.md")
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(page), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the tables", name)
	}
	var w strings.Builder
	rep.WritePage(&w)
	want := head + begin + w.String() + end + tail
	if os.Getenv("MILLRACE_UPDATE") != "" {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(page) != want {
		t.Error("docs/gpu.md does not show the stored figures: MILLRACE_UPDATE=1 go -C internal/app/kernbench test -run TestThePageOnGPUsIsGenerated")
	}
}

// TestSymmetricKeysAreMeasuredAndVerified runs the kernels of ciphers and hashes on the CPU.
func TestSymmetricKeysAreMeasuredAndVerified(t *testing.T) {
	drv := hostkern.OpenDriver(t)
	calls := keyCalls
	keyCalls = []int{1, 64}
	defer func() { keyCalls = calls }()
	rep, err := Run(t.Context(), Config{
		Ops: []string{TextGroup}, Packets: 32, Time: time.Microsecond, Engine: "cuda", Cores: 2,
		Device: cuda.Options{Library: drv.Path, Management: drv.Path, Patience: time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range rep.Failed() {
		t.Error(s)
	}
	if len(rep.Keys) != len(TextOps()) || len(rep.Rows) != 0 {
		t.Fatalf("%d operations with symmetric keys, %d of packets", len(rep.Keys), len(rep.Rows))
	}
	for _, row := range rep.Keys {
		for _, p := range []string{PathOne, PathAll, PathHost} {
			if f := row.Figure(p); f == nil || f.Verified != f.Operations || f.Verified < 64 || f.Runs < 3 {
				t.Errorf("%s, %s: %+v", row.Op, p, f)
			}
		}
	}
}

// TestWrongTextsAreSeen spoils what a core has sealed, summed or left out.
func TestWrongTextsAreSeen(t *testing.T) {
	ciphers, err := symmetric.New(symmetric.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer ciphers.Close()
	for _, o := range TextOps() {
		l, err := o.text(ciphers, 64)
		if err != nil {
			t.Fatal(err)
		}
		l.core(0, 64)
		l.core(0, 64) // in the same place
		l.core(0, 64)
		if n := l.verify(64); n != 64 {
			t.Errorf("%s: %d of 64 are right", o.Name, n)
		}
		if n := l.verify(64); n != 0 { // results are poisoned once they are compared
			t.Errorf("%s: %d of 64 are right that nothing made", o.Name, n)
		}
		l.core(0, 32)
		if n := l.verify(64); n != 32 {
			t.Errorf("%s: %d of 64 are right, of which 32 were made", o.Name, n)
		}
	}
}
