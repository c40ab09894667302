package control

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
)

// manyRules writes so many rules as those of public sets look.
func manyRules(n int, seed uint64) string {
	var b strings.Builder
	rng := rand.New(rand.NewPCG(seed, 2))
	word := func() string {
		w := make([]byte, 6+rng.IntN(12))
		for i := range w {
			w[i] = byte('a' + rng.IntN(26))
		}
		return string(w)
	}
	for i := range n {
		sid := 10_000 + i
		switch i % 5 {
		case 0:
			fmt.Fprintf(&b, "alert tcp any any -> any any (msg:\"%s\"; flow:established,to_server; content:\"%s|0d 0a|\"; nocase; sid:%d; rev:1;)\n", word(), word(), sid)
		case 1:
			fmt.Fprintf(&b, "alert http any any -> any any (msg:\"%s\"; flow:established,to_server; http.uri; content:\"/%s/\"; http.user_agent; content:\"%s\"; sid:%d;)\n", word(), word(), word(), sid)
		case 2:
			fmt.Fprintf(&b, "drop tcp any any -> any 1024: (msg:\"%s\"; content:\"%s\"; pcre:\"/%s[0-9]+/Ri\"; sid:%d;)\n", word(), word(), word(), sid)
		case 3:
			fmt.Fprintf(&b, "alert dns any any -> any any (msg:\"%s\"; dns.query; content:\"%s.example\"; nocase; endswith; sid:%d;)\n", word(), word(), sid)
		default:
			fmt.Fprintf(&b, "alert tcp any any -> any any (msg:\"%s\"; content:\"%s\"; content:\"%s\"; distance:1; within:40; flowbits:set,%s; noalert; sid:%d;)\n",
				word(), word(), word(), word(), sid)
		}
	}
	return b.String()
}

// Rules are swapped while packets pass: none is lost, and a match that began before the swap is completed behind it. With
// MILLRACE_SOAK there are 25 000 rules, as the public sets have, and 20 swaps.
func TestRulesAreSwappedUnderLoad(t *testing.T) {
	rules, swaps := 1000, 3
	if os.Getenv("MILLRACE_SOAK") != "" {
		rules, swaps = 25_000, 20
	}
	s := guard(t, fill(""), preventAll, manyRules(rules, 0)+dropEvil)
	s.handshake(guardedClient)
	s.expect(0, data(guardedClient, 0, "evil "), 1)
	var compile, longest, usual time.Duration
	packets := 0
	load := s.handshake("198.18.9.9:40001")
	seq := uint32(0)
	pass := func() {
		began := time.Now()
		s.expect(0, data("198.18.9.9:40001", seq, "a request like others\r\n"), 1)
		back := answer(load, "A")
		back.ack = firstSeq + seq + 23
		s.expect(1, back.bytes(), 0)
		took := time.Since(began)
		seq += 23
		packets += 2
		longest = max(longest, took)
		usual += took
	}
	for n := range swaps {
		s.write("a.rules", manyRules(rules, uint64(n+1))+dropEvil)
		cfg, done := s.parse(t, preventAll), make(chan error, 1)
		go func() { done <- s.i.Reload(cfg) }()
		for err, ended := error(nil), false; !ended; {
			pass()
			select {
			case err = <-done:
				if ended = true; err != nil {
					t.Fatal(err)
				}
			default:
			}
		}
		compile = max(compile, time.Duration(s.i.Status(1).Policies[0].CompileMS*1e6))
		began := time.Now()
		pass() // takes the rules of the reload
		t.Logf("swap %d: %d rules compiled in %.0f ms; the two packets behind it took %v", n, s.i.Status(1).Policies[0].Rules,
			s.i.Status(1).Policies[0].CompileMS, time.Since(began).Round(time.Microsecond))
	}
	t.Logf("%d packets beside %d reloads, none lost; compiled in %v at most, two packets took %v at most, %v on average",
		packets, swaps, compile.Round(time.Millisecond), longest.Round(time.Microsecond), (usual / time.Duration(packets/2)).Round(time.Microsecond))
	s.refused(0, data(guardedClient, 5, "bytes"), packet.DropInspection)
	if p := s.i.Status(1).Policies[0]; p.Rules != rules+1 {
		t.Errorf("%d rules", p.Rules)
	}
}
