package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/internal/app/collectiveperf"
)

// TestCollectiveOfThisMachine starts ranks as processes.
func TestCollectiveOfThisMachine(t *testing.T) {
	out, err := program("collective", "bench", "--local", "3", "--sweep", "--min", "1000", "--max", "1000", "-n", "2").CombinedOutput()
	if err != nil || strings.Count(string(out), "\n") != 8 || !strings.Contains(string(out), "the choice is ") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = program("collective", "plan", "--local", "2", "--operation", "all-to-all", "--max", "64", "--json").Output()
	var p collectivePlan
	if err != nil || json.Unmarshal(out, &p) != nil || p.Ranks != 2 || len(p.Sizes) != 4 || len(p.Sizes[3].Algorithms) != 2 || !p.Costs.Measured || p.Costs.Alpha <= 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestCollectiveOfRanks runs each operation between two ranks with a key.
func TestCollectiveOfRanks(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"reduce", "broadcast", "all-gather", "reduce-scatter", "all-to-all", "gather", "scatter", "barrier"} {
		var wg sync.WaitGroup
		for _, rank := range []string{"0", "1"} {
			wg.Go(func() {
				args := []string{"collective", "bench", "--rank", rank, "--ranks", "2", "--address", l.Addr().String(), "--key-file", key, "--operation", kind, "--min", "30", "--max", "60", "-n", "2", "--json"}
				code, out, errs := run(args...)
				if code != exitOK || rank == "1" && out != "" {
					t.Errorf("%s, rank %s: code %d, %s%s", kind, rank, code, out, errs)
				}
				if rank == "1" {
					return
				}
				var r collectiveperf.Result
				lines := strings.Split(strings.TrimSpace(out), "\n")
				if len(lines) != 2 || json.Unmarshal([]byte(lines[1]), &r) != nil || string(r.Kind) != kind || !r.Chosen || r.Median < r.Least || r.Median <= 0 {
					t.Errorf("%s: %s", kind, out)
				}
			})
		}
		wg.Wait()
	}
	if code, out, errs := run("collective", "doctor"); code != exitOK || !strings.Contains(out, "INTERFACE") {
		t.Error(out, errs)
	}
}

func TestCollectiveUsage(t *testing.T) {
	short := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(short, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"plan"},
		{"plan", "--local", "65"},
		{"plan", "--local", "2", "--rank", "1"},
		{"bench", "--ranks", "2"},
		{"bench", "--local", "2", "--operation", "sort"},
		{"bench", "--local", "2", "--min", "0"},
		{"bench", "--local", "2", "--min", "9", "--max", "8"},
		{"bench", "--local", "2", "-n", "-1"},
		{"bench", "--local", "2", "--timeout", "0s"},
		{"doctor", "x"},
	} {
		if code, _, errs := run(append([]string{"collective"}, args...)...); code != exitUsage {
			t.Errorf("%v: code %d, %s", args, code, errs)
		}
	}
	for _, args := range [][]string{
		{"--ranks", "2", "--address", "192.0.2.1:1"},
		{"--ranks", "2", "--address", "127.0.0.1:1", "--key-file", short},
		{"--ranks", "2", "--rank", "2", "--address", "127.0.0.1:1"},
	} {
		if code, _, errs := run(append([]string{"collective", "plan", "--timeout", "1s"}, args...)...); code != exitFailure {
			t.Errorf("%v: code %d, %s", args, code, errs)
		}
	}
}
