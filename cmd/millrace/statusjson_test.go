package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/internal/controlsocket"
	l7control "github.com/millrace/millrace/l7/control"
)

func TestWithoutZeros(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{}`, `{}`},
		{`{"a":0,"b":false,"c":"","d":null,"e":{}}`, `{}`},
		{`{"a":0,"b":1,"c":0,"d":-1,"e":0}`, `{"b":1,"d":-1}`},
		{`{"a":{"b":{"c":0}},"d":true}`, `{"d":true}`},
		{`{"a":[],"b":[0,"",null,false,{},{"c":0}],"d":0.5,"e":10,"f":0e1}`, `{"a":[],"b":[0,"",null,false,{},{}],"d":0.5,"e":10,"f":0e1}`},
		{`{"a,\"}":"\\","b\\":"}","c":""}`, `{"a,\"}":"\\","b\\":"}"}`},
		{`[{"a":0},{"b":1}]`, `[{},{"b":1}]`},
		{`0`, `0`},
	} {
		if got := string(withoutZeros([]byte(c.in))); got != c.want {
			t.Errorf("%s became %s, want %s", c.in, got, c.want)
		}
	}
}

// FuzzWithoutZeros compares with the same on decoded documents.
func FuzzWithoutZeros(f *testing.F) {
	f.Add([]byte(`{"a":[{"b":0,"c":{"d":""}},[],null],"e":"\"","f":1e5}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var in bytes.Buffer
		if json.Compact(&in, text) != nil {
			return
		}
		var want, got any
		decodeNumbers(t, in.Bytes(), &want)
		if want != nil {
			want, _ = pruned(want)
		}
		decodeNumbers(t, withoutZeros(in.Bytes()), &got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	})
}

func decodeNumbers(t *testing.T, text []byte, v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // 0 and 0.0 are two
	if err := d.Decode(v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
}

// pruned returns a value without the zeros of its objects, and whether it is one.
func pruned(v any) (any, bool) {
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			var zero bool
			if v[key], zero = pruned(member); zero {
				delete(v, key)
			}
		}
		return v, len(v) == 0
	case []any:
		for i := range v {
			v[i], _ = pruned(v[i])
		}
		return v, false
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
		if !bytes.Equal(withoutZeros(encoded(t, &got)), withoutZeros(encoded(t, st))) {
			t.Errorf("%.20s...: it became another status", text)
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
