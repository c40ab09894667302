package http1

import (
	"slices"
	"testing"
)

// headOf gives a machine a message in pieces, and returns the header that it keeps.
func headOf(t *testing.T, m *Machine, text string, size int) string {
	t.Helper()
	var in []byte
	for part := range slices.Chunk([]byte(text), size) {
		in = append(in, part...)
		ev, n, err := m.Input(in, false)
		if err != nil {
			t.Fatal(err)
		}
		if in = in[n:]; ev.Kind == Headers {
			return string(m.Head())
		}
	}
	t.Fatalf("%q has no header", text)
	return ""
}

// A header that is kept is as it came, also where Input has changed it: names, a path that was empty, an empty line before it.
func TestHeadersAreKeptAsTheyCame(t *testing.T) {
	for _, text := range []string{
		"GET /a?b HTTP/1.1\r\nHOST:  a \r\nx-Two: b\r\nX-two:c\r\n\r\n",
		"GET http://a?b HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		for _, size := range []int{1, 7, 1000} {
			m := NewMachine(RoleServer, Options{})
			m.KeepHead(true)
			if got := headOf(t, m, "\r\n"+text, size); got != "\r\n"+text {
				t.Errorf("in %d bytes: %q, want %q", size, got, text)
			}
		}
	}
	m := NewMachine(RoleClient, Options{})
	m.KeepHead(true)
	if _, err := m.AppendRequest(nil, newRequest("GET", "/", -1), true); err != nil {
		t.Fatal(err)
	}
	const response = "HTTP/1.1 200 Fine\r\nSERVER: a\r\nContent-length: 0\r\n\r\n"
	if got := headOf(t, m, response, 5); got != response {
		t.Errorf("%q, want %q", got, response)
	}
}

// One that is not kept has the names that most senders write, and all else.
func TestHeadersThatAreNotKept(t *testing.T) {
	m := NewMachine(RoleServer, Options{})
	m.KeepHead(true)
	m.KeepHead(false)
	if got, want := headOf(t, m, "\r\nGET http://a?b HTTP/1.1\r\nhost: a\r\nx-two:  B \r\n\r\n", 9), "GET http://a?b HTTP/1.1\r\nHost: a\r\nX-Two:  B \r\n\r\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	m = NewMachine(RoleServer, Options{KeepCase: true})
	if got, want := headOf(t, m, "GET / HTTP/1.1\r\nhOsT: a\r\n\r\n", 100), "GET / HTTP/1.1\r\nhOsT: a\r\n\r\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
