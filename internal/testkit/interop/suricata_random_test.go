package interop

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/millrace/millrace/filter/signature"
)

// randomRules appends n rules of random options to a file of rules and returns them.
func randomRules(t *testing.T, rng *rand.Rand, n int, file string) []*signature.Rule {
	t.Helper()
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "%s sid:%d; rev:1;)\n", randomRule(rng), 9100000+i)
	}
	f := signature.Parse("random", text.String(), nil)
	for _, e := range append(f.Errors, f.Skipped...) {
		t.Error(e)
	}
	out, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := out.WriteString(text.String()); err != nil {
		t.Fatal(err)
	}
	return f.Rules
}

func randomRule(rng *rand.Rand) string {
	word := func() string {
		b := make([]byte, 2+rng.IntN(6))
		for i := range b {
			b[i] = "abcdeXYZ012"[rng.IntN(11)]
		}
		return string(b)
	}
	var s strings.Builder
	buffers := []string{""}
	head := "alert tcp any any -> any any (msg:\"r\"; "
	switch rng.IntN(4) {
	case 0:
		head = "alert udp any any -> any any (msg:\"r\"; "
	case 1:
		head = "alert http any any -> any any (msg:\"r\"; flow:established,to_server; "
		buffers = []string{"http.uri; ", "http.user_agent; ", "http.cookie; ", "http.request_body; ", "http.header; "}
	case 2:
		head = "alert http any any -> any any (msg:\"r\"; flow:established,to_client; "
		buffers = []string{"file.data; ", "http.server; ", "http.header; ", "http.response_body; "}
	}
	s.WriteString(head)
	rng.Shuffle(len(buffers), func(i, j int) { buffers[i], buffers[j] = buffers[j], buffers[i] })
	for _, b := range buffers[:1+rng.IntN(min(2, len(buffers)))] {
		s.WriteString(b)
		n := 1 + rng.IntN(3)
		for i := range n {
			s.WriteString(randomTest(rng, word(), i > 0, i == n-1))
		}
	}
	return s.String()
}

// randomTest returns a content with modifiers, perhaps with a test behind it. Contents may be behind others, and the last of a
// buffer.
func randomTest(rng *rand.Rand, w string, behind, last bool) string {
	s := fmt.Sprintf("content:%q; ", w)
	n := len(w)
	switch k := rng.IntN(8); {
	case !behind && k == 0:
		s += fmt.Sprintf("offset:%d; ", rng.IntN(9))
	case !behind && k == 1:
		s += fmt.Sprintf("depth:%d; ", n+rng.IntN(9))
	case !behind && k == 2:
		s += fmt.Sprintf("offset:%d; depth:%d; ", rng.IntN(5), n+rng.IntN(9))
	case !behind && k == 3:
		s += "startswith; "
	case behind && k == 0:
		s += fmt.Sprintf("distance:%d; ", rng.IntN(6))
	case behind && k == 1:
		s += fmt.Sprintf("within:%d; ", n+rng.IntN(9))
	case behind && k <= 4:
		s += fmt.Sprintf("distance:%d; within:%d; ", rng.IntN(5), n+rng.IntN(9))
	}
	if rng.IntN(3) == 0 {
		s += "nocase; "
	}
	switch rng.IntN(8) {
	case 0:
		s += fmt.Sprintf("byte_test:1,>,%d,%d,relative; ", rng.IntN(100), rng.IntN(3))
	case 1:
		s += fmt.Sprintf("isdataat:%d,relative; ", 1+rng.IntN(8))
	case 2:
		if last { // Suricata refuses a content behind the end
			s += fmt.Sprintf("isdataat:!%d,relative; ", 1+rng.IntN(8))
		}
	case 3:
		s += fmt.Sprintf("pcre:\"/^[a-z0-9]{%d}/R\"; ", 1+rng.IntN(3))
	case 4:
		s += fmt.Sprintf("content:!%q; within:%d; ", w[:2], 2+rng.IntN(5))
	}
	return s
}
