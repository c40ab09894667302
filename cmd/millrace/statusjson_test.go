package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/controlsocket"
	l4control "github.com/millrace/millrace/l4/control"
	l7control "github.com/millrace/millrace/l7/control"
)

func TestWithoutDefaults(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{}`, `{}`},
		{`{"a":0,"b":false,"c":"","d":null,"e":{}}`, `{}`},
		{`{"a":0,"b":1,"c":0,"d":-1,"e":0}`, `{"b":1,"d":-1}`},
		{`{"a":{"b":{"c":0}},"d":true}`, `{"d":true}`},
		{`{"a":[],"b":[0,"",null,false,{},{"c":0}],"d":0.5,"e":10,"f":0e1}`, `{"a":[],"b":[0,"",null,false,{},{}],"d":0.5,"e":10,"f":0e1}`},
		{`{"a,\"}":"\\","b\\":"}","c":""}`, `{"a,\"}":"\\","b\\":"}"}`},
		{`[{"a":0},{"b":1}]`, `[{},{"b":1}]`},
		{`0`, `0`},
		{`{"state":"active","config_state":"active","weight":3,"config_weight":3,"slow_start_percent":100,"next_hop":"ready"}`, `{"state":"active","weight":3}`},
		{`{"state":"draining","config_state":"active","weight":3,"config_weight":0,"slow_start_percent":0,"next_hop":""}`, `{"state":"draining","config_state":"active","weight":3,"config_weight":0,"slow_start_percent":0,"next_hop":""}`},
		{`{"state":"","config_state":"","weight":0,"config_weight":0,"slow_start_percent":10,"next_hop":"no route"}`, `{"slow_start_percent":10,"next_hop":"no route"}`},
		{`{"weight":0,"config_weight":1,"config_state":""}`, `{"config_weight":1}`},
		{`{"state":"x","in":{"config_state":"x","weight":7},"config_weight":7}`, `{"state":"x","in":{"config_state":"x","weight":7},"config_weight":7}`},
	} {
		if got := string(withoutDefaults([]byte(c.in))); got != c.want {
			t.Errorf("%s became %s, want %s", c.in, got, c.want)
		}
	}
}

// FuzzWithoutDefaults compares with the same on decoded documents.
func FuzzWithoutDefaults(f *testing.F) {
	f.Add([]byte(`{"a":[{"b":0,"c":{"d":""}},[],null],"e":"\"","f":1e5}`))
	f.Add([]byte(`{"state":"active","config_state":"active","weight":2,"config_weight":0,"slow_start_percent":100,"next_hop":"ready","weight":0}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var in bytes.Buffer
		if json.Compact(&in, text) != nil || !utf8.Valid(text) || bytes.Contains(text, []byte(`\u`)) || bytes.Contains(text, []byte(`\/`)) {
			return // encoding/json escapes each text in one way, so that equal texts have equal bytes
		}
		d := json.NewDecoder(bytes.NewReader(in.Bytes()))
		d.UseNumber() // 0 and 0.0 are two
		want, _ := pruned(ordered(t, d))
		d = json.NewDecoder(bytes.NewReader(withoutDefaults(in.Bytes())))
		d.UseNumber()
		if diff := gocmp.Diff(want, ordered(t, d)); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	})
}

// member is one of an object. Objects are lists of them, in the order of the document, because names may be there twice.
type member struct {
	Key   string
	Value any
}

// ordered reads a value.
func ordered(t *testing.T, d *json.Decoder) any {
	t.Helper()
	token := func() json.Token {
		tok, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		return tok
	}
	switch tok := token(); tok {
	case json.Delim('{'):
		object := []member{}
		for d.More() {
			key, _ := token().(string)
			object = append(object, member{key, ordered(t, d)})
		}
		token()
		return object
	case json.Delim('['):
		list := []any{}
		for d.More() {
			list = append(list, ordered(t, d))
		}
		token()
		return list
	default:
		return tok
	}
}

