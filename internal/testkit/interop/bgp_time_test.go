package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// withdrawalReport is what TestBGPWithdrawalTimes measures, in milliseconds.
type withdrawalReport struct {
	What     string                `json:"what"`
	Router   string                `json:"router"`
	Machine  string                `json:"machine"`
	Health   string                `json:"health"`
	Rounds   int                   `json:"rounds"`
	Measured map[string]percentile `json:"measured_ms"`
}

type percentile struct {
	Median float64   `json:"median"`
	Most   float64   `json:"most"`
	All    []float64 `json:"all"`
}

// TestBGPWithdrawalTimes measures how long the route of a gateway stays in the router's kernel after its last backend has failed, and
// after the process was killed, and writes the file that MILLRACE_BGP_RESULTS names. Without it there is nothing to do: the times are
// figures, and no test fails by them.
func TestBGPWithdrawalTimes(t *testing.T) {
	to := os.Getenv("MILLRACE_BGP_RESULTS")
	if to == "" {
		t.Skip("MILLRACE_BGP_RESULTS names no file: make bgp-times")
	}
	s := newECMPSite(t, "itimes", routerOfThePage(t, "frr"))
	one, two := s.gates[0], s.gates[1]
	one.start(t, "")
	two.start(t, "")
	const rounds = 20
	times := map[string][]float64{}
	// The router's kernel reports changes of routes as they come, with their times.
	monitor := s.watchRoutes(t)
	for range rounds {
		eventually(t, "both next hops", s.nextHops, "198.18.11.2", "198.18.12.2")
		began := time.Now()
		one.fail()
		times["backend_fails"] = append(times["backend_fails"], monitor.gone(t, began, "198.18.11.2"))
		one.serve()
		eventually(t, "both next hops", s.nextHops, "198.18.11.2", "198.18.12.2")
		began = time.Now()
		if err := one.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		times["process_killed"] = append(times["process_killed"], monitor.gone(t, began, "198.18.11.2"))
		one.start(t, "")
	}
	r := withdrawalReport{
		What: "from the failure until the route of the gateway is gone from the router's kernel", Router: "FRR " + strings.Fields(s.router.show("show version"))[1],
		Machine: fmt.Sprintf("%d cores, %s", runtime.NumCPU(), kernelVersion()), Health: "tcp, interval 100ms, timeout 50ms, fall 2", Rounds: rounds, Measured: map[string]percentile{},
	}
	for what, list := range times {
		sorted := slices.Sorted(slices.Values(list))
		r.Measured[what] = percentile{Median: sorted[len(sorted)/2], Most: sorted[len(sorted)-1], All: list}
	}
	text, err := json.MarshalIndent(&r, "", "  ")
	if err == nil {
		err = os.WriteFile(to, append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", text)
}

func kernelVersion() string {
	b, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return "Linux " + strings.TrimSpace(string(b))
}
