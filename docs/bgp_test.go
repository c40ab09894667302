package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestTheFiguresOfBGPAreThoseOfTheResults compares the table of bgp.md with what `make bgp-times` has written.
func TestTheFiguresOfBGPAreThoseOfTheResults(t *testing.T) {
	var report struct {
		Rounds   int
		Router   string
		Machine  string
		Measured map[string]struct{ Median, Most float64 } `json:"measured_ms"`
	}
	text, err := os.ReadFile("../bench/results/bgp.json")
	if err == nil {
		err = json.Unmarshal(text, &report)
	}
	page, err2 := os.ReadFile("bgp.md")
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	want := []string{fmt.Sprintf("of %d rounds", report.Rounds), report.Router, report.Machine}
	for key, row := range map[string]string{"backend_fails": "the last backend fails", "process_killed": "the gateway is killed"} {
		m := report.Measured[key]
		if m.Median > 1000 {
			t.Errorf("%s: %v ms, which is above the gate of a second", key, m.Median)
		}
		want = append(want, fmt.Sprintf("| %s | %.0f ms | %.0f ms |", row, m.Median, m.Most))
	}
	for _, w := range want {
		if !strings.Contains(string(page), w) {
			t.Errorf("bgp.md lacks %q", w)
		}
	}
}
