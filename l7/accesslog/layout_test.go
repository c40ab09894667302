package accesslog

import (
	"crypto/tls"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/semantics"
)

var full = Record{
	Client: netip.MustParseAddrPort("[::ffff:192.0.2.1]:7"), Listener: "web", Protocol: "HTTP/1.1", Method: "GET", Host: "a.example", Path: "/x?y",
	Route: "r", Rule: "r/0", Pool: "p", Backend: "b", User: "mia", RequestID: "7f", Cache: "hit", Status: 200, Attempts: 1, BytesIn: 3, BytesOut: 5, Began: 6 * time.Millisecond,
	Fields:     []semantics.Field{{Name: "user-agent", Value: "curl\" \xff\n/8"}, {Name: "user-agent", Value: "second"}, {Name: "x-tenant", Value: "seven"}},
	ServerName: "s.example", JA4: "t13d", TLSVersion: tls.VersionTLS13, CipherSuite: tls.TLS_AES_128_GCM_SHA256,
	Waited: time.Millisecond, Answered: 2 * time.Millisecond,
}

func TestChosenFieldsAreMembersInTheirOrder(t *testing.T) {
	got := string(new(Lines).append(nil, time.Unix(0, 0), inJSON(t, append(Fields()[usual:], "header.x-tenant", "header.x-none", "error", "status")...), &full, 1))
	want := `{"time_clf":"01/Jan/1970:00:00:00 +0000","client_address":"192.0.2.1","client_port":7,"peer_address":"192.0.2.1","peer_port":7,"user_agent":"curl\" \ufffd\u000a/8","server_name":"s.example","ja4":"t13d",` +
		`"tls_version":"TLS 1.3","tls_cipher":"TLS_AES_128_GCM_SHA256","wait_seconds":0.001000,"backend_seconds":0.002000,"response_seconds":0.003000,"header.x-tenant":"seven","status":200}` + "\n"
	if got != want || !json.Valid([]byte(got)) {
		t.Errorf("%s, want %s", got, want)
	}
}

// The client of a line is the one that a trusted peer names. Nothing is known of its port.
func TestTheClientOfALineIsTheOneThatATrustedPeerNames(t *testing.T) {
	r := Record{Client: full.Client, Forwarded: netip.MustParseAddr("203.0.113.9")}
	got := string(new(Lines).append(nil, time.Unix(0, 0), inJSON(t, "client", "client_address", "client_port", "peer_address", "peer_port"), &r, 1))
	if want := `{"client":"203.0.113.9","client_address":"203.0.113.9","peer_address":"192.0.2.1","peer_port":7}` + "\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := textLine(t, "${client_address} ${client_port} ${peer_address}", &Record{}); got != "- 0 -\n" {
		t.Errorf("without a client: %q", got)
	}
}

// A request that reached no backend has no phases, and one without a response has no time of it.
func TestPhasesThatWereNotReachedAreLeftOut(t *testing.T) {
	to := inJSON(t, "wait_seconds", "backend_seconds", "response_seconds", "referer")
	for _, c := range []struct {
		r    Record
		want string
	}{
		{Record{Began: time.Second}, "{}"},
		{Record{Began: time.Second, Attempts: 2, Waited: time.Second}, `{"wait_seconds":1.000000}`},
	} {
		if got := string(new(Lines).append(nil, time.Unix(0, 0), to, &c.r, 1)); got != c.want+"\n" {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

// textLine returns the line of a template.
func textLine(t *testing.T, template string, r *Record) string {
	t.Helper()
	l, err := Text(template)
	if err != nil {
		t.Fatal(err)
	}
	return string(new(Lines).append(nil, time.Unix(0, 0), &Log{opt: Options{Layout: l}}, r, 1))
}

func TestTextLinesEscapeWhatClientsSend(t *testing.T) {
	for template, want := range map[string]string{
		Combined:                   `192.0.2.1 - mia [01/Jan/1970:00:00:00 +0000] "GET /x?y HTTP/1.1" 200 5 "-" "curl\x22 \xff\x0a/8"`,
		"$${status}=${status}$ $x": "${status}=200$ $x",
		"${time}|${error}|${seconds}|${header.x-none}": "1970-01-01T00:00:00.000Z|-|0.006000|-",
	} {
		if got := textLine(t, template, &full); got != want+"\n" {
			t.Errorf("%s: %s, want %s", template, got, want)
		}
	}
	empty := Record{}
	if got := textLine(t, "${client} ${client_address} ${user}", &empty); got != "- - -\n" {
		t.Errorf("%q", got)
	}
}

func FuzzTextLinesAreOneLine(f *testing.F) {
	f.Add("a\nb")
	l, err := Text(Combined + "${header.x}")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r := Record{Path: s, Fields: []semantics.Field{{Name: "x", Value: s}, {Name: "user-agent", Value: s}}}
		line := string(new(Lines).append(nil, time.Unix(0, 0), &Log{opt: Options{Layout: l}}, &r, 1))
		if strings.IndexByte(line, '\n') != len(line)-1 || strings.Count(line, `"`) != 6 {
			t.Errorf("%q", line)
		}
	})
}

func TestWrongNamesAndTemplatesAreRefused(t *testing.T) {
	for _, name := range []string{"", "nothing", "header.", "header.User-Agent", "header.a b", "header.cookie", "header.authorization"} {
		if CheckField(name) == nil {
			t.Errorf("%q is a field", name)
		}
	}
	for _, s := range []string{"", "a\nb", "${status", "${nothing}", "${header.cookie}"} {
		if _, err := Text(s); err == nil {
			t.Errorf("%q is a template", s)
		}
	}
}

func TestOnlyLayoutsWithJA4ReadTheHello(t *testing.T) {
	var none *Layout
	if none.ReadsHello() || inJSON(t).opt.Layout.ReadsHello() || !inJSON(t, "status", "ja4").opt.Layout.ReadsHello() {
		t.Error("the hello is read for other layouts")
	}
}
