package kernbench

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/gpukern/cuda/pubkey"
	"github.com/millrace/millrace/gpukern/cuda/symmetric"
	"github.com/millrace/millrace/internal/testkit/hostkern"
)

// soakScale is the environment of TestSoak: 1 is 10.7 million operations. Its result is soak.json in the folder MILLRACE_OUT.
const soakScale = "MILLRACE_SOAK"

// soak runs operations on a device, and compares each with crypto/*.
type soak struct {
	device *cuda.Device
	keys   *pubkey.Engine
	texts  *symmetric.Engine
	seed   uint64
}

// soakOp is an operation of the comparison.
type soakOp struct {
	name  string
	total int // at scale 1
	chunk int // operations of a call
	by    string

	// run does n operations, the first of which has number first, and returns how many differ.
	run func(s *soak, first, n int) (differ int, err error)
}

// soakFigures are those of one operation.
type soakFigures struct {
	Operation   string  `json:"operation"`
	Operations  int     `json:"operations"`
	Differences int     `json:"differences"`
	Against     string  `json:"against"`
	Seconds     float64 `json:"seconds"` // inputs, device and comparison
}

// source is a source of inputs for one operation: the same in each run.
func (s *soak) source(i int) *rand.Rand { return rand.New(rand.NewPCG(s.seed, uint64(i))) }

// fill fills b.
func fill(g *rand.Rand, b []byte) {
	for len(b) >= 8 {
		v := g.Uint64()
		b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24), byte(v>>32), byte(v>>40), byte(v>>48), byte(v>>56)
		b = b[8:]
	}
	for i := range b {
		b[i] = byte(g.Uint32())
	}
}

// onAllCores calls f for 0 to n-1 and returns for how many it returns true.
func onAllCores(n int, f func(i int) bool) int {
	var count atomic.Int64
	var next atomic.Int64
	var work sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		work.Go(func() {
			const share = 64
			for at := int(next.Add(share)) - share; at < n; at = int(next.Add(share)) - share {
				for i := at; i < min(n, at+share); i++ {
					if f(i) {
						count.Add(1)
					}
				}
			}
		})
	}
	work.Wait()
	return int(count.Load())
}

// newSoak opens the engines, which give the device all that comes.
func newSoak(t *testing.T, o cuda.Options, batch int) *soak {
	t.Helper()
	dev, err := cuda.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &soak{device: dev, seed: 1}
	if s.keys, err = pubkey.New(pubkey.Config{Device: dev, Batch: batch, Least: 1, Patience: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if s.texts, err = symmetric.New(symmetric.Config{Device: dev, Batch: batch, Least: 1, Patience: time.Minute}); err != nil {
		t.Fatal(errors.Join(err, s.keys.Close()))
	}
	t.Cleanup(func() {
		if err := errors.Join(s.keys.Close(), s.texts.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// all runs the operations at a scale.
func (s *soak) all(t *testing.T, ops []soakOp, scale float64) (list []soakFigures) {
	t.Helper()
	done := 0
	for _, op := range ops {
		f := soakFigures{Operation: op.name, Against: op.by}
		began := time.Now()
		for total := max(8, int(float64(op.total)*scale)); f.Operations < total; {
			n := min(op.chunk, total-f.Operations)
			differ, err := op.run(s, f.Operations, n)
			if err != nil {
				t.Fatalf("%s: %v", op.name, err)
			}
			f.Operations, f.Differences = f.Operations+n, f.Differences+differ
		}
		f.Seconds = time.Since(began).Seconds()
		list = append(list, f)
		done += f.Operations
		t.Logf("%+v", f)
		if f.Differences != 0 {
			t.Errorf("%s: %d of %d differ from %s", op.name, f.Differences, f.Operations, op.by)
		}
	}
	k, x := s.keys.Stats(), s.texts.Stats()
	if k.Device+x.Device < uint64(done) || k.CPU+x.CPU != 0 || k.Faults+x.Faults != 0 || s.keys.Lost() != nil || s.texts.Lost() != nil {
		t.Errorf("%d operations, but %+v and %+v; lost: %v, %v", done, k, x, s.keys.Lost(), s.texts.Lost())
	}
	return list
}

// TestSoak compares millions of operations of the GPU with crypto/* (`make gpu-soak`).
func TestSoak(t *testing.T) {
	if os.Getenv(soakScale) == "" {
		t.Skipf("%s is no scale", soakScale)
	}
	scale, err := strconv.ParseFloat(os.Getenv(soakScale), 64)
	if err != nil {
		t.Fatal(err)
	}
	s := newSoak(t, cuda.Options{}, 0)
	began := time.Now()
	list := s.all(t, soakOps, scale)
	sum := soakFigures{Operation: "all", Seconds: time.Since(began).Seconds()}
	for _, f := range list {
		sum.Operations, sum.Differences = sum.Operations+f.Operations, sum.Differences+f.Differences
	}
	info := s.device.Info()
	raw, err := json.MarshalIndent(map[string]any{
		"gpu": info.Name, "driver": info.Driver, "date": time.Now().UTC().Format(time.RFC3339), "cpu": cpuName(), "cores": runtime.GOMAXPROCS(0), "go": runtime.Version(), "seed": s.seed,
		"rows": append(list, sum),
	}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(os.Getenv(outFolder), "soak.json"), append(raw, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestSoakComparesEverything runs a few operations of each kind on the kernels' form for the CPU, and then with a device whose
// results are changed.
func TestSoakComparesEverything(t *testing.T) {
	drv := hostkern.OpenDriver(t)
	s := newSoak(t, cuda.Options{Library: drv.Path, Management: drv.Path, Patience: time.Minute}, 16)
	if list := s.all(t, soakOps, 1e-9); len(list) != len(soakOps) {
		t.Errorf("%d of %d kinds", len(list), len(soakOps))
	}
	soakFalsifies = true
	defer func() { soakFalsifies = false }()
	for _, op := range soakOps {
		if differ, err := op.run(s, 0, 8); err != nil || differ != 8 {
			t.Errorf("%s: 8 wrong results, %d differ, %v", op.name, differ, err)
		}
	}
}

// TestTheSoakThatIsStored reads what `make gpu-soak` has stored.
func TestTheSoakThatIsStored(t *testing.T) {
	var stored struct{ Rows []soakFigures }
	readResults(t, "gpu-soak-h200.json", &stored)
	if len(stored.Rows) != len(soakOps)+1 {
		t.Fatalf("%d rows, there are %d kinds of operations", len(stored.Rows), len(soakOps))
	}
	for i, f := range stored.Rows {
		if i < len(soakOps) && (f.Operation != soakOps[i].name || f.Operations < soakOps[i].total) || f.Differences != 0 {
			t.Errorf("%+v", f)
		}
	}
	if all := stored.Rows[len(soakOps)]; all.Operations < 10e6 {
		t.Errorf("%d operations in all, not 10 million", all.Operations)
	}
}