// pruned returns a value without the defaults of its objects, and whether it is a zero.
func pruned(v any) (any, bool) {
	switch v := v.(type) {
	case []member:
		left, before := []member{}, map[string]any{"slow_start_percent": json.Number("100"), "next_hop": "ready"}
		for _, m := range v {
			whole := m.Value
			value, out := pruned(m.Value)
			if d, other := before[m.Key]; other {
				out = gocmp.Equal(whole, d)
			}
			switch m.Key {
			case "state", "weight":
				before["config_"+m.Key] = whole
			}
			if !out {
				left = append(left, member{m.Key, value})
			}
		}
		return left, len(left) == 0
	case []any:
		list := []any{}
		for i := range v {
			one, _ := pruned(v[i])
			list = append(list, one)
		}
		return list, false
	}
	return v, v == nil || v == false || v == "" || v == json.Number("0")
}

// busyStatus is the status of a gateway whose backends have served many requests.
func busyStatus(pools, backends int) *admin.Status {
	since := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	st := &admin.Status{Version: "v1", Started: since, Listeners: &l7control.Status{Listeners: []l7control.ListenerStatus{}}}
	for i := range pools {
		p := l7control.PoolStatus{Name: fmt.Sprintf("pool%d", i)}
		for k := range backends {
			b := l7control.BackendStatus{
				Name: fmt.Sprintf("b%d", k), Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(k >> 8), byte(k)}), 8080),
				State: "active", Weight: 1, SlowStart: 100, Healthy: k%100 > 0, Requests: 2, Connections: 8, Responses: map[string]uint64{"2xx": 123456}, Failures: map[string]uint64{},
				Latency: 0.001234,
			}
			if !b.Healthy {
				b.Since, b.Cause = &since, "connection refused"
			}
			p.Backends = append(p.Backends, b)
		}
		st.Listeners.Pools = append(st.Listeners.Pools, p)
	}
	return st
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Both schemas say the same, and the one by default is within 2 MiB for 10 000 backends, also of busy ones.
func TestSchemasOfTheStatus(t *testing.T) {
	st := busyStatus(100, 100)
	socket := servedControl(t, func(w http.ResponseWriter, _ *http.Request) { controlsocket.Reply(w, st) })
	ask := func(args ...string) (out string) {
		t.Helper()
		code, out, err := run(append([]string{"gateway", "status", "--socket", socket, "--json"}, args...)...)
		if code != exitOK {
			t.Fatalf("%v: code %d, %s", args, code, err)
		}
		return out
	}
	brief, whole := ask(), ask("--schema", "1")
	if len(brief) > 2<<20 || !strings.HasPrefix(brief, `{"schema":2,"version":"v1",`) || strings.Contains(brief, `"retries"`) {
		t.Errorf("%d bytes: %.200s", len(brief), brief)
	}
	if !strings.HasPrefix(whole, `{"schema":1,"version":"v1",`) || strings.Count(whole, `"failures":{}`) != 10_000 || ask("--schema=2") != brief {
		t.Errorf("%d bytes: %.200s", len(whole), whole)
	}
	t.Logf("10 000 busy backends: %d bytes, %d in the schema with every key", len(brief), len(whole))
	for _, text := range []string{brief, whole} {
		var got admin.Status
		decode(t, text, &got)
		restoreDefaults(&got)
		if !bytes.Equal(withoutDefaults(encoded(t, &got)), withoutDefaults(encoded(t, st))) {
			t.Errorf("%.20s...: it became another status", text)
		}
	}
}

// restoreDefaults gives backends what schema 2 leaves out.
func restoreDefaults(st *admin.Status) {
	if st.Listeners != nil {
		for i := range st.Listeners.Pools {
			for k := range st.Listeners.Pools[i].Backends {
				b := &st.Listeners.Pools[i].Backends[k]
				b.SlowStart = cmp.Or(b.SlowStart, 100)
			}
		}
	}
	for i := range st.Gateway.Services {
		for k := range st.Gateway.Services[i].Backends {
			b := &st.Gateway.Services[i].Backends[k]
			b.SlowStartPercent, b.NextHop = cmp.Or(b.SlowStartPercent, 100), cmp.Or(b.NextHop, "ready")
			b.ConfigState, b.ConfigWeight = cmp.Or(b.ConfigState, b.State), cmp.Or(b.ConfigWeight, b.Weight)
		}
	}
}

