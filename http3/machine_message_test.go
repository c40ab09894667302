package http3

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/semantics"
)

// exchangeMessage has a machine read what another has appended.
func exchangeMessage(t *testing.T, role Role, head, encoder []byte) semantics.Message {
	t.Helper()
	m := NewMachine(role, MachineOptions{ExtendedConnect: true})
	if len(encoder) > 0 {
		uni, err := m.Open(2 | uint64(1-role))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := m.Input(uni, encoder, false); err != nil {
			t.Fatal(err)
		}
	}
	s, err := m.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	ev, n, err := m.Input(s, head, false)
	if err != nil || ev.Kind != Headers || n != len(head) {
		t.Fatalf("%v of %x: %v", ev.Kind, head, err)
	}
	return s.Message
}

func TestMessages(t *testing.T) {
	fields := []semantics.Field{
		{Name: "accept", Value: "*/*"},
		{Name: "connection", Value: "x"},
		{Name: "host", Value: "h"},
		{Name: "content-length", Value: "5"},
		{Name: "transfer-encoding", Value: "chunked"},
		{Name: "upgrade", Value: "x"},
		{Name: "keep-alive", Value: "1"},
		{Name: "proxy-connection", Value: "x"},
		{Name: "x-secret", Value: "s", Never: true},
	}
	kept := []semantics.Field{fields[0], fields[8]}
	length := func(s string) []semantics.Field {
		return append(append([]semantics.Field(nil), kept...), semantics.Field{Name: "content-length", Value: s})
	}
	for name, test := range map[string]struct{ in, want semantics.Message }{
		"request": {
			semantics.Message{Method: "POST", Scheme: "https", Authority: "a.test", Path: "/p?q", ContentLength: 12, Fields: fields},
			semantics.Message{Method: "POST", Scheme: "https", Authority: "a.test", Path: "/p?q", ContentLength: 12, Fields: length("12")},
		},
		"request without length": {
			semantics.Message{Method: "GET", Scheme: "http", Authority: "a.test", Path: "/", ContentLength: -1, Fields: fields},
			semantics.Message{Method: "GET", Scheme: "http", Authority: "a.test", Path: "/", ContentLength: -1, Fields: kept},
		},
		"CONNECT": {
			semantics.Message{Method: "CONNECT", Scheme: "x", Path: "x", Authority: "a.test:1", ContentLength: -1, Fields: kept},
			semantics.Message{Method: "CONNECT", Authority: "a.test:1", ContentLength: -1, Fields: kept},
		},
		"extended CONNECT": {
			semantics.Message{Method: "CONNECT", Protocol: "websocket", Scheme: "https", Path: "/chat", Authority: "a.test", ContentLength: -1, Fields: kept},
			semantics.Message{Method: "CONNECT", Protocol: "websocket", Scheme: "https", Path: "/chat", Authority: "a.test", ContentLength: -1, Fields: kept},
		},
		"200":            {semantics.Message{Status: 200, ContentLength: 0, Fields: fields}, semantics.Message{Status: 200, ContentLength: 0, Fields: length("0")}},
		"404":            {semantics.Message{Status: 404, ContentLength: 1234567, Fields: fields}, semantics.Message{Status: 404, ContentLength: 1234567, Fields: length("1234567")}},
		"204":            {semantics.Message{Status: 204, ContentLength: 7, Fields: fields}, semantics.Message{Status: 204, ContentLength: -1, Fields: kept}},
		"103":            {semantics.Message{Status: 103, ContentLength: 7, Fields: fields}, semantics.Message{Status: 103, ContentLength: -1, Fields: kept}},
		"without length": {semantics.Message{Status: 500, ContentLength: -1, Fields: fields}, semantics.Message{Status: 500, ContentLength: -1, Fields: kept}},
	} {
		var m *Machine
		var head []byte
		reader := RoleServer
		if test.in.Status == 0 {
			m = NewMachine(RoleClient, MachineOptions{})
			head = m.AppendRequest(nil, 0, &test.in)
		} else {
			m, reader = NewMachine(RoleServer, MachineOptions{}), RoleClient
			head = m.AppendResponse(nil, 0, &test.in)
		}
		got := exchangeMessage(t, reader, head, nil)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Fields that lie in memory of the caller are not kept: the next message of the same fields is right.
func TestMessagesBorrow(t *testing.T) {
	m := NewMachine(RoleServer, MachineOptions{})
	m.encoder.SetPeer(4096, 16)
	var encoder []byte
	for i := range 50 {
		value := []byte(strings.Repeat(string(rune('a'+i%7)), 10))
		msg := semantics.Message{Status: 404, ContentLength: int64(i), Fields: []semantics.Field{{Name: "x-field", Value: viewOf(value)}}}
		head := m.AppendResponse(nil, 0, &msg)
		encoder = m.AppendEncoder(encoder)
		got := exchangeMessage(t, RoleClient, head, encoder)
		if got.Fields[0].Value != string(value) || got.ContentLength != int64(i) || got.Status != 404 {
			t.Fatalf("%d: %+v", i, got)
		}
		clear(value)
	}
}
