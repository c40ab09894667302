package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	server "github.com/millrace/millrace/internal/controlsocket"
)

// TestVerdictsOnSeveralSources: all sources are checked before the first request, and the first that is refused ends the command.
func TestVerdictsOnSeveralSources(t *testing.T) {
	var asked []string
	socket := servedControl(t, func(w http.ResponseWriter, r *http.Request) {
		var v struct{ Source string }
		if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
			t.Error(err)
		}
		asked = append(asked, strings.TrimPrefix(r.URL.Path, "/v1/defence/")+" "+v.Source)
		if v.Source == "203.0.113.7/32" {
			server.ReplyError(w, http.StatusConflict, "it is accepted")
			return
		}
		server.Reply(w, struct{}{})
	})
	for _, tc := range []struct {
		args  string
		code  int
		says  string
		asked []string
	}{
		{"add 192.0.2.1", exitOK, "packets of 192.0.2.1/32 are dropped\n", []string{"add 192.0.2.1/32"}},
		{"add 192.0.2.1 192.0.2.0/24", exitOK, "packets of 2 sources are dropped\n", []string{"add 192.0.2.1/32", "add 192.0.2.0/24"}},
		{"remove 192.0.2.1 2001:db8::1", exitOK, "verdicts on 2 sources are removed\n", []string{"remove 192.0.2.1/32", "remove 2001:db8::1/128"}},
		{"add 192.0.2.1 300.1.1.1", exitUsage, `"300.1.1.1" is not an address`, nil},
		{"add", exitUsage, "SOURCE is missing", nil},
		{"add 192.0.2.1 203.0.113.7 192.0.2.2", exitFailure, "203.0.113.7/32, after 1 of 3 sources: it is accepted", []string{"add 192.0.2.1/32", "add 203.0.113.7/32"}},
		{"add 203.0.113.7", exitFailure, "millrace: it is accepted", []string{"add 203.0.113.7/32"}},
	} {
		asked = nil
		code, out, err := run(strings.Fields("gateway defence " + tc.args + " --socket " + socket)...)
		if code != tc.code || !strings.Contains(out+err, tc.says) || !slices.Equal(asked, tc.asked) {
			t.Errorf("%s: code %d: %s%s; asked %q", tc.args, code, out, err, asked)
		}
	}
}