// servicesStatus is the status of a gateway with services, of which each hundredth backend is down; busy ones have had many packets.
func servicesStatus(services, backends int, busy bool) *admin.Status {
	since := time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)
	st := &admin.Status{Version: "v1", Started: since}
	for i := range services {
		at := config.AddrPortsFrom(netip.AddrFrom4([4]byte{198, 19, byte(i >> 8), byte(i)}), config.PortRange{First: 8443, Last: 8443})
		s := l4control.ServiceStatus{Name: fmt.Sprintf("service%d", i), Protocol: "tcp", Mode: "nat", Addresses: []config.AddrPorts{at}, Dropped: map[string]uint64{}}
		for k := range backends {
			n := i*backends + k
			b := l4control.BackendStatus{
				Name: fmt.Sprintf("b%d", k), Address: config.AddrPortsFrom(netip.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)}), config.PortRange{First: 8080, Last: 8080}),
				State: "active", Since: since, ConfigState: "active", Weight: 1, ConfigWeight: 1, SlowStartPercent: 100, Healthy: n%100 > 0, NextHop: "ready",
			}
			if busy {
				b.Connections, b.Opened, b.ToPackets, b.ToBytes, b.FromPackets, b.FromBytes = uint64(n), 123_456, 1_234_567, 123_456_789, 2_345_678, 3_456_789_012
			}
			if !b.Healthy {
				b.Down = []l4control.DownStatus{{By: "check", Since: since, Cause: "connection refused"}}
			}
			s.Backends = append(s.Backends, b)
		}
		st.Gateway.Services = append(st.Gateway.Services, s)
	}
	return st
}

// The status of 2500 services with four backends each is within 2 MB, and as text a screen.
func TestTheStatusOfManyServicesIsSmall(t *testing.T) {
	for _, busy := range []bool{false, true} {
		st := servicesStatus(2500, 4, busy)
		socket := servedControl(t, func(w http.ResponseWriter, r *http.Request) {
			reply := *st
			if n, err := strconv.Atoi(r.URL.Query().Get("foremost")); err == nil { // as the gateway does, which has them in another order
				reply.Gateway.Services = st.Gateway.Services[:n:n]
				reply.Gateway.MoreServices, reply.Gateway.MoreBackends, reply.Gateway.MoreDown = 2500-n, 10_000-4*n, 100-4*n/100
			}
			controlsocket.Reply(w, &reply)
		})
		var code int
		var out, errs string
		took := cpuOf(func() { code, out, errs = run("gateway", "status", "--socket", socket, "--json") })
		limit := 2_000_000
		if busy {
			limit = 3_200_000
		}
		t.Logf("status --json, busy %v: %d bytes, %.0f ms of processor time with the encoding", busy, len(out), took)
		if code != exitOK || len(out) > limit {
			t.Errorf("status --json, busy %v: code %d, %d bytes, %s", busy, code, len(out), errs)
		}
		var got admin.Status
		decode(t, out, &got)
		restoreDefaults(&got)
		if !bytes.Equal(withoutDefaults(encoded(t, &got)), withoutDefaults(encoded(t, st))) {
			t.Errorf("it became another status: %.300s", out)
		}
		code, out, errs = run("gateway", "status", "--socket", socket)
		if lines := strings.Count(out, "\n"); code != exitOK || lines > 50 || len(out) > 5_000 {
			t.Errorf("status: code %d, %d lines, %d bytes, %s", code, lines, len(out), errs)
		}
		for _, want := range []string{"10,000 backends in 2,500 services, 100 of them down", "service0 ", "3/4", "2,480 more services", "service0/b0 is down", "connection refused"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		if code, out, errs = run("gateway", "status", "--socket", socket, "--limit", "300"); code != exitOK || !strings.Contains(out, "\nservice49 tcp") {
			t.Errorf("status --limit: code %d, %.300s, %s", code, out, errs)
		}
		if code, out, errs = run("gateway", "status", "--socket", socket, "--all"); code != exitOK || strings.Count(out, "\n") < 10_000 {
			t.Errorf("status --all: code %d, %d bytes, %s", code, len(out), errs)
		}
	}
}

func TestSchemasThatThereAreNot(t *testing.T) {
	for args, want := range map[string]string{
		"--json --schema 3": "--schema 3: there are 1, which has every key, and 2",
		"--json --schema 0": "--schema 0: there are",
		"--schema 1":        "add --json",
	} {
		if code, _, err := run(append([]string{"gateway", "status"}, strings.Fields(args)...)...); code != exitUsage || !strings.Contains(err, want) {
			t.Errorf("%s: code %d, %s", args, code, err)
		}
	}
}
