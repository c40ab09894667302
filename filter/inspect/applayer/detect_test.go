package applayer

import (
	"strings"
	"testing"
)

// A method of any name makes a request with a target and a version, with the blanks that servers take.
func TestRequestsAreKnownByTheirLine(t *testing.T) {
	for text, want := range map[string]bool{
		"FETCH /a HTTP/1.1\r\n": true, "fetch\t/a\tHTTP/1.0\n": true, " FETCH /a b HTTP/1.1 \r\n": true, "gEt ": true,
		"FETCH /a HTTP/1.1": false, "FETCH HTTP/1.1\n": false, "HTTP/1.1 200 OK\n": false, "FETCH /aHTTP/1.1\n": false,
		"FETCH /a HTTP/1.1 x\n": false, "INVITE sip:a SIP/2.0\r\n": false, "\n": false, "": false,
	} {
		if got := isRequest([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	long := []byte("FETCH " + strings.Repeat("a ", 30000) + "x\n")
	if n := testing.AllocsPerRun(10, func() { isRequest(long) }); n != 0 {
		t.Errorf("%.0f allocations", n)
	}
}
