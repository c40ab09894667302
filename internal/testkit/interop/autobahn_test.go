package interop

import (
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/websocket"
)

// TestAutobahn runs the cases of Autobahn's fuzzing client against a server of package websocket, as it is and behind the gateway.
// MILLRACE_AUTOBAHN names the program wstest; `make autobahn` installs it.
func TestAutobahn(t *testing.T) {
	program := os.Getenv("MILLRACE_AUTOBAHN")
	if program == "" {
		t.Skip("MILLRACE_AUTOBAHN names no program; make autobahn installs it")
	}
	server, ended := wsServer(t, websocket.Deflate{Enabled: true})
	go func() {
		for range ended { // most cases end by an error of the client, which is what they are about
		}
	}()
	backend := strings.TrimPrefix(server.URL, "http://")
	g := newTestGateway(t, backend, nil)
	results := runAutobahn(t, program, map[string]string{"server": "ws://" + backend, "gateway": "ws://" + g.plain.Address.String()})
	for _, agent := range []string{"server", "gateway"} {
		cases, count := results[agent], map[string]int{}
		for _, number := range slices.Sorted(maps.Keys(cases)) {
			c := cases[number]
			count[c.Behavior]++
			if !passes(c.Behavior) || !passes(c.BehaviorClose) {
				t.Errorf("%s: case %s: %s, its end: %s", agent, number, c.Behavior, c.BehaviorClose)
			}
		}
		t.Logf("%s: %d cases: %v", agent, len(cases), count)
		if len(cases) < 500 {
			t.Errorf("%s: %d cases ran: the suite is not what it was", agent, len(cases))
		}
	}
	g.settled()
}

// autobahnCase is the outcome of one case.
type autobahnCase struct{ Behavior, BehaviorClose string }

// passes reports whether an outcome is one that a strict reading of RFC 6455 and RFC 7692 permits. INFORMATIONAL cases have no
// wrong answer.
func passes(outcome string) bool { return outcome == "OK" || outcome == "INFORMATIONAL" }

// runAutobahn returns the outcomes by server and number of the case.
func runAutobahn(t *testing.T, program string, servers map[string]string) (results map[string]map[string]autobahnCase) {
	t.Helper()
	dir := t.TempDir()
	var list []map[string]string
	for _, agent := range slices.Sorted(maps.Keys(servers)) {
		list = append(list, map[string]string{"agent": agent, "url": servers[agent]})
	}
	spec, err := json.Marshal(map[string]any{
		"outdir": dir, "servers": list, "cases": []string{"*"}, "exclude-cases": []string{}, "exclude-agent-cases": map[string]any{},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "spec.json")
	if err := os.WriteFile(file, spec, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-m", "fuzzingclient", "-s", file)
	cmd.Stdout, cmd.Dir = io.Discard, dir
	var complaints strings.Builder
	cmd.Stderr = &complaints
	runErr := cmd.Run()
	text, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err == nil {
		err = json.Unmarshal(text, &results)
	}
	if err != nil {
		t.Fatalf("wstest: %v, %v\n%.2000s", runErr, err, complaints.String())
	}
	return results
}
