package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
)

// The budgets of answers of one kind: of a loop, and of one destination.
const (
	answersAtOnce1   = 1000
	answersPerSecond = 10_000
	hostAtOnce       = 200
	hostPerSecond    = 1000
)

// question is a packet that the gateway answers itself.
type question struct {
	name string
	// budget is that of the answer: of those that share one, a flood of one suppresses the others.
	budget string
	from   func(src string) []byte
	all    bool           // the loop has no budget for all destinations together
	why    packet.Verdict // of one that is not answered
}

// tooBigFrom is a packet of the length of the client's link, to a service with a tunnel.
func tooBigFrom(src string) []byte {
	s := client(src+":40000", "198.18.1.1:82", "S")
	s.payload = strings.Repeat("x", 1460)
	return s.bytes()
}

// limitConfig asks for every kind of answer.
const limitConfig = rejectConfig + `
  - {name: tunnel, mode: ipip, address: [198.18.1.1:82, "[2001:db8:1::1]:82"], backends: [{address: 198.18.2.14}]}
tunnel: {source: 198.18.5.0/24}
`

func questions() []question {
	late := func(src string) []byte {
		s := client(src+":40000", web, "S")
		s.ttl = 1
		return s.bytes()
	}
	return []question{
		{"echo", "echo", func(src string) []byte { return echoRequest(src, "198.18.1.1", 0) }, false, packet.DropRateLimit},
		{"fragment of an echo", "echo", func(src string) []byte { return split(echoRequest(src, "198.18.1.1", 0), 16, 5)[0] }, false, packet.DropRateLimit},
		{"reset of a closed port", "closed port", func(src string) []byte { return client(src+":40000", "198.18.1.1:7", "S").bytes() }, false, packet.DropNoService},
		{"closed port unreachable", "closed port", func(src string) []byte { return client(src+":40000", "198.18.1.1:7", "").bytes() }, false, packet.DropNoService},
		{"reset", "reset", func(src string) []byte { return client(src+":40000", web, "S").bytes() }, false, packet.DropNoBackend},
		{"port unreachable", "port unreachable", func(src string) []byte { return client(src+":40000", dns, "").bytes() }, false, packet.DropNoBackend},
		{"time exceeded", "time exceeded", late, false, packet.DropTTL},
		{"too big", "too big", tooBigFrom, true, packet.DropTooBig},
	}
}

// answered sends n of a question from each of so many hosts and counts the answers.
func (w *world) answered(q *question, hosts, n int) (answers int) {
	w.t.Helper()
	for i := range n {
		for host := range hosts {
			switch s := w.send(0, q.from(fmt.Sprintf("198.18.%d.%d", 100+host/200, 1+host%200))); s.verdict {
			case packet.Forward:
				if s.port != 0 {
					w.t.Fatalf("%s: sent on by port %d", q.name, s.port)
				}
				answers++
			case q.why:
			default:
				w.t.Fatalf("%s: number %d is dropped as %v", q.name, i, s.verdict)
			}
		}
	}
	return answers
}

func TestAnswersToAHostHaveARate(t *testing.T) {
	for _, q := range questions() {
		w := newWorld(t, fmt.Sprintf(limitConfig, "reject"))
		if n := w.answered(&q, 1, 3*hostAtOnce); n != hostAtOnce {
			t.Errorf("%s: %d answers at once", q.name, n)
		}
		w.now = w.now.Add(30 * time.Millisecond)
		if n := w.answered(&q, 1, hostAtOnce); n != hostPerSecond*30/1000 {
			t.Errorf("%s: %d answers after 30 ms", q.name, n)
		}
		w.now = w.now.Add(time.Hour)
		if n := w.answered(&q, 1, 3*hostAtOnce); n != hostAtOnce {
			t.Errorf("%s: %d answers after an hour", q.name, n)
		}
	}
}

func TestAnswersOfALoopHaveARate(t *testing.T) {
	for _, q := range questions() {
		w := newWorld(t, fmt.Sprintf(limitConfig, "reject"))
		const hosts, each = 50, 100
		atOnce, later := answersAtOnce1, answersPerSecond*30/1000
		if q.all {
			atOnce, later = hosts*each, hosts*each
		}
		if n := w.answered(&q, hosts, each); n != atOnce {
			t.Errorf("%s: %d answers at once, want %d", q.name, n, atOnce)
		}
		w.now = w.now.Add(30 * time.Millisecond)
		if q.all {
			continue
		}
		if n := w.answered(&q, hosts, each); n != later {
			t.Errorf("%s: %d answers after 30 ms, want %d", q.name, n, later)
		}
	}
}

// A flood of one kind, by the same host and by others, leaves the budgets of other kinds alone.
func TestAFloodOfOneKindSuppressesNoOther(t *testing.T) {
	list := questions()
	for i := range list {
		w := newWorld(t, fmt.Sprintf(limitConfig, "reject"))
		w.answered(&list[i], 50, 200)
		for k := range list {
			if n := w.answered(&list[k], 1, 1); list[k].budget != list[i].budget && n != 1 {
				t.Errorf("a flood of %s suppresses %s", list[i].name, list[k].name)
			}
		}
	}
}

// A host that asks too much leaves answers of the same kind to others, as long as the loop has any.
func TestOneHostLeavesAnswersToOthers(t *testing.T) {
	for _, q := range questions() {
		w := newWorld(t, fmt.Sprintf(limitConfig, "reject"))
		w.answered(&q, 1, 5000)
		if s := w.send(0, q.from("198.18.90.1")); s.verdict != packet.Forward {
			t.Errorf("%s: another host gets no answer: %v", q.name, s.verdict)
		}
	}
}

// Forged sources, each seen once, make the meters of hosts overflow: one that has used its budget up stays limited,
// and no other is.
func TestForgedSourcesDoNotResetTheBudgetOfAHost(t *testing.T) {
	w := newWorld(t, fmt.Sprintf(limitConfig, "reject"))
	list := questions()
	q := list[slices.IndexFunc(list, func(q question) bool { return q.name == "too big" })]
	w.answered(&q, 1, hostAtOnce)
	for i := range 20_000 {
		w.expect(0, tooBigFrom(fmt.Sprintf("198.19.%d.%d", i>>8&255, i&255)), 0)
	}
	w.refused(0, tooBigFrom("198.18.100.1"), q.why)
}
