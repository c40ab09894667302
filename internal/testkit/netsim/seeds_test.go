package netsim

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// Seeds that TestSeeds runs; MILLRACE_SEEDS=N runs N instead, and MILLRACE_SEED=S only S, with a trace.
const (
	seeds      = 10_000
	seedsShort = 300
	maxFailed  = 20 // after so many the rest tells nothing new
)

// TestSeeds runs a scenario for each seed: bytes arrive as they were sent in both directions, no rule
// that the monitor knows is broken, flows end once the network is good, and nothing is left over.
func TestSeeds(t *testing.T) {
	if text := os.Getenv("MILLRACE_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		replay(t, seed)
		return
	}
	n := seeds
	if testing.Short() {
		n = seedsShort
	}
	if text := os.Getenv("MILLRACE_SEEDS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		t.Run(fmt.Sprint(w), func(t *testing.T) {
			t.Parallel()
			failed := 0
			for seed := w; seed < n && failed < maxFailed; seed += workers {
				if wrong := attempt(uint64(seed), nil); wrong != "" {
					failed++
					t.Errorf("seed %d: %s\nMILLRACE_SEED=%d go test -run TestSeeds ./internal/testkit/netsim", seed, wrong, seed)
				}
			}
		})
	}
}

// attempt runs a scenario; a panic is a failure like others.
func attempt(seed uint64, trace *strings.Builder) (wrong string) {
	s := newScenario(seed)
	defer func() {
		if r := recover(); r != nil {
			buf := make([]byte, 4096)
			wrong = fmt.Sprintf("panic: %v\n%s", r, buf[:runtime.Stack(buf, false)])
		}
	}()
	if trace != nil {
		for _, line := range s.notes {
			fmt.Fprintln(trace, line)
		}
		s.net.Trace(trace)
	}
	return s.run()
}

// maxTrace bounds what a replay prints, bytes.
const maxTrace = 4_000_000

func replay(t *testing.T, seed uint64) {
	var trace strings.Builder
	wrong := attempt(seed, &trace)
	text := trace.String()
	if len(text) > maxTrace {
		text = text[:maxTrace] + "...\n"
	}
	t.Logf("seed %d:\n%s", seed, text)
	if wrong != "" {
		t.Error(wrong)
	}
}

func TestTheSameSeedIsTheSameToTheLastPacket(t *testing.T) {
	for seed := range uint64(40) {
		var a, b strings.Builder
		if x, y := attempt(seed, &a), attempt(seed, &b); x != y || a.String() != b.String() {
			t.Fatalf("seed %d is different the second time", seed)
		}
		if a.Len() < 500 {
			t.Fatalf("seed %d does nothing", seed)
		}
	}
}
